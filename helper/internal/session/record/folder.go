package record

import (
	"context"
	"fmt"
	"path/filepath"

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
	return tree.Follow(d.Path)
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
	return tree.Digest(ctx, d.Path)
}

func (d *Directory) check() error {
	switch {
	case !filepath.IsAbs(d.Path):
		return fmt.Errorf("path %q is not absolute", d.Path)
	case d.Size < 0:
		return fmt.Errorf("size %d bytes", d.Size)
	}
	return nil
}
