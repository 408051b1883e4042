package pipeline

import (
	"context"
	"math/bits"
	"sync"

	"github.com/livefleet/handover/helper/internal/image"
)

// memory is a budget of bytes and the buffers in it. A buffer that was given back is
// used again for any payload that fits; it is dropped only where the budget wants it.
type memory struct {
	mu     sync.Mutex
	budget int64
	taken  int64                   // bytes of all buffers, taken or kept
	kept   [bits.UintSize][][]byte // by the binary logarithm of their size
	freed  chan struct{}           // closed and replaced when a buffer was given back
}

func newMemory(budget int64) *memory {
	return &memory{budget: budget, freed: make(chan struct{})}
}

// class is the smallest power of two, of at least a page, that holds n bytes.
func class(n int) int { return bits.Len(uint(max(n, image.Align) - 1)) }

// take waits until n bytes are within the budget and returns a buffer of so
// many, on an aligned address. One that is larger than the whole budget gets
// through when nothing else is taken.
func (m *memory) take(ctx context.Context, n int) ([]byte, error) {
	c := class(n)
	size := int64(1) << c
	m.mu.Lock()
	for {
		if k := m.kept[c]; len(k) > 0 {
			b := k[len(k)-1]
			m.kept[c] = k[:len(k)-1]
			m.mu.Unlock()
			return b[:n], nil
		}
		if m.taken+size > m.budget {
			m.drop(m.taken + size - m.budget)
		}
		if m.taken+size <= m.budget || m.taken == 0 {
			m.taken += size
			m.mu.Unlock()
			return image.Buffer(int(size))[:n], nil
		}
		freed := m.freed
		m.mu.Unlock()
		select {
		case <-freed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		m.mu.Lock()
	}
}

// drop forgets kept buffers until so many bytes are free, or none is left.
func (m *memory) drop(bytes int64) {
	for c := range m.kept {
		for len(m.kept[c]) > 0 && bytes > 0 {
			m.kept[c] = m.kept[c][:len(m.kept[c])-1]
			m.taken -= 1 << c
			bytes -= 1 << c
		}
	}
}

// give gives a buffer back.
func (m *memory) give(b []byte) {
	c := class(cap(b))
	m.mu.Lock()
	m.kept[c] = append(m.kept[c], b)
	close(m.freed)
	m.freed = make(chan struct{})
	m.mu.Unlock()
}
