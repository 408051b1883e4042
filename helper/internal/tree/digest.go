package tree

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/image"
)

// DigestAlgorithm names how a folder's digest is made: the SHA-256 over its entries
// in the order of their names, of each its path, the part of its stat that travels,
// its extended attributes, and the SHA-256 of its content or the path of its link. Of
// files with several names the later ones have the first one's path.
const DigestAlgorithm = "sha256-tree"

// Digest is a digest of everything in a folder that travels, in hexadecimal, and
// how many bytes of content that is. Files that are written to unseen are read as the
// other side is to have them.
func Digest(ctx context.Context, root string, all ...Unseen) (digest string, size int64, err error) {
	return digestOfTree(ctx, root, (*digester).content, all...)
}

// QuickDigest is such a digest for the pause of a workload: of the contents it has digests that
// are made several times as fast, and that no adversary is kept from making alike.
func QuickDigest(ctx context.Context, root string) (string, error) {
	digest, _, err := digestOfTree(ctx, root, (*digester).quickly)
	return digest, err
}

func digestOfTree(ctx context.Context, root string, read reading, all ...Unseen) (digest string, size int64, err error) {
	m, err := Open(root)
	if err != nil {
		return "", 0, err
	}
	defer m.Close()
	for _, u := range all {
		m.unseen[u.Name] = &unseen{Unseen: u}
	}
	d := &digester{Mirror: m, ctx: ctx, read: read, first: map[uint64]string{}}
	d.files, d.ctx = errgroup.WithContext(ctx)
	d.files.SetLimit(runtime.GOMAXPROCS(0))
	var st unix.Stat_t
	err = unix.Fstat(m.root, &st)
	if err == nil {
		err = d.folder(m.root, ".", &st)
	}
	if err = errors.Join(err, d.files.Wait()); err != nil {
		return "", 0, fmt.Errorf("tree: a digest of %s: %w", root, err)
	}
	h := sha256.New()
	for _, l := range d.lines {
		h.Write(l.about)
		h.Write(l.content)
		d.size += l.size
	}
	return hex.EncodeToString(h.Sum(nil)), d.size, nil
}

// reading brings a file's content into a digest.
type reading func(d *digester, h hash.Hash, f *os.File, rel string, size int64) error

// digester is one walk; files are read side by side.
type digester struct {
	*Mirror
	ctx   context.Context
	read  reading
	files *errgroup.Group
	first map[uint64]string
	lines []*line
	size  int64
}

// line is one entry's part of the digest.
type line struct {
	about, content []byte
	size           int64
}

func (d *digester) folder(fd int, rel string, st *unix.Stat_t) error {
	if err := d.entry(fd, ".", rel, st); err != nil {
		return err
	}
	names, err := entries(fd)
	if err != nil {
		return fmt.Errorf("%s: %w", rel, err)
	}
	for _, name := range names {
		below := join(rel, name)
		if err := unix.Fstatat(fd, name, st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return fmt.Errorf("%s: %w", below, err)
		}
		if st.Mode&unix.S_IFMT != unix.S_IFDIR {
			if err := d.entry(fd, name, below, st); err != nil {
				return err
			}
			continue
		}
		sub, err := unix.Openat(fd, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_NOATIME|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("%s: %w", below, err)
		}
		err = d.folder(sub, below, st)
		unix.Close(sub)
		if err != nil {
			return err
		}
	}
	return nil
}

func (d *digester) entry(parent int, base, rel string, st *unix.Stat_t) error {
	kind := st.Mode & unix.S_IFMT
	l := &line{}
	d.lines = append(d.lines, l)
	word := func(s string) {
		l.about = binary.LittleEndian.AppendUint64(l.about, uint64(len(s)))
		l.about = append(l.about, s...)
	}
	word(rel)
	if severalNames(st) {
		if first, again := d.first[st.Ino]; again {
			word(first)
			return nil
		}
		d.first[st.Ino] = rel
	}
	size := st.Size
	if kind != unix.S_IFREG {
		size = 0 // the file system's own affair
	}
	for _, v := range []uint64{uint64(st.Mode), uint64(st.Uid), uint64(st.Gid), st.Rdev, uint64(size), uint64(st.Mtim.Sec), uint64(st.Mtim.Nsec)} {
		l.about = binary.LittleEndian.AppendUint64(l.about, v)
	}
	path := fmt.Sprintf("/proc/self/fd/%d/%s", parent, base)
	x, err := xattrs(path)
	if err != nil {
		return fmt.Errorf("%s: %w", rel, err)
	}
	for _, name := range sorted(x) {
		if name != xattrPrefix+hostsOwn {
			word(name)
			word(x[name])
		}
	}
	if hasFlags(st.Mode) {
		flags, err := flagsAt(parent, base)
		if err != nil {
			return fmt.Errorf("%s: %w", rel, err)
		}
		if flags &= exactFlags; flags != 0 {
			word(flagsRecord)
			word(strconv.FormatUint(uint64(flags), 16))
		}
	}
	switch kind {
	case unix.S_IFLNK:
		target, err := os.Readlink(path)
		if err != nil {
			return fmt.Errorf("%s: %w", rel, err)
		}
		word(target)
	case unix.S_IFREG:
		fd, err := unix.Openat(parent, base, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NOATIME|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("%s: %w", rel, err)
		}
		l.size = size
		d.files.Go(func() error {
			f := os.NewFile(uintptr(fd), rel)
			defer f.Close()
			h := sha256.New()
			if err := d.read(d, h, f, rel, size); err != nil {
				return fmt.Errorf("%s: %w", rel, err)
			}
			l.content = h.Sum(nil)
			return nil
		})
	}
	return nil
}

// content reads a file.
func (d *digester) content(h hash.Hash, f *os.File, rel string, size int64) error {
	u := d.unseen[rel]
	if u == nil {
		return digestFile(d.ctx, h, f, size)
	}
	src, err := u.read(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	if err != nil {
		return err
	}
	defer src.Close()
	buf := image.Buffer(int(part))
	for off := int64(0); off < size; off += part {
		if err := context.Cause(d.ctx); err != nil {
			return err
		}
		b := buf[:min(part, size-off)]
		if err := u.readAt(src, b, off); err != nil {
			return err
		}
		h.Write(b)
	}
	return nil
}

var zeroes [256 << 10]byte

// digestFile reads a file and does not read its holes.
func digestFile(ctx context.Context, h hash.Hash, f *os.File, size int64) error {
	pieces, err := extents(int(f.Fd()), size)
	if err != nil {
		return err
	}
	var at int64
	buf := make([]byte, len(zeroes))
	for _, c := range append(pieces, piece{size, 0}) {
		for ; at < c.off; at += min(c.off-at, int64(len(zeroes))) {
			h.Write(zeroes[:min(c.off-at, int64(len(zeroes)))])
		}
		for end := c.off + c.length; at < end; {
			if err := context.Cause(ctx); err != nil {
				return err
			}
			n, err := f.ReadAt(buf[:min(end-at, int64(len(buf)))], at)
			if n == 0 {
				return fmt.Errorf("at %d of %d bytes: %w", at, size, err)
			}
			h.Write(buf[:n])
			at += int64(n)
		}
	}
	return nil
}
