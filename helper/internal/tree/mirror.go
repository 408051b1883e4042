package tree

import (
	"archive/tar"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"iter"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/watch"
)

// Mirror is a folder on the sending side, and the other side's content of it.
type Mirror struct {
	// Count, if it is set, is told of each piece of content that was read.
	Count func(bytes int64)
	// Apart, if it is set, says which entries at the top the other side gets in
	// another way. They are named, so that they are not removed there, and not sent.
	Apart func(name string) bool
	// Filled says that the other side may hold something from the beginning: what is not
	// in the folder is removed there.
	Filled bool

	path  string
	root  int    // the folder, open
	only  string // the one file in it that is meant; empty: everything
	dev   uint64
	begun bool
	// timeless: its file system is a tmpfs, see timeless.go.
	timeless bool

	seed maphash.Seed
	held map[uint64]held     // by inode
	also map[uint64][]string // the further names of files that have several

	unseen map[string]*unseen // those whose writes are not told of, by name
}

// held is the other side's content of one file.
type held struct {
	mark uint64 // the stat at the time it was sent
	name string
}

// The lowest bits of a mark; the others are a digest of the stat.
const (
	markTrusted = 1 << iota // the same mark means the same content
	markOld                 // and also if an event about it was lost
	markBits    = markTrusted | markOld
)

// Lost is how old a change must be for its time to be trusted where events may
// have been lost: a write that is stuck for longer than that, after it has set
// the time, would be missed.
const Lost = time.Minute

// Changes names the entries that may have changed since the pass before.
type Changes struct {
	watch.Set
	InUse []watch.Use
	Since time.Time // from then on, changes may go on: InUse was looked at after it
}

// Stats counts the work of one pass.
type Stats struct {
	Entries int   // that were sent whole
	Removed int   // that were named to be removed
	Bytes   int64 // of content
}

