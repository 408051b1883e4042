package pipeline

import (
	"context"
	"sync"
	"time"
)

// Pace keeps to a limit of bytes a second, which may change from one frame to the
// next. All that is sent with one Pace keeps to it together. A nil Pace has no
// limit.
type Pace struct {
	limit func() int64
	mu    sync.Mutex
	end   time.Time // when the bytes sent so far are paid for
}

// NewPace keeps to the rate that limit returns, 0 for none.
func NewPace(limit func() int64) *Pace { return &Pace{limit: limit} }

// Wait waits until n more bytes may go.
func (p *Pace) Wait(ctx context.Context, n int64) error {
	if wait := p.pay(time.Now(), n); wait > 0 {
		return sleep(ctx, wait)
	}
	return nil
}

// pay says how long n more bytes have to wait. Time that was not used is not
// saved up for a burst.
func (p *Pace) pay(now time.Time, n int64) time.Duration {
	if p == nil {
		return 0
	}
	limit := p.limit()
	if limit <= 0 {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.end.Before(now) {
		p.end = now
	}
	wait := p.end.Sub(now)
	p.end = p.end.Add(time.Duration(float64(n) / float64(limit) * float64(time.Second)))
	return wait
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
