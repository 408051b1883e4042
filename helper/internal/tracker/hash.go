package tracker

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/blockmap"
	"github.com/livefleet/handover/helper/internal/tracker/blockdev"
)

const (
	hashStretch = 1 << 20 // how much is read at a time, or a cluster, if that is more
	hashAlign   = 4096
)

// hashTracker reads a device and compares.
type hashTracker struct {
	dev  *blockdev.Device
	f    *os.File
	sent func(off int64, data []byte) (same bool, err error)
	why  string

	mu     sync.Mutex
	closed bool
	lost   error
}

// openHash opens trackers that compare; why is the reason against the better ones, if
// they were tried.
func openHash(devs []Device, why string) (trackers []Tracker, err error) {
	for _, d := range devs {
		t, err := newHash(d, why)
		if err != nil {
			for _, t := range trackers {
				err = errors.Join(err, t.Close())
			}
			return nil, err
		}
		trackers = append(trackers, t)
	}
	return trackers, nil
}

func newHash(d Device, why string) (*hashTracker, error) {
	dev, err := blockdev.Find(d.Path, d.Cluster)
	if err != nil {
		return nil, err
	}
	if d.Sent == nil {
		return nil, fmt.Errorf("tracker: %s: --tracker=hash compares a device with what was sent of it, and here nothing is: pass --tracker=ebpf", d.Path)
	}
	t := &hashTracker{dev: dev, sent: d.Sent, why: why}
	// Past the page cache: the cache of a device does not show a mounted file
	// system's writes to it.
	if t.f, err = os.OpenFile(d.Path, os.O_RDONLY|unix.O_DIRECT|unix.O_CLOEXEC, 0); err != nil {
		return nil, fmt.Errorf("tracker: %s: it cannot be read past the page cache: %w", d.Path, errors.Unwrap(err))
	}
	return t, nil
}

// read reads the whole device, and marks the clusters that are not as they were sent.
func (t *hashTracker) read(m *blockmap.Map) error {
	cluster, size := int64(t.dev.Cluster), t.dev.Size()
	stretch := max(hashStretch, cluster)
	var next atomic.Int64
	var failed atomic.Bool
	var g errgroup.Group
	for range max(2, runtime.GOMAXPROCS(0)) {
		g.Go(func() (err error) {
			defer func() {
				if err != nil {
					failed.Store(true)
				}
			}()
			buf, err := unix.Mmap(-1, 0, int(stretch), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE) // on a page
			if err != nil {
				return fmt.Errorf("tracker: %w", err)
			}
			defer unix.Munmap(buf) //nolint:errcheck // ours
			for !failed.Load() {
				off := next.Add(stretch) - stretch
				if off >= size {
					return nil
				}
				b := buf[:min(stretch, size-off)]
				if err := t.readAt(b, buf, off); err != nil {
					return fmt.Errorf("tracker: %s: reading at offset %d: %w", t.dev.Path, off, err)
				}
				for len(b) > 0 {
					part := b[:min(cluster, int64(len(b)))]
					same, err := t.sent(off, part)
					if err != nil {
						return fmt.Errorf("tracker: %s: %w", t.dev.Path, err)
					}
					if !same {
						m.MarkRange(off, 1)
					}
					b, off = b[len(part):], off+int64(len(part))
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// readAt fills b, which begins where room does. A direct read asks for a multiple of
// a block, also where the device ends in the middle of one.
func (t *hashTracker) readAt(b, room []byte, off int64) error {
	for n := 0; n < len(b); {
		ask := min(len(room), (len(b)+hashAlign-1)/hashAlign*hashAlign)
		got, err := unix.Pread(int(t.f.Fd()), room[n:ask], off+int64(n))
		switch {
		case err == unix.EINTR:
		case err != nil:
			return err
		case got == 0:
			return io.ErrUnexpectedEOF
		default:
			n += got
			if n < len(b) {
				n -= n % hashAlign // a direct read goes on at a block
			}
		}
	}
	return nil
}

func (t *hashTracker) Kind() string { return Hash }

// Why is the reason against a better tracker.
func (t *hashTracker) Why() string { return t.why }

func (t *hashTracker) Swap() (*blockmap.Map, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, fmt.Errorf("tracker: %s: the tracker is closed", t.dev.Path)
	}
	if t.lost == nil {
		t.lost = t.dev.CheckUnchanged()
	}
	if t.lost != nil {
		return nil, t.lost
	}
	m := blockmap.New(t.dev.Size(), t.dev.Cluster)
	return m, t.read(m)
}

// InFlight is the kernel's own count.
func (t *hashTracker) InFlight() (int64, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return 0, fmt.Errorf("tracker: %s: the tracker is closed", t.dev.Path)
	}
	if accounted, err := t.dev.Accounted(); err != nil {
		return 0, err
	} else if !accounted {
		return 0, t.dev.NotAccounted()
	}
	return t.dev.InFlight()
}

func (t *hashTracker) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil
	}
	t.closed = true
	return t.f.Close()
}
