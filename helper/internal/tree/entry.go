package tree

import (
	"archive/tar"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// entry sends one entry. An entry that vanishes under way, or becomes something else,
// is left out: in presync that is an event, or seen in the next pass, and in the
// freeze nothing changes any more.
func (p *pass) entry(parent int, base, rel string, st *unix.Stat_t) error {
	kind := st.Mode & unix.S_IFMT
	if base == "" {
		base = "."
	}
	if p.out == nil {
		p.sent(rel, st)
		return nil
	}
	if severalNames(st) {
		if first, ok := p.first[st.Ino]; ok {
			p.sent(rel, st)
			return p.error(rel, p.out.WriteHeader(&tar.Header{Typeflag: tar.TypeLink, Name: rel, Linkname: first, Format: tar.FormatPAX}))
		}
	}
	path := fmt.Sprintf("/proc/self/fd/%d/%s", parent, base)
	h := &tar.Header{Name: rel, Format: tar.FormatPAX}
	switch kind {
	case unix.S_IFREG:
		return p.file(parent, base, rel, st, h, path)
	case unix.S_IFDIR:
		h.Typeflag = tar.TypeDir
	case unix.S_IFLNK:
		h.Typeflag = tar.TypeSymlink
		target, err := os.Readlink(path)
		if gone(err) {
			return nil
		} else if err != nil {
			return p.error(rel, err)
		}
		h.Linkname = target
	case unix.S_IFCHR:
		h.Typeflag = tar.TypeChar
	case unix.S_IFBLK:
		h.Typeflag = tar.TypeBlock
	case unix.S_IFIFO:
		h.Typeflag = tar.TypeFifo
	case unix.S_IFSOCK:
		h.Typeflag = typeSocket
	default:
		return p.error(rel, fmt.Errorf("an entry of an unknown kind (mode %o)", st.Mode))
	}
	fill(h, st)
	var err error
	if h.PAXRecords, err = xattrs(path); gone(err) {
		return nil
	} else if err != nil {
		return p.error(rel, err)
	}
	if kind == unix.S_IFDIR {
		if err := noteFlagsAt(parent, base, h); gone(err) {
			return nil
		} else if err != nil {
			return p.error(rel, err)
		}
	}
	p.sent(rel, st)
	return p.error(rel, p.out.WriteHeader(h))
}

// gone is absent, for an entry that vanished under way.
func gone(err error) bool { return absent(err) || errors.Is(err, unix.EINVAL) }

// try sends an entry, and reports whether it was there still. Of a folder that was not
// nothing below may follow, even if it is back by then: the other side does not have
// the folder. Its move is an event of its own, and a later pass looks below it.
func (p *pass) try(parent int, base, rel string, st *unix.Stat_t) (there bool, err error) {
	before := p.stats.Entries
	err = p.entry(parent, base, rel, st)
	return p.stats.Entries > before, err
}

// sent notes that an entry went out under its own name.
func (p *pass) sent(rel string, st *unix.Stat_t) {
	p.stats.Entries++
	if severalNames(st) {
		if _, again := p.first[st.Ino]; again {
			p.also[st.Ino] = append(p.also[st.Ino], rel)
			return
		}
		p.first[st.Ino] = rel
	}
	p.keep(rel, st)
}

func fill(h *tar.Header, st *unix.Stat_t) {
	h.Mode, h.Uid, h.Gid = int64(st.Mode&0o7777), int(st.Uid), int(st.Gid)
	h.ModTime, h.AccessTime = time.Unix(st.Mtim.Unix()), time.Unix(st.Atim.Unix())
	if kind := st.Mode & unix.S_IFMT; kind == unix.S_IFCHR || kind == unix.S_IFBLK {
		h.Devmajor, h.Devminor = int64(unix.Major(st.Rdev)), int64(unix.Minor(st.Rdev))
	}
}
