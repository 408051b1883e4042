package tree

import (
	"archive/tar"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A file's or folder's flags (chattr) travel in this record of its header, in
// hexadecimal; without it there are none. They are set when everything else has
// been laid down: nothing could be written to an immutable file, and nothing into
// an immutable folder.
const flagsRecord = "HANDOVER.flags"

// fate is the fate of a flag.
type fate int

const (
	exact   fate = iota // carried, or the copy fails
	hint                // about how a file is stored: carried where the other file system can have it
	refused             // a read does not give the file's content, or not all of it
)

// inodeFlags is each flag that a file can have, and its fate. The kernel's own notes
// about how a file is stored have no row: the destination's kernel makes its own.
var inodeFlags = []struct {
	bit  uint32
	name string
	fate fate
}{
	{0x00000001, "secure deletion", hint},
	{0x00000002, "undeletable", hint},
	{0x00000004, "compressed", hint},
	{0x00000008, "synchronous", exact},
	{immutable, "immutable", exact},
	{appendOnly, "append only", exact},
	{0x00000040, "no dump", hint},
	{0x00000080, "no access time", hint},
	{0x00000800, "encrypted", refused},
	{0x00004000, "data in the journal", hint},
	{0x00008000, "no tail", hint},
	{folderSync, "synchronous folder", exact},
	{0x00020000, "top of folders", hint},
	{0x00100000, "fs-verity", refused},
	{noCow, "no copy on write", hint},
	{0x40000000, "letter case ignored", refused},
}

const (
	immutable  = 0x10
	appendOnly = 0x20
	folderSync = 0x00010000
	noCow      = 0x00800000
	locks      = immutable | appendOnly
)

// exactFlags and carriedFlags are those that have to travel, and those that do if
// they can. A project's number is the host's own, as the limits are that belong to it;
// so its inheritance is no flag that travels.
var (
	exactFlags   = flagsOf(exact)
	carriedFlags = flagsOf(exact) | flagsOf(hint)
)

func flagsOf(what fate) (mask uint32) {
	for _, f := range inodeFlags {
		if f.fate == what {
			mask |= f.bit
		}
	}
	return mask
}

func flagNames(flags uint32) string {
	var names []string
	for _, f := range inodeFlags {
		if flags&f.bit != 0 {
			names = append(names, f.name)
		}
	}
	return strings.Join(names, ", ")
}

// hasFlags reports whether an entry of this kind can have flags.
func hasFlags(mode uint32) bool {
	return mode&unix.S_IFMT == unix.S_IFREG || mode&unix.S_IFMT == unix.S_IFDIR
}

// openForFlags opens a file or a folder, and nothing else: to open a device can do
// something.
func openForFlags(parent int, base string) (int, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(parent, base, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return -1, err
	}
	if !hasFlags(st.Mode) {
		return -1, unix.ENOTTY
	}
	return unix.Openat(parent, base, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOATIME|unix.O_CLOEXEC, 0)
}

// without reports whether an error means that the file system has no flags.
func without(err error) bool {
	return errors.Is(err, unix.ENOTTY) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS)
}

// getFlags are all flags of an open file, the kernel's own notes as well.
func getFlags(fd int) (uint32, error) {
	flags, err := unix.IoctlGetUint32(fd, unix.FS_IOC_GETFLAGS)
	if without(err) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("its flags (lsattr): %w", err)
	}
	return flags, nil
}

// flagsAt are the flags of an entry that travel.
func flagsAt(parent int, base string) (uint32, error) {
	fd, err := openForFlags(parent, base)
	if without(err) {
		return 0, nil
	} else if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	flags, err := getFlags(fd)
	return flags & carriedFlags, err
}

// setFlags gives an entry these flags, and leaves the kernel's own notes alone.
func setFlags(parent int, base string, want uint32) error {
	fd, err := openForFlags(parent, base)
	if without(err) && want == 0 {
		return nil
	} else if err != nil {
		return err
	}
	defer unix.Close(fd)
	return setFlagsOf(fd, want)
}

func setFlagsOf(fd int, want uint32) error {
	has, err := getFlags(fd)
	if err != nil || has&carriedFlags == want {
		return err
	}
	err = unix.IoctlSetPointerInt(fd, unix.FS_IOC_SETFLAGS, int(has&^carriedFlags|want))
	if without(err) || errors.Is(err, unix.EINVAL) {
		// Without the hints, but for those that are there already.
		err = nil
		if want &= exactFlags; has&exactFlags != want {
			err = unix.IoctlSetPointerInt(fd, unix.FS_IOC_SETFLAGS, int(has&^exactFlags|want))
		}
	}
	if err != nil {
		return fmt.Errorf("its flags (chattr: %s) cannot be set on this file system: %w", flagNames(want), err)
	}
	return nil
}

