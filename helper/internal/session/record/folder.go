package record

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/livefleet/handover/helper/internal/image/ploop"
	"github.com/livefleet/handover/helper/internal/tree"
)

// Directory is a volume that is a plain directory: it is followed while the workload
// uses it, so that the cost of a pass is that of the touched entries. On the
// destination it is there and empty when the session begins.
type Directory struct {
	Name string `json:"name"`
	Path string `json:"path"`
	Size int64  `json:"size,omitempty"` // source: about how much that is, for display; destination: how much it may reserve
	File bool   `json:"file,omitempty"` // it is a single file, empty on the destination when the session begins
	// Ploop is, on the source of a live workload, the folder in it with the image of its ploop disk: the kernel writes to
	// the top layer and tells no watcher, until the workload and its file system are frozen.
	Ploop string `json:"ploop,omitempty"`
	// Tmpfs is where the workload has this tmpfs of its own, which CRIU leaves to the session (package tmpfs). On the
	// destination Path is a folder below TmpfsFolder of the session, and is made.
	Tmpfs string `json:"tmpfs,omitempty"`
	// Device is, on the source, the number of that tmpfs, as the workload's mountinfo has it: MAJOR:MINOR.
	Device string `json:"device,omitempty"`
	// Member has that tmpfs, where the workload is several.
	Member string `json:"member,omitempty"`
}

// byPath reports whether it is a file or folder of the host's, which has its path for
// a name.
func (d *Directory) byPath() bool { return d.Name == d.Path && filepath.Clean(d.Path) == d.Path }

// Folder is the one that it is, or that it lies in.
func (d *Directory) Folder() string {
	if d.File {
		return filepath.Dir(d.Path)
	}
	return d.Path
}

// Tree is where the destination lays it down.
func (d *Directory) Tree() *Tree {
	t := &Tree{Name: d.Name, Path: d.Folder()}
	if d.File {
		t.only = filepath.Base(d.Path)
	}
	return t
}

// Follow begins to follow it.
func (d *Directory) Follow() (*tree.Follower, error) {
	if d.File {
		return tree.FollowFile(d.Path)
	}
	if d.Tmpfs != "" {
		return d.followTmpfs()
	}
	f, err := tree.Follow(d.Path)
	if err != nil || d.Ploop == "" {
		return f, err
	}
	f.Unseen = d.unseen
	return f, nil
}

// unseen is the file that the kernel of a ploop disk writes to now. The copy of an image
// that is in use is one that is closed.
func (d *Directory) unseen() ([]tree.Unseen, error) {
	top, err := ploop.Top(filepath.Join(d.Path, d.Ploop))
	if err != nil {
		return nil, err
	}
	u := tree.Unseen{Name: filepath.Join(d.Ploop, top.File)}
	if !top.Plain {
		u.Begins = func(first []byte) { ploop.ClearInUse(first) }
	}
	return []tree.Unseen{u}, nil
}

// Empty reports whether there is nothing in it.
func (d *Directory) Empty() (bool, error) {
	if d.File {
		return tree.EmptyFile(d.Path)
	}
	return tree.Empty(d.Path)
}

// Clear takes all that is in it away, and leaves it there.
func (d *Directory) Clear() error {
	if d.File {
		return tree.ClearFile(d.Path)
	}
	return tree.Clear(d.Path)
}

// Digest reads all of it, and tells how many bytes that were.
func (d *Directory) Digest(ctx context.Context) (string, int64, error) {
	if d.File {
		return tree.DigestFile(ctx, d.Path)
	}
	if d.Ploop == "" {
		return tree.Digest(ctx, d.Path)
	}
	all, err := d.unseen()
	if err != nil {
		return "", 0, err
	}
	return tree.Digest(ctx, d.Path, all...)
}

func (d *Directory) check() error {
	switch {
	case !filepath.IsAbs(d.Path):
		return fmt.Errorf("path %q is not absolute", d.Path)
	case d.Tmpfs != "" && (d.Name != TmpfsName(d.Member, d.Tmpfs) || filepath.Clean("/"+d.Tmpfs) != d.Tmpfs):
		return fmt.Errorf("tmpfs %q is not the clean and absolute path that the name has", d.Tmpfs)
	case d.Tmpfs == "" && d.Device+d.Member != "" || d.Tmpfs != "" && (d.File || d.Ploop != ""):
		return errors.New("device and member are for a tmpfs, and file and ploop are not")
	case d.Size < 0:
		return fmt.Errorf("size %d bytes", d.Size)
	case d.Ploop != "" && (d.File || !filepath.IsLocal(d.Ploop) || filepath.Clean(d.Ploop) != d.Ploop):
		return fmt.Errorf("ploop %q is no folder in it", d.Ploop)
	}
	return nil
}