// Open begins with a folder of which the other side holds nothing.
func Open(path string) (*Mirror, error) {
	root, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("tree: %s: %w", path, err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(root, &st); err != nil {
		unix.Close(root)
		return nil, fmt.Errorf("tree: %s: %w", path, err)
	}
	timeless, err := isTmpfs(root)
	if err != nil {
		unix.Close(root)
		return nil, fmt.Errorf("tree: %s: %w", path, err)
	}
	return &Mirror{path: path, root: root, dev: st.Dev, timeless: timeless, seed: maphash.MakeSeed(), held: map[uint64]held{}, also: map[uint64][]string{}, unseen: map[string]*unseen{}}, nil
}

// AtTop calls look with the open folder.
func (m *Mirror) AtTop(look func(fd int) error) error { return look(m.root) }

// Close gives the folder back.
func (m *Mirror) Close() error { return unix.Close(m.root) }

// Knows reports whether a file of this inode was sent before.
func (m *Mirror) Knows(inode uint64) bool {
	_, ok := m.held[inode]
	return ok
}

// Everything writes a pass that looks at every entry: the first time all of them, and
// then those that the other side holds with other content, and the removed ones.
// Changes that are younger than c.Since, or of files in c.InUse by asynchronous I/O,
// will count as changed in the next pass.
func (m *Mirror) Everything(w io.Writer, c Changes) (Stats, error) {
	p := m.pass(w, c)
	p.listing = m.begun || m.Filled
	if m.only != "" {
		return p.stats, errors.Join(p.single(), p.close())
	}
	var st unix.Stat_t
	if err := unix.Fstat(m.root, &st); err != nil {
		return p.stats, m.error(".", err)
	}
	if err := p.folder(m.root, "", ".", &st); err != nil {
		return p.stats, err
	}
	m.begun = true
	return p.stats, p.close()
}

// Some writes a pass that looks only where c says that something may have
// changed. It comes after Everything.
func (m *Mirror) Some(w io.Writer, c Changes) (Stats, error) {
	p := m.pass(w, c)
	e, err := p.plan()
	if err != nil {
		return p.stats, err
	}
	if err := p.carryOut(e); err != nil {
		return p.stats, err
	}
	return p.stats, p.close()
}

// Note assumes that the other side holds everything in the folder: another program is
// about to copy it.
func (m *Mirror) Note(c Changes) error {
	_, err := m.Everything(nil, c)
	return err
}

// List names the entries that Some would send or remove, for another program to copy.
func (m *Mirror) List(c Changes) ([]string, error) {
	p := m.pass(nil, c)
	e, err := p.plan()
	if err != nil {
		return nil, err
	}
	named := map[string]bool{}
	for rel := range e.send {
		named[rel] = true
	}
	absentees := []string{}
	for dir, names := range e.gone {
		for _, name := range names {
			absentees = append(absentees, join(dir, name))
		}
	}
	if len(e.only) > 0 {
		for name := range m.every() { // the entries of the folders that these replaced
			if !named[name] && replaced(e.only, name) {
				absentees = append(absentees, name)
			}
		}
	}
	for _, name := range absentees {
		if err := m.topmostAbsent(name, named); err != nil {
			return nil, err
		}
	}
	if err := p.carryOut(e); err != nil {
		return nil, err
	}
	return sorted(named), nil
}

// topmostAbsent names the highest folder above an entry that is not there any
// more, or the entry itself; nothing if it is there.
func (m *Mirror) topmostAbsent(rel string, named map[string]bool) error {
	highest := ""
	for ; rel != "."; rel, _ = split(rel) {
		if _, err := m.stat(rel); err == nil {
			break
		} else if !absent(err) {
			return m.error(rel, err)
		}
		highest = rel
	}
	if highest != "" {
		named[highest] = true
	}
	return nil
}

// every is each name that the other side has.
func (m *Mirror) every() iter.Seq[string] {
	return func(yield func(string) bool) {
		for ino := range m.held {
			for _, name := range m.names(ino) {
				if !yield(name) {
					return
				}
			}
		}
	}
}

// replaced reports whether one of the folders above an entry is among these.
func replaced(folders map[string][]string, rel string) bool {
	for rel != "." {
		rel, _ = split(rel)
		if _, ok := folders[rel]; ok {
			return true
		}
	}
	return false
}

// Weigh is about how many bytes a pass over these entries would send.
func (m *Mirror) Weigh(touched []watch.Touch) (n int64) {
	for _, t := range touched {
		if st, err := m.stat(t.Path); err == nil && st.Mode&unix.S_IFMT == unix.S_IFREG && t.How != watch.Closed && m.unseen[t.Path] == nil {
			n += min(st.Size, st.Blocks*512)
		}
	}
	return n
}

// pass is one walk.
type pass struct {
	*Mirror
	Changes
	out     *tar.Writer // nil: nothing is sent, only noted
	stats   Stats
	async   map[uint64]bool   // in use by asynchronous I/O
	listing bool              // list a folder's entries, so that the other side removes the rest
	first   map[uint64]string // inode of a file with several names → the one that was sent in this pass
	buf     []byte
}

func (m *Mirror) pass(w io.Writer, c Changes) *pass {
	p := &pass{Mirror: m, Changes: c, async: map[uint64]bool{}, first: map[uint64]string{}}
	if w != nil {
		p.out, p.buf = tar.NewWriter(w), make([]byte, 256<<10)
	}
	for _, u := range c.InUse {
		p.async[u.Inode] = p.async[u.Inode] || u.Async
	}
	return p
}

func (p *pass) close() error {
	if p.out == nil {
		return nil
	}
	return p.out.Close()
}

func (m *Mirror) error(rel string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("tree: %s in %s: %w", rel, m.path, err)
}

// absent reports whether an error means that there is nothing of this name, or
// that it leads out of the folder.
func absent(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) || errors.Is(err, unix.EXDEV)
}

func (m *Mirror) stat(rel string) (*unix.Stat_t, error) {
	var st unix.Stat_t
	err := at(m.root, rel, func(parent int, base string) error { return unix.Fstatat(parent, base, &st, unix.AT_SYMLINK_NOFOLLOW) })
	return &st, err
}

// mark is a digest of a file's stat.
func (m *Mirror) mark(st *unix.Stat_t) uint64 {
	var b [56]byte
	for i, v := range []uint64{st.Ino, uint64(st.Mode), uint64(st.Size), uint64(st.Ctim.Sec), uint64(st.Ctim.Nsec), uint64(st.Uid)<<32 | uint64(st.Gid), st.Rdev} {
		binary.LittleEndian.PutUint64(b[8*i:], v)
	}
	return maphash.Bytes(m.seed, b[:]) &^ markBits
}

