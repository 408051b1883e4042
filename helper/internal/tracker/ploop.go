package tracker

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/blockmap"
	"github.com/livefleet/handover/helper/internal/tracker/blockdev"
)

// The calls of an OpenVZ kernel, on a ploop device: type 'P', numbers 6 to 11.
const (
	ploopTrackInit   = 0x80105006 // gives the extent that is allocated
	ploopTrackStop   = 0x5007
	ploopTrackAbort  = 0x5008
	ploopTrackSetpos = 0x40085009 // takes a position: writes below it are tracked
	ploopTrackRead   = 0x8010500a // gives an extent that was written, and forgets it
	ploopSync        = 0x500b     // waits for the writes under way, and syncs the image's files
)

// extent is a stretch of the image, in bytes.
type extent struct{ start, end uint64 }

// ploopKernel is the part of an OpenVZ kernel that serves a device; a test stands in
// for it.
type ploopKernel interface {
	init() (extent, error)
	setpos(uint64) error
	read() (extent, error) // EAGAIN: there is none
	sync() error
	stop() error
	abort() error
	Close() error
}

// ploopTracker asks the kernel's own tracker of a ploop device.
type ploopTracker struct {
	dev    *blockdev.Device
	kernel ploopKernel
	size   int64

	mu     sync.Mutex
	closed bool
	lost   error
}

func openPloop(devs []Device) (trackers []Tracker, err error) {
	defer func() {
		if err != nil {
			for _, t := range trackers {
				err = errors.Join(err, t.Close())
			}
			trackers = nil
		}
	}()
	for _, d := range devs {
		dev, err := blockdev.Find(d.Path, d.Cluster)
		if err != nil {
			return trackers, err
		}
		if !dev.Named("ploop") {
			return trackers, fmt.Errorf("tracker: %s: this is no ploop device (it is %s), and --tracker=ploop asks the kernel of one: pass --tracker=auto", d.Path, dev.Name)
		}
		f, err := os.OpenFile(d.Path, os.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return trackers, fmt.Errorf("tracker: %w", err)
		}
		t, err := newPloop(dev, ploopDevice{f}, d.Size)
		if err != nil {
			return trackers, errors.Join(err, f.Close())
		}
		trackers = append(trackers, t)
	}
	return trackers, nil
}

// newPloop turns the kernel's tracker on. It would leave out writes behind a position
// that the copy moves along. Here all writes are tracked, from now on: a superfluous
// mark costs a block that is sent again.
func newPloop(dev *blockdev.Device, kernel ploopKernel, size int64) (*ploopTracker, error) {
	t := &ploopTracker{dev: dev, kernel: kernel, size: size}
	e, err := kernel.init()
	switch {
	case errors.Is(err, unix.EBUSY):
		return nil, fmt.Errorf("tracker: %s: the device is being tracked, merged or grown already: wait for the end of that", dev.Path)
	case errors.Is(err, unix.ENOTTY) || errors.Is(err, unix.EINVAL):
		return nil, fmt.Errorf("tracker: %s: this kernel has no tracker for ploop (%w): pass --tracker=auto", dev.Path, err)
	case err != nil:
		return nil, fmt.Errorf("tracker: %s: the kernel does not track the device: %w", dev.Path, err)
	}
	if err = kernel.setpos(1 << 62); err == nil && e.end > uint64(size) {
		err = t.outside(e)
	}
	if err != nil {
		return nil, fmt.Errorf("tracker: %s: %w", dev.Path, errors.Join(err, kernel.abort()))
	}
	return t, nil
}

func (t *ploopTracker) outside(e extent) error {
	return blockdev.Lost("tracker: %s: the image was written from %d to %d, and it can have %d bytes: was the disk grown? Start again", t.dev.Path, e.start, e.end, t.size)
}

func (t *ploopTracker) Kind() string { return Ploop }

// Swap reads the kernel's extents, which come in the order of the image and start
// over at its beginning, once round: all writes before the call are among them.
// Writes during the call may come too, without end, and need not.
func (t *ploopTracker) Swap() (*blockmap.Map, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, fmt.Errorf("tracker: %s: the tracker is closed", t.dev.Path)
	}
	if t.lost != nil {
		return nil, t.lost
	}
	m := blockmap.New(t.size, t.dev.Cluster)
	var first, last uint64
	for n, wrapped := 0, false; ; n++ {
		e, err := t.kernel.read()
		switch {
		case errors.Is(err, unix.EAGAIN):
			return m, nil
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.ECONNABORTED):
			t.lost = blockdev.Lost("tracker: %s: the kernel had no memory for a mark and has given up tracking: start the session again", t.dev.Path)
		case err != nil:
			t.lost = blockdev.Lost("tracker: %s: asking the kernel what was written: %w", t.dev.Path, err)
		case e.start >= e.end || e.end > uint64(t.size)+uint64(t.dev.Cluster):
			t.lost = t.outside(e)
		}
		if t.lost != nil {
			return nil, t.lost
		}
		m.MarkRange(int64(e.start), min(int64(e.end), t.size)-int64(e.start))
		if n == 0 {
			first = e.start
		}
		wrapped = wrapped || e.start < last
		last = e.end
		if wrapped && e.end > first {
			return m, nil
		}
	}
}

// InFlight is the kernel's count for the block device.
func (t *ploopTracker) InFlight() (int64, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return 0, fmt.Errorf("tracker: %s: the tracker is closed", t.dev.Path)
	}
	return t.dev.InFlight()
}

// Settle brings the frozen device's last writes into the image: the kernel may have
// accepted them, and marks an extent only when it is written there.
func (t *ploopTracker) Settle() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return fmt.Errorf("tracker: %s: the tracker is closed", t.dev.Path)
	}
	if err := t.kernel.sync(); err != nil {
		return fmt.Errorf("tracker: %s: the kernel could not sync the image below the frozen device: %w", t.dev.Path, err)
	}
	return nil
}

// Close turns tracking off, however much of it was read.
func (t *ploopTracker) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil
	}
	t.closed = true
	err := t.kernel.stop()
	if errors.Is(err, unix.EBUSY) { // there are marks that are no longer needed
		err = t.kernel.abort()
	}
	if errors.Is(err, unix.ECONNABORTED) { // Swap has said so, or no caller asks
		err = nil
	}
	if err != nil {
		err = fmt.Errorf("tracker: %s: turning the kernel's tracker off: %w", t.dev.Path, err)
	}
	return errors.Join(err, t.kernel.Close())
}

// ploopDevice is the kernel itself.
type ploopDevice struct{ *os.File }

func (d ploopDevice) call(request uintptr, arg unsafe.Pointer) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, d.Fd(), request, uintptr(arg)); errno != 0 {
		return errno
	}
	return nil
}

func (d ploopDevice) init() (e extent, err error) {
	err = d.call(ploopTrackInit, unsafe.Pointer(&e))
	return e, err
}
func (d ploopDevice) setpos(pos uint64) error {
	return d.call(ploopTrackSetpos, unsafe.Pointer(&pos))
}
func (d ploopDevice) read() (e extent, err error) {
	err = d.call(ploopTrackRead, unsafe.Pointer(&e))
	return e, err
}
func (d ploopDevice) sync() error  { return d.call(ploopSync, nil) }
func (d ploopDevice) stop() error  { return d.call(ploopTrackStop, nil) }
func (d ploopDevice) abort() error { return d.call(ploopTrackAbort, nil) }
