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

	"github.com/livefleet/handover/helper/internal/diskfull"
)

// Unpack reads the stream of a pass and lays its entries down below root, which must
// exist. Entries replace existing ones of their name; a folder stays and gets the new
// owner, mode and times.
func Unpack(root string, r io.Reader) error {
	return UnpackNoting(root, r, func(string, bool) {})
}

// UnpackNoting is Unpack, and names every entry that it has laid down, and every
// folder that it has removed something from or given other times: the input of Sync.
// Only changes of a folder's times are not seen.
func UnpackNoting(root string, r io.Reader, laid func(name string, seen bool)) error {
	return UnpackOnly(root, "", r, laid)
}

// UnpackOnly is UnpackNoting, and takes, where only is given, nothing but a file of
// that name at the top.
func UnpackOnly(root, only string, r io.Reader, laid func(name string, seen bool)) error {
	return diskfull.Explain(root, unpackOnly(root, only, r, laid))
}

func unpackOnly(root, only string, r io.Reader, laid func(name string, seen bool)) error {
	dir, err := openRoot(root)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	t := tar.NewReader(r)
	stamps, flags := map[string]stamp{}, flagged{}
	for {
		h, err := t.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return fmt.Errorf("tree: the stream for %s: %w", root, err)
		}
		if only != "" && (h.Typeflag != tar.TypeReg || h.Name != only) {
			return fmt.Errorf("tree: %s in %s: the stream is to bring the file %s alone", h.Name, root, only)
		}
		folder, do := filepath.Dir(filepath.Clean(h.Name)), unpack
		if h.Typeflag == typeGone || h.Typeflag == typeOnly {
			folder, do = filepath.Clean(h.Name), tidy
		}
		if err := errors.Join(stampOf(dir, folder, stamps), flags.open(dir, folder)); err != nil {
			return fmt.Errorf("tree: %s in %s: %w", folder, root, err)
		}
		changed, err := do(dir, t, h)
		if err != nil {
			return fmt.Errorf("tree: %s in %s: %w", h.Name, root, err)
		}
		if changed {
			laid(h.Name, true)
		}
		if h.Typeflag == tar.TypeDir {
			stamps[filepath.Clean(h.Name)] = stampFrom(h)
		}
		if err := flags.note(dir, h); err != nil {
			return fmt.Errorf("tree: %s in %s: %w", h.Name, root, err)
		}
	}
	for name, s := range stamps {
		err := at(dir, name, func(parent int, base string) error {
			changed, err := s.set(parent, base)
			if changed {
				laid(name, false)
			}
			return err
		})
		if err != nil && !absent(err) {
			return fmt.Errorf("tree: %s in %s: %w", name, root, err)
		}
	}
	if err := flags.set(dir); err != nil {
		return fmt.Errorf("tree: %w in %s", err, root)
	}
	// The rest that the tar reader leaves behind the last entry belongs to the
	// stream.
	if _, err := io.Copy(io.Discard, r); err != nil {
		return fmt.Errorf("tree: the stream for %s: %w", root, err)
	}
	return nil
}

// stamp are the times that an entry is to have.
type stamp [2]unix.Timespec

func stampFrom(h *tar.Header) stamp {
	access := h.AccessTime
	if access.IsZero() {
		access = h.ModTime
	}
	return stamp{timespec(access), timespec(h.ModTime)}
}

// stampOf notes the times of a folder in which something is about to be laid
// down: that changes them, and only the folder's own entry in the stream may.
func stampOf(root int, folder string, stamps map[string]stamp) error {
	if _, noted := stamps[folder]; noted {
		return nil
	}
	err := at(root, folder, func(parent int, base string) error {
		var st unix.Stat_t
		if err := unix.Fstatat(parent, base, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return err
		}
		stamps[folder] = stamp{st.Atim, st.Mtim}
		return nil
	})
	if absent(err) {
		return nil // a later entry there is reported
	}
	return err
}

// set reports whether the file of that name was written to at another time.
func (s stamp) set(parent int, base string) (changed bool, err error) {
	var st unix.Stat_t
	if err := unix.Fstatat(parent, base, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return false, fmt.Errorf("its times: %w", err)
	}
	if (stamp{st.Atim, st.Mtim}) == s {
		return false, nil
	}
	if err := unix.UtimesNanoAt(parent, base, s[:], unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return false, fmt.Errorf("its times: %w", err)
	}
	return st.Mtim != s[1], nil
}

// Empty reports whether there is nothing in a folder.
func Empty(root string) (bool, error) {
	dir, err := openRoot(root)
	if err != nil {
		return false, err
	}
	defer unix.Close(dir)
	names, err := entries(dir)
	if err != nil {
		return false, fmt.Errorf("tree: %s: %w", root, err)
	}
	return len(names) == 0, nil
}

