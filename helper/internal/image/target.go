package image

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/diskfull"
)

// writeBehind is how much is written into the page cache before the kernel is
// told to begin to write it out.
const writeBehind = 8 << 20

// Target is an image that is written.
type Target struct {
	f        *os.File
	path     string
	size     int64
	block    bool
	empty    bool
	reserved bool         // its space, which is kept
	grows    bool         // size is the bound, and the file ends where it was written
	grow     sync.RWMutex // held for writing while the end of a growing file is set

	direct   *direct     // nil: everything goes through the page cache
	noDirect atomic.Bool // the file system refused a write past it

	dirty   atomic.Int64 // bytes written since write-out was last started
	noPunch atomic.Bool  // the file system cannot punch holes
}

// CreateTarget makes a new sparse file of exactly size bytes, which only root
// can read. The path must not exist. The file and its name are durable when
// CreateTarget returns.
func CreateTarget(path string, size int64) (*Target, error) {
	return create(path, size, false)
}

// CreateGrowing makes a new file like CreateTarget does, for callers that do not know
// its final size. It is empty, and ends where the last byte is written; a range
// behind limit is refused.
func CreateGrowing(path string, limit int64) (*Target, error) {
	return create(path, limit, true)
}

// GrowingTarget takes an open file as CreateGrowing makes one, with what it holds.
func GrowingTarget(f *os.File, limit int64) *Target {
	return &Target{f: f, path: f.Name(), size: limit, grows: true}
}

func create(path string, size int64, grows bool) (*Target, error) {
	if size < 0 {
		return nil, fmt.Errorf("image: %s: an image cannot have %d bytes", path, size)
	}
	f, err := os.OpenFile(path, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o600)
	if errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("image: %s: exists already, and a new image never replaces a file: remove it or choose another name", path)
	}
	if err != nil {
		return nil, fmt.Errorf("image: %s: %w", path, cause(err))
	}
	t := &Target{f: f, path: path, size: size, empty: true, grows: grows}
	if !grows {
		err = f.Truncate(size)
	}
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = syncDir(filepath.Dir(path))
	}
	if err != nil {
		f.Close()
		os.Remove(path) // it is ours and of no use to anyone
		return nil, t.explain(fmt.Sprintf("making a file of %d bytes", size), 0, cause(err))
	}
	if !grows {
		t.direct = openDirectWriter(f)
	}
	return t, nil
}

// OpenTarget opens a file or a block device that is there already, and has
// exactly size bytes. A block device that is mounted or otherwise held is refused.
func OpenTarget(path string, size int64) (*Target, error) {
	// For a block device O_EXCL without O_CREAT means: only if no process holds it.
	// For a file it means nothing.
	f, err := openKind(path, unix.O_RDWR|unix.O_EXCL)
	if errors.Is(err, unix.EBUSY) {
		return nil, fmt.Errorf("image: %s: the device is in use (mounted, or part of another device): an image is never written under a user", path)
	}
	if err != nil {
		return nil, err
	}
	t := &Target{f: f, path: path}
	if t.size, t.block, err = sizeOf(f, path); err == nil && t.size != size {
		err = fmt.Errorf("image: %s: has %d bytes, and the image to be written has %d", path, t.size, size)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	t.direct = openDirectWriter(f)
	return t, nil
}

// Path is the name that the target was opened by.
func (t *Target) Path() string { return t.path }

// Size is the length of the image in bytes.
func (t *Target) Size() int64 { return t.size }

// Empty reports whether the target is known to have held nothing but zeroes
// when it was opened: only then may a first pass leave zeroes out.
func (t *Target) Empty() bool { return t.empty }

// Free is how many bytes the file system of a target file still has to give.
// For a block device, which has all its space, it is the largest number.
func (t *Target) Free() (int64, error) {
	if t.block {
		return math.MaxInt64, nil
	}
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(t.f.Fd()), &st); err != nil {
		return 0, fmt.Errorf("image: %s: asking for free space: %w", t.path, err)
	}
	return int64(st.Bavail) * st.Frsize, nil
}

