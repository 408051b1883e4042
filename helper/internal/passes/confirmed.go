package passes

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/livefleet/handover/helper/internal/blockmap"
	"github.com/livefleet/handover/helper/internal/pipeline"
)

// A copy whose connection broke continues over a new one, and sends again only the
// clusters that did not arrive.
//
// That a frame was handed to a connection says nothing of whether it arrived. So the
// sent clusters are cut into rounds: a pass is one, and so are the clusters that are
// only made zero before the first pass. The source keeps the maps of its rounds until
// it hears that they arrived, and the destination (Arrivals) notes each cluster of
// the round that is under way when it is written. Frames arrive in order, and the
// word that a round begins is one of them: when it comes, everything of the rounds
// before it was written, and the destination says so (Confirm). On the new connection
// it names its round and the clusters of it that arrived; all others go back to the
// clusters to send (ContinueOver). Of several connections the first carries that word, and
// a fence behind it keeps the others from being quicker.
//
// In one round a cluster is sent once. So a cluster that arrived holds the round's
// content.
//
// "Written" means given to the destination's kernel, not yet on its disk. That is
// enough for as long as the destination's process lives: if the kernel then fails to
// write it out, the next Datasync returns an error. A destination that was started
// again knows of nothing, and cannot be resumed with.
//
// A cluster that arrived may have been written on the source since it was read.
// Then it is marked by its tracker, which goes on all the while.

// sent holds the clusters of one round.
type sent struct {
	round int
	maps  map[uint32]*blockmap.Map // by stream
}

// begin begins a round, if the other side counts rounds.
func (c *Copy) begin(ctx context.Context) error {
	if c.opt.Begin == nil {
		return nil
	}
	c.mu.Lock()
	c.round++
	round := c.round
	c.underWay = append(c.underWay, sent{round, map[uint32]*blockmap.Map{}})
	c.mu.Unlock()
	if err := c.opt.Begin(round); err != nil {
		return fmt.Errorf("passes: %w", err)
	}
	// Nothing of the round overtakes the word on another connection.
	if err := c.sender.Fence(ctx); err != nil {
		return fmt.Errorf("passes: %w", err)
	}
	return nil
}

// remember notes a round's clusters of one volume.
func (c *Copy) remember(stream uint32, m *blockmap.Map) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := len(c.underWay); n > 0 {
		c.underWay[n-1].maps[stream] = m
	}
}

// Round is how many rounds were begun.
func (c *Copy) Round() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.round
}

// Confirm says that the destination has heard that a round began: all before it
// arrived. It may be called at any time.
func (c *Copy) Confirm(round int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.underWay = slices.DeleteFunc(c.underWay, func(s sent) bool { return s.round < round })
}

// ContinueOver goes on over another connection. The destination is in the given round,
// and of that the clusters in arrived came, by stream.
func (c *Copy) ContinueOver(sender *pipeline.Sender, round int, arrived map[uint32]*blockmap.Map) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if round < 0 || round > c.round {
		return fmt.Errorf("passes: the destination says that it is in round %d, and %d were begun", round, c.round)
	}
	for _, s := range c.underWay {
		if s.round < round {
			continue
		}
		for _, v := range c.volumes {
			m := s.maps[v.Stream]
			if m == nil {
				continue
			}
			if came := arrived[v.Stream]; came != nil && s.round == round {
				if err := m.Subtract(came); err != nil {
					return fmt.Errorf("passes: volume %s: %w", v.Name, err)
				}
			}
			if err := v.pending.Merge(m); err != nil {
				return fmt.Errorf("passes: volume %s: %w", v.Name, err)
			}
		}
	}
	for _, v := range c.volumes {
		v.Empty = false // something may have arrived where there are zeroes now
	}
	c.underWay = nil
	c.sender = sender
	return nil
}

// Spare takes the clusters that the destination is known to hold off the clusters to
// send. It comes between Track and the first pass.
func (c *Copy) Spare(stream uint32, same *blockmap.Map) error {
	for _, v := range c.volumes {
		if v.Stream != stream {
			continue
		}
		if err := v.pending.Subtract(same); err != nil {
			return fmt.Errorf("passes: volume %s: %w", v.Name, err)
		}
	}
	return nil
}

// Arrivals holds the clusters that arrived of the round under way.
type Arrivals struct {
	mu    sync.Mutex
	round int
	maps  map[uint32]*blockmap.Map
}

// NewArrivals begins before the first round.
func NewArrivals() *Arrivals { return &Arrivals{maps: map[uint32]*blockmap.Map{}} }

// Expect makes one more volume known.
func (a *Arrivals) Expect(stream uint32, size int64, cluster int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.maps[stream] = blockmap.New(size, cluster)
}

// Mark notes that a range was written, all of it. A pipeline.Receiver calls it.
func (a *Arrivals) Mark(stream uint32, off, n int64) {
	a.mu.Lock()
	m := a.maps[stream]
	a.mu.Unlock()
	if m != nil {
		m.MarkWithin(off, n)
	}
}

// Begin notes that a round begins. Everything before it was written.
func (a *Arrivals) Begin(round int) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if round <= a.round {
		return fmt.Errorf("passes: the source began round %d after round %d", round, a.round)
	}
	a.round = round
	for _, m := range a.maps {
		m.Swap()
	}
	return nil
}

// Came returns the round under way, and the clusters of it that arrived. No write is
// under way during the call.
func (a *Arrivals) Came() (round int, maps map[uint32]*blockmap.Map) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.round, a.maps
}
