package tree

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"

	"golang.org/x/sys/unix"
)

// An existing entry is left alone: one that comes unchanged changes nothing. It comes
// when the sender was not sure.

// alike reports whether the existing file of that name differs from the entry in
// nothing that can be seen without reading it. Times of access do not count, and no
// times of a folder: it gets them when all its entries have come.
func alike(root, parent int, base string, h *tar.Header) (bool, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(parent, base, &st, unix.AT_SYMLINK_NOFOLLOW); absent(err) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	if h.Typeflag == tar.TypeLink {
		return alikeLinks(root, h.Linkname, &st)
	}
	kinds := map[byte]uint32{
		tar.TypeDir: unix.S_IFDIR, tar.TypeReg: unix.S_IFREG, tar.TypeSymlink: unix.S_IFLNK,
		tar.TypeChar: unix.S_IFCHR, tar.TypeBlock: unix.S_IFBLK, tar.TypeFifo: unix.S_IFIFO,
		typeSocket: unix.S_IFSOCK,
	}
	kind := st.Mode & unix.S_IFMT
	if kind == unix.S_IFREG && st.Nlink > 1 {
		return false, nil // the other names may be to be other files by now
	}
	if kind != kinds[h.Typeflag] || int(st.Uid) != h.Uid || int(st.Gid) != h.Gid || kind != unix.S_IFDIR && st.Mtim != stampFrom(h)[1] {
		return false, nil
	}
	switch kind {
	case unix.S_IFLNK:
		target := make([]byte, len(h.Linkname)+1)
		if n, err := unix.Readlinkat(parent, base, target); err != nil || string(target[:n]) != h.Linkname {
			return false, err
		}
	case unix.S_IFCHR, unix.S_IFBLK:
		if st.Rdev != unix.Mkdev(uint32(h.Devmajor), uint32(h.Devminor)) {
			return false, nil
		}
	}
	if kind != unix.S_IFLNK && st.Mode&^unix.S_IFMT != permissions(h) {
		return false, nil
	}
	if hasFlags(st.Mode) {
		comes, err := flagsFrom(h)
		if err != nil {
			return false, err
		}
		if had, err := flagsAt(parent, base); err != nil || (had^comes)&exactFlags != 0 {
			return false, err
		}
	}
	return alikeXattrs(parent, base, h)
}

// alikeLinks compares a name with another of the same file.
func alikeLinks(root int, linkname string, st *unix.Stat_t) (same bool, err error) {
	err = at(root, linkname, func(dir int, old string) error {
		var first unix.Stat_t
		err := unix.Fstatat(dir, old, &first, unix.AT_SYMLINK_NOFOLLOW)
		same = err == nil && first.Dev == st.Dev && first.Ino == st.Ino
		return err
	})
	return same, err
}

// alikeXattrs compares the extended attributes.
func alikeXattrs(parent int, base string, h *tar.Header) (bool, error) {
	has, err := xattrs(fmt.Sprintf("/proc/self/fd/%d/%s", parent, base))
	if err != nil {
		return false, err
	}
	wanted := map[string]string{}
	for k, v := range h.PAXRecords {
		if len(k) > len(xattrPrefix) && k[:len(xattrPrefix)] == xattrPrefix {
			wanted[k] = v
		}
	}
	if _, comes := wanted[xattrPrefix+hostsOwn]; !comes {
		delete(has, xattrPrefix+hostsOwn)
	}
	return maps.Equal(has, wanted), nil
}

// replace lays a file's content down beside the one that has its name, and puts
// it in that one's place if they differ.
func replace(parent int, base string, r io.Reader, h *tar.Header) (changed bool, err error) {
	fd, err := unix.Openat(parent, ".", unix.O_RDWR|unix.O_TMPFILE|unix.O_CLOEXEC, 0o600)
	if errors.Is(err, unix.EOPNOTSUPP) { // a file system without nameless files
		return true, lay(-1, parent, base, r, h)
	} else if err != nil {
		return false, err
	}
	spare := os.NewFile(uintptr(fd), base)
	defer spare.Close()
	if err := putTogether(spare, r, h); err != nil {
		return false, err
	}
	fd, err = unix.Openat(parent, base, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NOATIME|unix.O_CLOEXEC, 0)
	if err != nil {
		return false, err
	}
	old := os.NewFile(uintptr(fd), base)
	defer old.Close()
	same, err := sameContent(old, spare)
	if err != nil || same {
		return false, err
	}
	if err := removeAt(parent, base); err != nil {
		return false, err
	}
	return true, unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", spare.Fd()), parent, base, unix.AT_SYMLINK_FOLLOW)
}

func sameContent(a, b *os.File) (bool, error) {
	var sizes [2]int64
	for i, f := range []*os.File{a, b} {
		info, err := f.Stat()
		if err != nil {
			return false, err
		}
		sizes[i] = info.Size()
	}
	if sizes[0] != sizes[1] {
		return false, nil
	}
	one, other := make([]byte, 64<<10), make([]byte, 64<<10)
	for off := int64(0); off < sizes[0]; {
		n := min(int64(len(one)), sizes[0]-off)
		for _, r := range []struct {
			f *os.File
			b []byte
		}{{a, one[:n]}, {b, other[:n]}} {
			if _, err := r.f.ReadAt(r.b, off); err != nil {
				return false, err
			}
		}
		if !bytes.Equal(one[:n], other[:n]) {
			return false, nil
		}
		off += n
	}
	return true, nil
}
