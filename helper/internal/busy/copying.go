package busy

import (
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// So much is copied for one figure: some ten milliseconds.
	sample = 8 << 20
	// The page-sized writes that CRIU makes are gathered into larger ones, as here.
	piece = 1 << 20
	// The middle one of so many figures counts: a single one says more of the moment than of the host.
	figures = 5
)

// Copier knows how fast this host copies memory into a tmpfs, as others leave it room to,
// and measures that behind the caller's back.
type Copier struct {
	mu      sync.Mutex
	rates   []float64 // bytes a second, the latest last
	at      time.Time
	running bool
}

// Now is that rate in bytes a second; 0 where none was measured yet. An old figure is
// followed by another for the next time.
func (c *Copier) Now() float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.running && time.Since(c.at) > fresh/figures {
		c.running = true
		go func() {
			rate := copying()
			c.mu.Lock()
			defer c.mu.Unlock()
			if rate > 0 {
				c.rates = append(c.rates[max(0, len(c.rates)-figures+1):], rate)
			}
			c.at, c.running = time.Now(), false
		}()
	}
	return middle(c.rates)
}

func middle(rates []float64) float64 {
	if len(rates) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(rates))
	return sorted[len(sorted)/2]
}

// copying copies once; 0 where the kernel has no room for it.
func copying() float64 {
	fd, err := unix.MemfdCreate("handover-rate", unix.MFD_CLOEXEC)
	if err != nil {
		return 0
	}
	defer unix.Close(fd)
	from := make([]byte, piece)
	for n := range from {
		from[n] = byte(n) // the kernel has one page for all that were never written
	}
	began := time.Now()
	for at := int64(0); at < sample; at += piece {
		if n, err := unix.Pwrite(fd, from, at); err != nil || n != piece {
			return 0
		}
	}
	return sample / time.Since(began).Seconds()
}