// unlock takes the flags away that would keep an entry from being changed, and
// tells which an entry had before.
func unlock(parent int, base string) (had uint32, err error) {
	had, err = flagsAt(parent, base)
	if err != nil || had&locks == 0 {
		return had, err
	}
	return had, setFlags(parent, base, had&^locks)
}

// Unlock takes away, from everything in a folder on its file system, the flags that
// keep it from being removed.
func Unlock(root string) error {
	dir, err := unix.Open(root, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC|unix.O_NOATIME, 0)
	if err != nil {
		return fmt.Errorf("tree: %s: %w", root, err)
	}
	defer unix.Close(dir)
	var st unix.Stat_t
	err = unix.Fstat(dir, &st)
	if err == nil {
		_, err = unlock(dir, ".")
	}
	if err == nil {
		err = unlockBelow(dir, st.Dev)
	}
	if err != nil {
		return fmt.Errorf("tree: %s: %w", root, err)
	}
	return nil
}

func unlockBelow(dir int, dev uint64) error {
	names, err := entries(dir)
	for _, name := range names {
		var st unix.Stat_t
		if e := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); absent(e) || e == nil && (st.Dev != dev || !hasFlags(st.Mode)) {
			continue
		} else if e != nil {
			return fmt.Errorf("%s: %w", name, e)
		}
		if _, e := unlock(dir, name); e != nil && !absent(e) {
			err = errors.Join(err, fmt.Errorf("%s: %w", name, e))
		}
		if st.Mode&unix.S_IFMT != unix.S_IFDIR {
			continue
		}
		fd, e := unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NOATIME, 0)
		if e == nil {
			e = errors.Join(unlockBelow(fd, dev), unix.Close(fd))
		}
		if e != nil && !absent(e) {
			err = errors.Join(err, fmt.Errorf("%s: %w", name, e))
		}
	}
	return err
}

// noteFlags writes an open file's flags into its header; the error names those that
// cannot travel.
func noteFlags(fd int, h *tar.Header) error {
	flags, err := getFlags(fd)
	if err != nil {
		return err
	}
	for _, f := range inodeFlags {
		if f.fate == refused && flags&f.bit != 0 {
			return fmt.Errorf("its flag (%s) cannot be carried: copy what it holds to a file without it", f.name)
		}
	}
	if flags &= carriedFlags; flags != 0 {
		if h.PAXRecords == nil {
			h.PAXRecords = map[string]string{}
		}
		h.PAXRecords[flagsRecord] = strconv.FormatUint(uint64(flags), 16)
	}
	return nil
}

// flagsFrom are the flags that an entry is to have.
func flagsFrom(h *tar.Header) (uint32, error) {
	record, ok := h.PAXRecords[flagsRecord]
	if !ok {
		return 0, nil
	}
	flags, err := strconv.ParseUint(record, 16, 32)
	if err != nil || uint32(flags)&^carriedFlags != 0 {
		return 0, fmt.Errorf("its flags are damaged: %q", record)
	}
	return uint32(flags), nil
}

func noteFlagsAt(parent int, base string, h *tar.Header) error {
	fd, err := openForFlags(parent, base)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return noteFlags(fd, h)
}

// emptyFlags sets of a new file the flag that can be set only while it is empty.
func emptyFlags(fd int, h *tar.Header) error {
	flags, err := flagsFrom(h)
	if err != nil || flags&noCow == 0 {
		return err
	}
	return setFlagsOf(fd, noCow)
}

// flagged are the flags that entries are to have when a stream has been laid down,
// by name. Until then nothing that is written to is locked: a further name could
// not be given to a locked file, either.
type flagged map[string]uint32

// open unlocks a folder in which something is about to be laid down.
func (f flagged) open(root int, folder string) error {
	if _, noted := f[folder]; noted {
		return nil
	}
	err := at(root, folder, func(parent int, base string) error {
		had, err := unlock(parent, base)
		if err == nil && had&locks != 0 {
			f[folder] = had
		}
		return err
	})
	if absent(err) {
		return nil
	}
	return err
}

// note takes an entry's flags from its header. A folder that is as it comes may be
// locked, and is about to get its times.
func (f flagged) note(root int, h *tar.Header) error {
	if h.Typeflag != tar.TypeReg && h.Typeflag != tar.TypeDir && h.Typeflag != typePatch {
		return nil
	}
	want, err := flagsFrom(h)
	if err == nil && h.Typeflag == tar.TypeDir {
		err = f.open(root, filepath.Clean(h.Name))
	}
	f[filepath.Clean(h.Name)] = want
	return err
}

// set gives all entries their flags, those below before those above.
func (f flagged) set(root int) error {
	for _, name := range slices.Backward(sorted(f)) {
		err := at(root, name, func(parent int, base string) error { return setFlags(parent, base, f[name]) })
		if err != nil && !absent(err) {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}