// inside refuses a range that is not in the image.
func (t *Target) inside(off, n int64) error {
	if off < 0 || n < 0 || off > t.size || n > t.size-off {
		return fmt.Errorf("image: %s: the range at %d, length %d, is outside the image of %d bytes", t.path, off, n, t.size)
	}
	return nil
}

// ReadAt reads len(p) bytes at off, as they were last written.
func (t *Target) ReadAt(p []byte, off int64) (int, error) {
	if err := t.inside(off, int64(len(p))); err != nil {
		return 0, err
	}
	n, err := readFull(t.f, p, off)
	if err != nil {
		return n, t.explain("reading", off+int64(n), err)
	}
	return n, nil
}

// WriteAt writes all of p at off.
func (t *Target) WriteAt(p []byte, off int64) (int, error) {
	if err := t.inside(off, int64(len(p))); err != nil {
		return 0, err
	}
	t.grow.RLock()
	defer t.grow.RUnlock()
	n, err := t.writeDirect(p, off)
	if err != nil {
		return n, t.explain("writing", off+int64(n), err)
	}
	past := n
	for n < len(p) {
		m, err := unix.Pwrite(int(t.f.Fd()), p[n:], off+int64(n))
		if err == unix.EINTR {
			continue
		}
		if err == nil && m == 0 {
			err = unix.EIO // a write of nothing that is no error would go round for ever
		}
		if err != nil {
			return n, t.explain("writing", off+int64(n), err)
		}
		n += m
	}
	if t.dirty.Add(int64(n-past)) >= writeBehind {
		t.dirty.Store(0)
		// Only a hint: it waits for nothing, and errors of write-out come back
		// from Datasync, which looks at all of them.
		_ = unix.SyncFileRange(int(t.f.Fd()), 0, 0, unix.SYNC_FILE_RANGE_WRITE)
	}
	return n, nil
}

// writeDirect writes the first part of p that can go past the page cache. The kernel
// takes pages of the range out of the cache, so a read through it always returns the
// last write.
func (t *Target) writeDirect(p []byte, off int64) (n int, err error) {
	for !t.noDirect.Load() {
		k := t.direct.suits(p[n:], off+int64(n))
		if k == 0 {
			break
		}
		m, err := t.direct.writeAt(p[n:n+k], off+int64(n))
		if err == unix.EINVAL || err == unix.EOPNOTSUPP || err == unix.EAGAIN {
			t.noDirect.Store(true) // some file systems take the flag and refuse the write
			break
		}
		if err != nil {
			return n, err
		}
		n += m
	}
	return n, nil
}

// Reserve takes all of the room that the image can need, before anything is written: a
// file system without it says so now, and not in the middle. A device has its room.
func (t *Target) Reserve() error {
	if t.block || t.size == 0 {
		return nil
	}
	err := t.fallocate(unix.FALLOC_FL_KEEP_SIZE, 0, t.size)
	if err == unix.EOPNOTSUPP || err == unix.ENOSYS {
		return fmt.Errorf("image: %s: its file system cannot reserve space: move without that (reserve_space), or keep images on ext4 or xfs: %w", t.path, err)
	}
	if err != nil {
		return t.explain("reserving its space", -1, err)
	}
	t.reserved = true
	return nil
}

// Zero makes a range read as zeroes. A file gives the space back, unless that is
// reserved; a device gets the quickest way it has.
func (t *Target) Zero(off, n int64) error {
	if err := t.inside(off, n); err != nil || n == 0 {
		return err
	}
	if err := t.reach(off + n); err != nil {
		return err
	}
	if !t.noPunch.Load() {
		// A device takes this for zeroes that may be a hole below: a loop device
		// punches one into its file. BLKZEROOUT would keep the space taken.
		way := uint32(unix.FALLOC_FL_PUNCH_HOLE)
		if t.reserved {
			way = unix.FALLOC_FL_ZERO_RANGE
		}
		err := t.fallocate(way|unix.FALLOC_FL_KEEP_SIZE, off, n)
		switch {
		case err == nil:
			return nil
		case err == unix.EOPNOTSUPP || err == unix.ENOSYS:
			t.noPunch.Store(true)
		case t.block && err == unix.EINVAL: // not whole blocks of the device
		default:
			return t.explain("punching a hole", off, err)
		}
	}
	if t.block && off%512 == 0 && n%512 == 0 { // the kernel takes whole sectors only
		r := [2]uint64{uint64(off), uint64(n)}
		if err := ioctl(t.f, unix.BLKZEROOUT, unsafe.Pointer(&r)); err != nil {
			return t.explain("zeroing", off, err)
		}
		return nil
	}
	return t.writeZeroes(off, n)
}

