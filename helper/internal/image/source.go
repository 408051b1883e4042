package image

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// Source is an image that is read while others may write to it.
type Source struct {
	f      *os.File
	path   string
	size   int64
	block  bool
	direct bool
	async  *queues   // for reads past the page cache; nil: a thread waits for each
	grows  bool      // the file may become longer, up to size
	below  *backing  // of a loop device; nil: its holes are unknown
	bounce sync.Pool // *[]byte, for reads that are not aligned
}

const bounceSize = 1 << 20

// OpenSource opens a block device or a regular file for reading. It reads with
// O_DIRECT, past the page cache: a device's cache does not see a mounted file
// system's writes to the device. A regular file on a file system without O_DIRECT is
// read through the cache, which is the one its writers use; a device without it is
// refused.
func OpenSource(path string) (*Source, error) {
	f, err := openKind(path, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	s := &Source{f: f, path: path}
	s.bounce.New = func() any { b := Buffer(bounceSize); return &b }
	if s.size, s.block, err = sizeOf(f, path); err != nil {
		f.Close()
		return nil, err
	}
	direct, err := openDirect(path)
	switch {
	case err == nil:
		f.Close()
		s.f, s.direct = direct, true
		s.async = openQueues()
	case s.block:
		f.Close()
		return nil, fmt.Errorf("image: %s: this block device cannot be read with O_DIRECT (%w), and its cache does not show what a mounted file system writes", path, cause(err))
	}
	if s.block {
		s.below = openBacking(s.f, s.size)
	}
	return s, nil
}

// OpenGrowing opens a regular file that may become longer while it is copied, up to
// size: the missing rest reads as zeroes.
func OpenGrowing(path string, size int64) (*Source, error) {
	s, err := OpenSource(path)
	if err != nil {
		return nil, err
	}
	if s.block || s.size > size {
		s.Close()
		return nil, fmt.Errorf("image: %s: it has %d bytes, and is a file that grows up to %d at most", path, s.size, size)
	}
	s.size, s.grows = size, true
	return s, nil
}

// Length is how long the image is now, as far as it has come.
func (s *Source) Length() (int64, error) {
	if !s.grows {
		return s.size, nil
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(s.f.Fd()), &st); err != nil {
		return 0, fmt.Errorf("image: %s: %w", s.path, err)
	}
	return min(st.Size, s.size), nil
}

// openDirect opens path with O_DIRECT and proves with one read that the file
// system means it: some take the flag and refuse the read.
func openDirect(path string) (*os.File, error) {
	f, err := openKind(path, unix.O_RDONLY|unix.O_DIRECT)
	if err != nil {
		return nil, err
	}
	if _, err := f.ReadAt(Buffer(Align), 0); err != nil && err != io.EOF {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Path is the name that the source was opened by.
func (s *Source) Path() string { return s.path }

// Size is the length of the image in bytes.
func (s *Source) Size() int64 { return s.size }

// IsBlock reports whether the source is a block device.
func (s *Source) IsBlock() bool { return s.block }

// Direct reports whether reads go past the page cache.
func (s *Source) Direct() bool { return s.direct }

// ReadAt reads len(p) bytes at off, as io.ReaderAt asks. Memory from Buffer at
// an aligned offset is filled by the device itself; anything else is copied once.
func (s *Source) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, fmt.Errorf("image: %s: reading at the negative offset %d", s.path, off)
	}
	if off >= s.size {
		return 0, io.EOF
	}
	want := min(int64(len(p)), s.size-off)
	short := want < int64(len(p))
	there, err := s.Length()
	if err != nil {
		return 0, err
	}
	there = max(0, min(want, there-off))
	n, err := s.read(p[:there], off)
	if err == nil && there < want {
		clear(p[there:want])
		n = int(want)
	}
	if err != nil {
		return n, fmt.Errorf("image: %s: reading at offset %d: %w", s.path, off+int64(n), cause(err))
	}
	if short {
		return n, io.EOF
	}
	return n, nil
}

func (s *Source) read(p []byte, off int64) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if !s.direct {
		return readAtLeast(s.pread, p, off, len(p))
	}
	if aligned(p) && off%Align == 0 {
		// An O_DIRECT read must have an aligned length also where the image
		// ends in the middle of a block; the buffer's own slack takes it.
		if size := roundUp(len(p)); size <= cap(p) {
			n, err := readAtLeast(s.pread, p[:size], off, len(p))
			return min(n, len(p)), err
		}
	}
	done := 0
	bp := s.bounce.Get().(*[]byte)
	defer s.bounce.Put(bp)
	for done < len(p) {
		from := off + int64(done)
		head := int(from % Align)
		part := min(len(p)-done, bounceSize-head)
		n, err := readAtLeast(s.pread, (*bp)[:roundUp(head+part)], from-int64(head), head+part)
		if n > head {
			done += copy(p[done:done+part], (*bp)[head:n])
		}
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

func (s *Source) pread(p []byte, off int64) (int, error) {
	if s.below != nil && s.below.recent {
		data, n := s.stretch(off, len(p))
		if !data {
			clear(p[:n])
			return n, nil
		}
		p = p[:n]
	}
	if s.async != nil {
		return s.async.do(iocbPread, s.f.Fd(), p, off)
	}
	return unix.Pread(int(s.f.Fd()), p, off)
}

// stretch says of the n bytes at off, or as many of the first of them as have one
// answer, whether they have to be read from the device or lie in a hole of the file
// below it. A device whose users discard unused blocks has many of those where its
// writers were, and reading one takes a request as reading data does.
func (s *Source) stretch(off int64, n int) (data bool, length int) {
	if writeBack(s.f, off, int64(n)) != nil {
		return true, n
	}
	return leads(off, n, s.NextData)
}

// leads is stretch, by next, which finds the data from off on as NextData does.
func leads(off int64, n int, next func(off int64) (start, end int64, err error)) (data bool, length int) {
	start, end, err := next(off)
	switch {
	case err == io.EOF:
		return false, n
	case err != nil:
		return true, n // the device has to say it
	case end <= start:
		return true, n // it was given back between the two questions
	}
	// The edges of holes are those of the blocks of the file system below.
	if start = start / Align * Align; start > off {
		return false, int(min(start-off, int64(n)))
	}
	return true, int(min((end-off+Align-1)/Align*Align, int64(n)))
}

// readFull fills p.
func readFull(f *os.File, p []byte, off int64) (int, error) {
	pread := func(p []byte, off int64) (int, error) { return unix.Pread(int(f.Fd()), p, off) }
	return readAtLeast(pread, p, off, len(p))
}

// readAtLeast reads into p until it has at least least bytes; the rest of p is
// slack that a direct read may fill.
func readAtLeast(pread func(p []byte, off int64) (int, error), p []byte, off int64, least int) (int, error) {
	n := 0
	for n < least {
		m, err := pread(p[n:], off+int64(n))
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return n, err
		}
		if m == 0 {
			return n, fmt.Errorf("the image became shorter while it was read: %w", io.ErrUnexpectedEOF)
		}
		n += m
		if n < least && n%Align != 0 {
			// A direct read cannot go on from here; it goes back a little.
			n -= n % Align
		}
	}
	return n, nil
}

// NextData finds the next stretch that may hold something other than zeroes: it
// begins at off or after it. Where there is none it returns io.EOF. A loop device
// has the holes of the file below it. Any other block device knows of none and is
// one stretch; so is a file whose file system cannot tell.
//
// While the source is written to, the answer is about the past, as FreeSpace's is.
func (s *Source) NextData(off int64) (start, end int64, err error) {
	if off < 0 || off >= s.size {
		return s.size, s.size, io.EOF
	}
	fd, offset := int(s.f.Fd()), int64(0)
	if s.block {
		if s.below == nil {
			return off, s.size, nil
		}
		fd, offset = int(s.below.f.Fd()), s.below.offset
	}
	start, err = unix.Seek(fd, off+offset, unix.SEEK_DATA)
	switch {
	case err == unix.ENXIO:
		return s.size, s.size, io.EOF
	case err == unix.EINVAL || err == unix.EOPNOTSUPP:
		return off, s.size, nil
	case err != nil:
		return 0, 0, fmt.Errorf("image: %s: looking for data from offset %d on: %w", s.path, off, err)
	}
	if start -= offset; start >= s.size {
		return s.size, s.size, io.EOF
	}
	end, err = unix.Seek(fd, start+offset, unix.SEEK_HOLE)
	if err != nil {
		return 0, 0, fmt.Errorf("image: %s: looking for a hole from offset %d on: %w", s.path, start, err)
	}
	return start, min(end-offset, s.size), nil
}

// Close closes the source.
func (s *Source) Close() error {
	if s.below != nil {
		s.below.f.Close()
	}
	if s.async != nil {
		s.async.close()
	}
	return s.f.Close()
}

// cause strips the part that package os adds: our own sentence names the path
// already.
func cause(err error) error {
	var pe *os.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}