func severalNames(st *unix.Stat_t) bool {
	return st.Nlink > 1 && st.Mode&unix.S_IFMT != unix.S_IFDIR
}

// names are those under which the other side has a file.
func (m *Mirror) names(inode uint64) []string {
	h, ok := m.held[inode]
	if !ok {
		return nil
	}
	return append([]string{h.name}, m.also[inode]...)
}

// keep notes the content of an entry that the other side will hold after this pass.
// The stat is of before its content was read.
func (p *pass) keep(rel string, st *unix.Stat_t) {
	mark := p.mark(st)
	at := time.Unix(st.Ctim.Unix())
	if !p.async[st.Ino] && at.Before(p.Since.Add(-Settle)) {
		mark |= markTrusted
		if at.Before(p.Since.Add(-Lost)) {
			mark |= markOld
		}
	}
	p.held[st.Ino] = held{mark, rel}
	delete(p.also, st.Ino)
}

// changed reports whether the other side may hold other content under this name. A
// note without the bit of need does not count.
func (p *pass) changed(rel string, st *unix.Stat_t, need uint64) bool {
	if u := p.unseen[rel]; u != nil && u.due(st) || need == markOld && p.tellsNothing(st) {
		return true
	}
	h, ok := p.held[st.Ino]
	if !ok || h.mark&need == 0 || h.mark&^markBits != p.mark(st) {
		return true
	}
	return h.name != rel && !slices.Contains(p.also[st.Ino], rel)
}

func sorted[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// folder sends the changes of a folder and of its entries.
func (p *pass) folder(parent int, base, rel string, st *unix.Stat_t) error {
	if p.changed(rel, st, markOld) {
		if there, err := p.try(parent, base, rel, st); err != nil || !there {
			return err
		}
	}
	fd := parent
	if base != "" {
		var err error
		if fd, err = unix.Openat(parent, base, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_NOATIME|unix.O_CLOEXEC, 0); absent(err) {
			return nil
		} else if err != nil {
			return p.error(rel, err)
		}
		defer unix.Close(fd)
	}
	names, err := entries(fd)
	if absent(err) && rel != "." {
		return nil // it was removed in the meantime
	}
	if err != nil {
		return p.error(rel, err)
	}
	if p.listing {
		if err := p.list(typeOnly, rel, names); err != nil {
			return err
		}
	}
	for _, name := range names {
		if rel == "." && p.Apart != nil && p.Apart(name) {
			continue
		}
		below := join(rel, name)
		var st unix.Stat_t
		if err := unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW); absent(err) {
			continue
		} else if err != nil {
			return p.error(below, err)
		}
		// Files of an overlay have other numbers than its folders.
		if st.Dev != p.dev && (st.Mode&unix.S_IFMT == unix.S_IFDIR || p.timeless) {
			return fmt.Errorf("tree: another file system is mounted on %s in %s: unmount it, or have it moved by itself", below, p.path)
		}
		switch {
		case st.Mode&unix.S_IFMT == unix.S_IFDIR:
			err = p.folder(fd, name, below, &st)
		case p.changed(below, &st, markOld):
			err = p.entry(fd, name, below, &st)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// entries returns a folder's entries, sorted.
func entries(dir int) ([]string, error) {
	fd, err := unix.Openat(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOATIME|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), ".")
	defer f.Close()
	names, err := f.Readdirnames(-1)
	slices.Sort(names)
	return names, err
}

func join(dir, name string) string {
	if dir == "." {
		return name
	}
	return dir + "/" + name
}

// list writes a list of names in one folder.
func (p *pass) list(kind byte, dir string, names []string) error {
	if p.out == nil {
		return nil
	}
	data := strings.Join(names, "\x00")
	h := &tar.Header{Typeflag: kind, Name: dir, Size: int64(len(data)), Format: tar.FormatPAX}
	if err := p.out.WriteHeader(h); err != nil {
		return p.error(dir, err)
	}
	_, err := io.WriteString(p.out, data)
	return p.error(dir, err)
}
