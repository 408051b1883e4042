package tree

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/image"
	"github.com/livefleet/handover/helper/internal/ledger"
)

// A kernel may write to a file past all that tells of writes: no event, no change time,
// and not through the page cache. The top layer of a mounted ploop image is such a file.
// The only way to find such writes is to read all of it, past the cache, and to compare
// it with the sent content. The difference goes as a patch.
//
// As package tracker has it of volumes: a part is compared with its content as it was
// last sent, not as it was last seen.

// Unseen is a file whose writes are not told of.
type Unseen struct {
	Name string // in the folder
	// Begins, if it is set, makes the first bytes of the file those that the other side is to have.
	Begins func(first []byte)
}

// part is the unit in which such a file is compared and sent.
const part = int64(len(zeroes))

// partsAtOnce is how many of them are read at a time.
const partsAtOnce = 4

// unseen is such a file, and the other side's content of it.
type unseen struct {
	Unseen
	inode uint64
	sums  []uint64 // a digest of each part, as it was sent; 0: zeroes. None: nothing was sent yet
	size  int64    // that the other side has
	dirty []int64  // the parts that were not as sent, when they were last looked at
}

// known says whether the other side has this very file, so that a patch is enough.
func (u *unseen) known(st *unix.Stat_t) bool { return u.sums != nil && u.inode == st.Ino }

// due says whether the next pass has to send something of it.
func (u *unseen) due(st *unix.Stat_t) bool {
	return !u.known(st) || len(u.dirty) > 0 || u.size != st.Size
}

// find asks which files are written to unseen now. One that was stays among them: its
// last writes may be younger than the last look at it.
func (f *Follower) find() error {
	if f.Unseen == nil {
		return nil
	}
	all, err := f.Unseen()
	if err != nil {
		return err
	}
	for _, u := range all {
		if f.unseen[u.Name] == nil {
			f.unseen[u.Name] = &unseen{Unseen: u}
		}
	}
	return nil
}

// Look compares the files that are written to unseen with their sent content, and
// returns about how many bytes the next pass has for that. It reads all of them.
func (f *Follower) Look() (bytes int64, err error) {
	if err := f.find(); err != nil {
		return 0, err
	}
	for _, name := range sorted(f.unseen) {
		u := f.unseen[name]
		st, err := f.stat(name)
		switch {
		case absent(err):
			continue
		case err != nil:
			return 0, f.error(name, err)
		case !u.known(st):
			bytes += min(st.Size, st.Blocks*512)
			continue
		}
		if u.dirty, err = f.compare(u); err != nil {
			return 0, f.error(name, err)
		}
		bytes += int64(len(u.dirty)) * part
	}
	return bytes, nil
}

// UnseenBytes is how much a look reads.
func (f *Follower) UnseenBytes() (bytes int64, err error) {
	if err := f.find(); err != nil {
		return 0, err
	}
	for name := range f.unseen {
		if st, err := f.stat(name); err == nil {
			bytes += min(st.Size, st.Blocks*512)
		} else if !absent(err) {
			return 0, f.error(name, err)
		}
	}
	return bytes, nil
}

// unseenDue are the names of those of which the next pass has to send something.
func (m *Mirror) unseenDue() (names []string) {
	for _, name := range sorted(m.unseen) {
		if st, err := m.stat(name); err == nil && m.unseen[name].due(st) {
			names = append(names, name)
		}
	}
	return names
}

// read opens such a file past the page cache, which does not show the kernel's writes.
func (u *unseen) read(path string) (*image.Source, error) {
	// A write of which the file system was not told is in no extent of the file yet.
	if err := image.Datasync(path, false); err != nil {
		return nil, err
	}
	src, err := image.OpenSource(path)
	if err != nil {
		return nil, err
	}
	if err := forgetCached(path, src.Direct()); err != nil {
		return nil, errors.Join(err, src.Close())
	}
	return src, nil
}

// readAt reads a part as the other side is to have it.
func (u *unseen) readAt(src io.ReaderAt, b []byte, off int64) error {
	n, err := src.ReadAt(b, off)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	clear(b[n:]) // it has shrunk: the next look finds that
	if off == 0 && u.Begins != nil {
		u.Begins(b)
	}
	return nil
}

// digestOf is 0 for zeroes.
func digestOf(b []byte) uint64 {
	if bytes.Equal(b, zeroes[:len(b)]) {
		return 0
	}
	return ledger.Digest(b)
}

// parts are those of a file in which there may be data, in their order.
func parts(src *image.Source, size int64) (found []int64, err error) {
	for off := int64(0); off < size; {
		start, end, err := src.NextData(off)
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		for n := start / part; n*part < min(end, size); n++ {
			if len(found) == 0 || found[len(found)-1] < n {
				found = append(found, n)
			}
		}
		off = max(end, start+1)
	}
	return found, nil
}

// compare reads the file and returns the parts that are not as they were sent.
func (m *Mirror) compare(u *unseen) (differ []int64, err error) {
	err = at(m.root, u.Name, func(parent int, base string) error {
		src, err := u.read(fmt.Sprintf("/proc/self/fd/%d/%s", parent, base))
		if err != nil {
			return err
		}
		defer src.Close()
		size := src.Size()
		data, err := parts(src, size)
		if err != nil {
			return err
		}
		// A hole is compared, too, where data were sent.
		for n, sum := range u.sums {
			if sum != 0 && int64(n)*part < size && !has(data, int64(n)) {
				data = append(data, int64(n))
			}
		}
		slices.Sort(data)
		differ, err = u.differ(src, data, size)
		return err
	})
	return differ, err
}

