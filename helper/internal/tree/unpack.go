package tree

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Unpack reads a stream of Pack and lays its entries down below root, which must
// exist. Entries replace what has their name; a folder stays and gets the new
// owner, mode and times.
func Unpack(root string, r io.Reader) error {
	dir, err := openRoot(root)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	t := tar.NewReader(r)
	type stamp struct {
		name string
		h    *tar.Header
	}
	var folders []stamp // their times last: laying down what is in them changes those
	for {
		h, err := t.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return fmt.Errorf("tree: the stream for %s: %w", root, err)
		}
		if err := unpack(dir, t, h); err != nil {
			return fmt.Errorf("tree: %s in %s: %w", h.Name, root, err)
		}
		if h.Typeflag == tar.TypeDir {
			folders = append(folders, stamp{h.Name, h})
		}
	}
	for i := len(folders) - 1; i >= 0; i-- {
		f := folders[i]
		if err := at(dir, f.name, func(parent int, base string) error { return times(parent, base, f.h) }); err != nil {
			return fmt.Errorf("tree: %s in %s: %w", f.name, root, err)
		}
	}
	// What the tar reader leaves behind the last entry belongs to the stream.
	if _, err := io.Copy(io.Discard, r); err != nil {
		return fmt.Errorf("tree: the stream for %s: %w", root, err)
	}
	return nil
}

// Remove removes the named entries below root, folders with all that is in them.
func Remove(root string, paths []string) error {
	dir, err := openRoot(root)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	for _, p := range paths {
		err := at(dir, p, func(parent int, base string) error { return removeAt(parent, base) })
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("tree: removing %s in %s: %w", p, root, err)
		}
	}
	return nil
}

func openRoot(root string) (int, error) {
	dir, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("tree: %s: %w", root, err)
	}
	return dir, nil
}

// at calls do with the folder that holds the entry, opened so that no link and
// no ".." on the way leads anywhere else.
func at(root int, name string, do func(parent int, base string) error) error {
	clean := filepath.Clean(name)
	if clean == "." {
		return do(root, ".")
	}
	if filepath.IsAbs(clean) || clean == ".." || strings.HasPrefix(clean, "../") {
		return errors.New("the name leads out of the folder")
	}
	parent, err := unix.Openat2(root, filepath.Dir(clean), &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return fmt.Errorf("the folder above it: %w", err)
	}
	defer unix.Close(parent)
	return do(parent, filepath.Base(clean))
}

func unpack(root int, r io.Reader, h *tar.Header) error {
	return at(root, h.Name, func(parent int, base string) error {
		if err := lay(root, parent, base, r, h); err != nil {
			return err
		}
		if h.Typeflag == tar.TypeLink {
			return nil // the same file: its first name brought owner, mode and times
		}
		if err := unix.Fchownat(parent, base, h.Uid, h.Gid, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return fmt.Errorf("its owner: %w", err)
		}
		if h.Typeflag != tar.TypeSymlink {
			// After the owner: a change of owner takes the set-user-id bit away.
			if err := unix.Fchmodat(parent, base, permissions(h), 0); err != nil {
				return fmt.Errorf("its mode: %w", err)
			}
		}
		for k, v := range h.PAXRecords {
			name, ok := strings.CutPrefix(k, xattrPrefix)
			if !ok {
				continue
			}
			if err := unix.Lsetxattr(fmt.Sprintf("/proc/self/fd/%d/%s", parent, base), name, []byte(v), 0); err != nil {
				return fmt.Errorf("its extended attribute %s: %w", name, err)
			}
		}
		return times(parent, base, h)
	})
}

func permissions(h *tar.Header) uint32 { return uint32(h.Mode) & 0o7777 }

// lay makes the entry itself.
func lay(root, parent int, base string, r io.Reader, h *tar.Header) error {
	if h.Typeflag == tar.TypeDir {
		var st unix.Stat_t
		err := unix.Fstatat(parent, base, &st, unix.AT_SYMLINK_NOFOLLOW)
		if err == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR {
			return nil
		}
		if err == nil {
			err = removeAt(parent, base)
		}
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
		return unix.Mkdirat(parent, base, 0o700)
	}
	if base == "." {
		return errors.New("the folder itself comes as something else than a folder")
	}
	if err := removeAt(parent, base); err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	dev := int(unix.Mkdev(uint32(h.Devmajor), uint32(h.Devminor)))
	switch h.Typeflag {
	case tar.TypeReg:
		fd, err := unix.Openat(parent, base, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
		if err != nil {
			return err
		}
		f := os.NewFile(uintptr(fd), base)
		_, err = io.Copy(f, r)
		return errors.Join(err, f.Close())
	case tar.TypeSymlink:
		return unix.Symlinkat(h.Linkname, parent, base)
	case tar.TypeLink:
		return at(root, h.Linkname, func(dir int, old string) error { return unix.Linkat(dir, old, parent, base, 0) })
	case tar.TypeChar:
		return unix.Mknodat(parent, base, unix.S_IFCHR|permissions(h), dev)
	case tar.TypeBlock:
		return unix.Mknodat(parent, base, unix.S_IFBLK|permissions(h), dev)
	case tar.TypeFifo:
		return unix.Mknodat(parent, base, unix.S_IFIFO|permissions(h), 0)
	}
	return fmt.Errorf("an entry of the unknown type %q", h.Typeflag)
}

func times(parent int, base string, h *tar.Header) error {
	access := h.AccessTime
	if access.IsZero() {
		access = h.ModTime
	}
	ts := []unix.Timespec{timespec(access), timespec(h.ModTime)}
	if err := unix.UtimesNanoAt(parent, base, ts, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return fmt.Errorf("its times: %w", err)
	}
	return nil
}

func timespec(t time.Time) unix.Timespec {
	ts, err := unix.TimeToTimespec(t)
	if err != nil {
		return unix.Timespec{}
	}
	return ts
}

// removeAt removes one entry, a folder with everything in it, never through a
// link.
func removeAt(parent int, base string) error {
	err := unix.Unlinkat(parent, base, 0)
	if !errors.Is(err, unix.EISDIR) && !errors.Is(err, unix.EPERM) {
		return err
	}
	fd, err := unix.Openat(parent, base, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	d := os.NewFile(uintptr(fd), base)
	names, err := d.Readdirnames(-1)
	for _, n := range names {
		err = errors.Join(err, removeAt(fd, n))
	}
	if err := errors.Join(err, d.Close()); err != nil {
		return err
	}
	return unix.Unlinkat(parent, base, unix.AT_REMOVEDIR)
}
