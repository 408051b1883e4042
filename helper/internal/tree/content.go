package tree

import (
	"archive/tar"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// file sends a file with its content.
func (p *pass) file(parent int, base, rel string, before *unix.Stat_t, h *tar.Header, path string) error {
	fd, err := unix.Openat(parent, base, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NOATIME|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if absent(err) {
		return nil
	} else if err != nil {
		return p.error(rel, err)
	}
	f := os.NewFile(uintptr(fd), rel)
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return p.error(rel, err)
	}
	if st.Ino != before.Ino || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil // another one took its name
	}
	h.Typeflag = tar.TypeReg
	fill(h, &st)
	if h.PAXRecords, err = xattrs(path); gone(err) {
		return nil
	} else if err != nil {
		return p.error(rel, err)
	}
	if err := noteFlags(fd, h); err != nil {
		return p.error(rel, err)
	}
	if u := p.unseen[rel]; u != nil {
		return p.unseenFile(u, f, rel, &st, h)
	}
	pieces := []piece{{0, st.Size}}
	if st.Blocks*512 < st.Size {
		if pieces, err = extents(fd, st.Size); err != nil {
			return p.error(rel, err)
		}
	}
	table := layOut(h, st.Size, pieces)
	p.sent(rel, &st)
	if err := p.out.WriteHeader(h); err != nil {
		return p.error(rel, err)
	}
	if _, err := p.out.Write(table); err != nil {
		return p.error(rel, err)
	}
	for _, c := range pieces {
		if err := p.copy(f, c); err != nil {
			return p.error(rel, err)
		}
	}
	return nil
}

// copy sends one piece of a file. The header has promised its size: where the file
// has shrunk since, zeroes take the place. It has a new change time then.
func (p *pass) copy(f *os.File, c piece) error {
	for c.length > 0 {
		b := p.buf[:min(int64(len(p.buf)), c.length)]
		n, err := f.ReadAt(b, c.off)
		if err != nil && err != io.EOF {
			return err
		}
		clear(b[n:])
		if _, err := p.out.Write(b); err != nil {
			return err
		}
		c.off += int64(len(b))
		c.length -= int64(len(b))
		p.stats.Bytes += int64(len(b))
		if p.Count != nil {
			p.Count(int64(len(b)))
		}
	}
	return nil
}