// reach makes a growing file at least so long. A longer one stays as it is.
func (t *Target) reach(length int64) error {
	if !t.grows {
		return nil
	}
	t.grow.Lock()
	defer t.grow.Unlock()
	var st unix.Stat_t
	err := unix.Fstat(int(t.f.Fd()), &st)
	if err == nil && st.Size < length {
		err = t.f.Truncate(length)
	}
	if err != nil {
		return t.explain("making it longer", length, cause(err))
	}
	return nil
}

func (t *Target) writeZeroes(off, n int64) error {
	zeroes := make([]byte, min(n, 1<<20))
	for n > 0 {
		m, err := t.WriteAt(zeroes[:min(n, int64(len(zeroes)))], off)
		if err != nil {
			return err
		}
		off, n = off+int64(m), n-int64(m)
	}
	return nil
}

// Discard says that the content of a range is not needed. In a file the range reads
// as zeroes afterwards; on a device its content is undefined. It is advice: a device
// that cannot discard is left alone.
func (t *Target) Discard(off, n int64) error {
	if err := t.inside(off, n); err != nil || n == 0 {
		return err
	}
	if !t.block {
		return t.Zero(off, n)
	}
	// Whole sectors inside the range only: the edges may still be needed.
	start, end := (off+511)/512*512, (off+n)/512*512
	if start >= end {
		return nil
	}
	r := [2]uint64{uint64(start), uint64(end - start)}
	if err := ioctl(t.f, unix.BLKDISCARD, unsafe.Pointer(&r)); err != nil && err != unix.EOPNOTSUPP {
		return t.explain("discarding", off, err)
	}
	return nil
}

func (t *Target) fallocate(mode uint32, off, n int64) error {
	for {
		if err := unix.Fallocate(int(t.f.Fd()), mode, off, n); err != unix.EINTR {
			return err
		}
	}
}

// Datasync returns when everything written so far is on stable storage, or an
// error if any of it may not be. After an error the image is not to be trusted:
// the kernel reports a failed write-out once and then forgets it.
func (t *Target) Datasync() error {
	for {
		err := unix.Fdatasync(int(t.f.Fd()))
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return t.explain("fdatasync", -1, err)
		}
		return nil
	}
}

// Close closes the target. It does not sync.
func (t *Target) Close() error {
	if err := errors.Join(t.direct.close(), t.f.Close()); err != nil {
		return t.explain("closing", -1, cause(err))
	}
	return nil
}

// explain makes the one sentence that the operator reads. An offset below zero
// means that there is none.
func (t *Target) explain(doing string, off int64, err error) error {
	where := ""
	if off >= 0 {
		where = fmt.Sprintf(" at offset %d", off)
	}
	if diskfull.Is(err) {
		room := "space"
		if !t.grows {
			room = fmt.Sprintf("%d MiB", t.missing())
		}
		return fmt.Errorf("image: %s: free %s on the destination, or choose another destination: %s%s: %w", diskfull.Place(t.path, err), room, doing, where, err)
	}
	if errors.Is(err, unix.EFBIG) && !t.grows {
		return fmt.Errorf("image: %s: %s%s: %w: the file system cannot hold a file of %d bytes", t.path, doing, where, err, t.size)
	}
	return fmt.Errorf("image: %s: %s%s: %w", t.path, doing, where, err)
}

// missing is the most that the image may still need, in MiB, at least one.
func (t *Target) missing() int64 {
	var st unix.Stat_t
	need := t.size
	if unix.Fstat(int(t.f.Fd()), &st) == nil {
		need -= st.Blocks * 512
	}
	if free, err := t.Free(); err == nil && !t.block {
		need -= free
	}
	return max(need>>20, 1)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