func has(sorted []int64, n int64) bool {
	_, found := slices.BinarySearch(sorted, n)
	return found
}

// differ reads parts on all processors.
func (u *unseen) differ(src io.ReaderAt, all []int64, size int64) (differ []int64, err error) {
	var next atomic.Int64
	var mu sync.Mutex
	var g errgroup.Group
	for range max(2, runtime.GOMAXPROCS(0)) {
		g.Go(func() error {
			buf := image.Buffer(int(part))
			for {
				first := next.Add(partsAtOnce) - partsAtOnce
				if first >= int64(len(all)) {
					return nil
				}
				for _, n := range all[first:min(first+partsAtOnce, int64(len(all)))] {
					b := buf[:min(part, size-n*part)]
					if err := u.readAt(src, b, n*part); err != nil {
						return err
					}
					if n < int64(len(u.sums)) && u.sums[n] == digestOf(b) {
						continue
					}
					mu.Lock()
					differ = append(differ, n)
					mu.Unlock()
				}
			}
		})
	}
	err = g.Wait()
	slices.Sort(differ)
	return differ, err
}

// unseenFile sends a file that is written to unseen: the first time whole, and then the parts that differ.
func (p *pass) unseenFile(u *unseen, f *os.File, rel string, st *unix.Stat_t, h *tar.Header) error {
	if severalNames(st) {
		return p.error(rel, errors.New("it has further names, and only one of them can be compared"))
	}
	src, err := u.read(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	if err != nil {
		return p.error(rel, err)
	}
	defer src.Close()
	size, send := src.Size(), u.dirty
	if !u.known(st) {
		if send, err = parts(src, size); err != nil {
			return p.error(rel, err)
		}
		u.inode, u.sums = st.Ino, []uint64{}
	} else {
		h.Typeflag = typePatch
	}
	send = slices.DeleteFunc(slices.Clone(send), func(n int64) bool { return n*part >= size })
	send = fitting(send, maxPieces)
	// Parts that it has not any more are zeroes if they come again.
	last := (size + part - 1) / part
	for int64(len(u.sums)) < last {
		u.sums = append(u.sums, 0)
	}
	u.sums, u.dirty, u.size = u.sums[:last], nil, size
	pieces := joined(send, size)
	table := layTable(h, size, pieces)
	p.sent(rel, st)
	if err := p.out.WriteHeader(h); err != nil {
		return p.error(rel, err)
	}
	if _, err := p.out.Write(table); err != nil {
		return p.error(rel, err)
	}
	buf := image.Buffer(int(part))
	for _, n := range send {
		b := buf[:min(part, size-n*part)]
		if err := u.readAt(src, b, n*part); err != nil {
			return p.error(rel, err)
		}
		u.sums[n] = digestOf(b)
		if _, err := p.out.Write(b); err != nil {
			return p.error(rel, err)
		}
		p.stats.Bytes += int64(len(b))
		if p.Count != nil {
			p.Count(int64(len(b)))
		}
	}
	return nil
}

// fitting are parts that make at most so many pieces: more are refused by the other side.
// Where they are too many, those that lie closest are joined by the parts between them.
func fitting(all []int64, most int) []int64 {
	var gaps []int64
	for i := 1; i < len(all); i++ {
		if gap := all[i] - all[i-1] - 1; gap > 0 {
			gaps = append(gaps, gap)
		}
	}
	over := len(gaps) + 1 - most
	if len(all) == 0 || over <= 0 {
		return all
	}
	slices.Sort(gaps)
	widest := gaps[over-1]
	first, _ := slices.BinarySearch(gaps, widest)
	alike := over - first // of the widest ones that are joined so many
	fit := all[:1:1]
	for _, n := range all[1:] {
		last := fit[len(fit)-1]
		gap := n - last - 1
		if gap > 0 && gap == widest && alike > 0 {
			alike--
		} else if gap >= widest {
			last = n - 1 // it stays
		}
		for last++; last <= n; last++ {
			fit = append(fit, last)
		}
	}
	return fit
}

// joined are parts as pieces.
func joined(all []int64, size int64) (pieces []piece) {
	for _, n := range all {
		off, length := n*part, min(part, size-n*part)
		if k := len(pieces); k > 0 && pieces[k-1].off+pieces[k-1].length == off {
			pieces[k-1].length += length
		} else {
			pieces = append(pieces, piece{off, length})
		}
	}
	return pieces
}

// patch writes the pieces of a file that is there, and gives it its length.
func patch(parent int, base string, r io.Reader, h *tar.Header) error {
	if _, ok := h.PAXRecords[sizeRecord]; !ok {
		return errPieces
	}
	fd, err := unix.Openat(parent, base, unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("the file that a patch is for: %w", err)
	}
	f := os.NewFile(uintptr(fd), base)
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil && (st.Mode&unix.S_IFMT != unix.S_IFREG || st.Nlink > 1) {
		err = errors.New("a patch is for a file of one name, and this is none")
	}
	if err == nil {
		err = putTogether(f, r, h)
	}
	return errors.Join(err, f.Close())
}