// Clear removes everything that is in a folder.
func Clear(root string) error {
	dir, err := openRoot(root)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	if _, err := unlock(dir, "."); err != nil {
		return fmt.Errorf("tree: emptying %s: %w", root, err)
	}
	names, err := entries(dir)
	for _, name := range names {
		err = errors.Join(err, removeAt(dir, name))
	}
	if err != nil {
		return fmt.Errorf("tree: emptying %s: %w", root, err)
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

var errLeadsOut = errors.New("the name leads out of the folder")

// at calls do with the folder that holds the entry, opened so that no link and
// no ".." on the way leads anywhere else.
func at(root int, name string, do func(parent int, base string) error) error {
	clean := filepath.Clean(name)
	if clean == "." {
		return do(root, ".")
	}
	if filepath.IsAbs(clean) || clean == ".." || strings.HasPrefix(clean, "../") {
		return errLeadsOut
	}
	parent, err := openFolder(root, filepath.Dir(clean), unix.O_PATH)
	if err != nil {
		return fmt.Errorf("the folder above it: %w", err)
	}
	defer unix.Close(parent)
	return do(parent, filepath.Base(clean))
}

// openFolder opens a folder below root, so that nothing on the way leads
// anywhere else.
func openFolder(root int, name string, flags uint64) (int, error) {
	for {
		fd, err := unix.Openat2(root, name, &unix.OpenHow{
			Flags:   flags | unix.O_DIRECTORY | unix.O_CLOEXEC,
			Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
		})
		if !errors.Is(err, unix.EAGAIN) { // something was moved while the kernel followed the path
			return fd, err
		}
	}
}

// maxNames bounds the data of a list of names, which is held in memory.
const maxNames = 1 << 30

// tidy removes from a folder the names in a list, or those that it lacks, and reports
// whether there was anything to remove.
func tidy(root int, r io.Reader, h *tar.Header) (changed bool, err error) {
	if h.Size > maxNames {
		return false, fmt.Errorf("a list of names of %d bytes", h.Size)
	}
	data, err := io.ReadAll(r)
	if err != nil {
		return false, err
	}
	if clean := filepath.Clean(h.Name); filepath.IsAbs(clean) || clean == ".." || strings.HasPrefix(clean, "../") {
		return false, errLeadsOut
	}
	dir, err := openFolder(root, filepath.Clean(h.Name), unix.O_RDONLY)
	if absent(err) {
		return false, nil // nothing is in it, either
	}
	if err != nil {
		return false, err
	}
	defer unix.Close(dir)
	named := map[string]bool{}
	for name := range strings.SplitSeq(string(data), "\x00") {
		if strings.Contains(name, "/") || name == "." || name == ".." {
			return false, errLeadsOut
		}
		named[name] = true
	}
	found, err := entries(dir)
	if err != nil {
		return false, err
	}
	for _, name := range found {
		if named[name] == (h.Typeflag == typeGone) {
			changed = true
			if err := removeAt(dir, name); err != nil {
				return true, fmt.Errorf("removing %s: %w", name, err)
			}
		}
	}
	return changed, nil
}

// unpack lays one entry down, and reports whether that changed anything.
func unpack(root int, r io.Reader, h *tar.Header) (changed bool, err error) {
	err = at(root, h.Name, func(parent int, base string) error {
		same, err := alike(root, parent, base, h)
		switch {
		case err != nil:
			return err
		case same && h.Typeflag != tar.TypeReg:
			return nil
		case same:
			if changed, err = replace(parent, base, r, h); err != nil || !changed {
				return err
			}
		default:
			changed = true
			if _, err := unlock(parent, base); err != nil && !absent(err) {
				return err
			}
			if err := lay(root, parent, base, r, h); err != nil {
				return err
			}
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
		if err := attributes(fmt.Sprintf("/proc/self/fd/%d/%s", parent, base), h.PAXRecords); err != nil {
			return err
		}
		_, err = stampFrom(h).set(parent, base)
		return err
	})
	return changed, err
}

// hostsOwn is an attribute that a host gives its files itself: one that did not
// come along stays.
const hostsOwn = "security.selinux"

// attributes gives an entry these extended attributes and no others: it may have
// some from a default access list of its folder, or from before.
func attributes(path string, records map[string]string) error {
	has, err := xattrs(path)
	if err != nil {
		return err
	}
	for k := range has {
		name, _ := strings.CutPrefix(k, xattrPrefix)
		if _, stays := records[k]; !stays && name != hostsOwn {
			if err := unix.Lremovexattr(path, name); err != nil && !errors.Is(err, unix.ENODATA) {
				return fmt.Errorf("its extended attribute %s: removing it: %w", name, err)
			}
		}
	}
	for k, v := range records {
		name, ok := strings.CutPrefix(k, xattrPrefix)
		if old, there := has[k]; !ok || there && old == v {
			continue
		}
		if err := unix.Lsetxattr(path, name, []byte(v), 0); err != nil {
			return fmt.Errorf("its extended attribute %s: %w", name, err)
		}
	}
	return nil
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
	if h.Typeflag == typePatch {
		return patch(parent, base, r, h)
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
		return errors.Join(emptyFlags(fd, h), putTogether(f, r, h), f.Close())
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
	case typeSocket:
		return unix.Mknodat(parent, base, unix.S_IFSOCK|permissions(h), 0)
	}
	return fmt.Errorf("an entry of the unknown type %q", h.Typeflag)
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
	if errors.Is(err, unix.EPERM) { // a file that is locked, or a folder
		if _, err := unlock(parent, base); err != nil {
			return fmt.Errorf("%s: %w", base, err)
		}
		err = unix.Unlinkat(parent, base, 0)
	}
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
