// Package busy measures how many times longer than its processor time work takes on
// this host, because others want the processors too.
//
// A pause is for the most part work for the processors. How long it takes on a host
// that has nothing else to do is known; on one that is busy it takes as much longer as
// the work that is measured here.
package busy

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// Several turns of the kernel's scheduler, of a few milliseconds each.
	work = 20 * time.Millisecond
	// No more than that is waited for, however busy the host is.
	patience = 500 * time.Millisecond
	// A figure is good for so long.
	fresh = 3 * time.Second
)

// Meter knows the last figure, and measures behind the caller's back.
type Meter struct {
	mu      sync.Mutex
	factor  float64
	at      time.Time
	running bool
}

// Now is the last figure, at least 1; 1 where none was measured yet. An old one is
// measured anew for the next time.
func (m *Meter) Now() float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.running && time.Since(m.at) > fresh {
		m.running = true
		go func() {
			factor := measure(work, patience)
			m.mu.Lock()
			defer m.mu.Unlock()
			m.factor, m.at, m.running = factor, time.Now(), false
		}()
	}
	return max(1, m.factor)
}

// measure works for so long, by this thread's own clock, and tells how many times longer it took.
func measure(work, patience time.Duration) float64 {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	began, used := time.Now(), threadTime()
	sum := 0
	for {
		spun, took := threadTime()-used, time.Since(began)
		if spun >= work || took >= patience {
			sink.Store(int64(sum))
			return max(1, took.Seconds()/max(spun, time.Millisecond).Seconds())
		}
		for n := range 1 << 12 { // some hundredths of a millisecond
			sum += n
		}
	}
}

// sink keeps the compiler from leaving the work out.
var sink atomic.Int64

func threadTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		return 0
	}
	return time.Duration(t.Nano())
}
