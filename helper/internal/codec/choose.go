package codec

import (
	"bytes"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// Auto is the compression that is chosen by measurement, and chosen again as the
// figures change.
const Auto = "auto"

// The constants of Auto. Its clock is the time that was spent on sending: between two
// passes nothing is measured.
const (
	// window is how long is measured before a choice.
	window = 100 * time.Millisecond
	// sampleEvery is the interval at which a piece is also packed by the methods that
	// are not in use, to learn their ratio and speed. It doubles up to sampleSeldom
	// while packing gains nothing, and either the link is not the bottleneck or there
	// are no idleWanted processors to spare.
	sampleEvery  = 50 * time.Millisecond
	sampleSeldom = 800 * time.Millisecond
	sampleLen    = 64 << 10
	idleWanted   = 0.25
	// starving: if the sender waits for pieces for more than this fraction of the
	// time, the link is not the bottleneck.
	starving = 0.25
	// gainWanted is by how much a way has to be quicker than a cheaper one.
	gainWanted = 1.1
	// gainKept is the factor by which a method may fall behind the rate without it.
	gainKept = 1.05
	// linkFull: if this fraction of the sent data finds the link still busy, the link
	// is the bottleneck.
	linkFull = 0.5
	// held: if the receiver's window is closed for more than this fraction of the
	// time, the receiver is the bottleneck, not the link.
	held = 0.25
	// gainShown is the gain that a method must show over proofWindows to stay in use
	// while the receiver is the bottleneck. Otherwise it rests for restHeld.
	gainShown    = 1.05
	proofWindows = 3
	restHeld     = 4 * time.Second
	// usable is how much of the idle processors we may count on.
	usable = 0.9
	// learn is the weight of a new measurement of a way's speed.
	learn = 0.3
	// A way that turned out not to be quicker rests for restLeast, and each
	// further time for twice as long, up to restMost.
	restLeast = time.Second
	restMost  = 64 * time.Second
)

// trial is the record of one method of packing.
type trial struct {
	speed float64 // bytes a second that one processor packs
	ratio float64 // of output to input
	known bool
	rest  time.Duration // how long it rests when it fails next
	until time.Duration // when its rest ends, by the chooser's clock
}

// chooser chooses the way to pack that is likely to bring the most bytes over,
// counted before they are packed.
//
// Either the sender waits for pieces (it starves), or the link is the bottleneck. If
// it starves, a method that packs less may be quicker. If not, one that packs more
// may be, as far as there are processors for it. The forecast for a method is the
// smaller of two rates: the input whose packed form the link would carry, and the
// input that the idle processors would pack. A method that then brings no more than
// the one before rests for a while: the other side's disk or processors may have been
// the bottleneck.
type chooser struct {
	now  atomic.Int32 // the Packing that is in use
	idle func() (idle, all float64)

	mu      sync.Mutex
	trials  [len(packingNames)]trial
	clock   time.Duration // time spent on sending
	sampled time.Duration // when the last sample was taken
	pause   time.Duration // until the next
	starves bool          // in the last window
	isHeld  bool          // in the last window
	proof   bool          // the method in use has not yet shown that it is quicker
	shown   float64       // its rate since then, in bytes a second, on average
	chosen  bool          // there was one

	// The method in use before, its rate in bytes a second, and the number of whole
	// windows since.
	before      Packing
	beforeRate  float64
	sinceChange int

	// Since the last choice:
	sent, brought    int64         // after and before packing
	behind           int64         // of the sent data, while the link had not yet sent the data before them
	sending, waiting time.Duration // of the sending side
	packing          time.Duration // of processors
	holding          time.Duration // of the sending side, by the other side
	idle0, all0      float64
}

func newChooser(idle func() (idle, all float64)) *chooser {
	c := &chooser{idle: idle, pause: sampleEvery}
	c.idle0, c.all0 = idle()
	return c
}

// packed reports the result of packing a piece.
func (c *chooser) packed(p Packing, in, out int, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.packing += took
	t := &c.trials[p]
	speed, ratio := float64(in)/max(took.Seconds(), 1e-9), float64(out)/float64(in)
	if !t.known {
		t.speed, t.ratio, t.known = speed, ratio, true
		return
	}
	t.speed += learn * (speed - t.speed)
	t.ratio += learn * (ratio - t.ratio)
}

// wantsSample says that it is time to try the other ways.
func (c *chooser) wantsSample() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.chosen || c.starves || c.clock < c.sampled+c.pause {
		return false
	}
	c.sampled = c.clock
	return true
}

// worthDelta says whether it pays to look for changed sectors in clusters: where the
// link is the bottleneck, or would be if nothing were packed.
func (c *chooser) worthDelta() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.chosen && !c.starves && !c.isHeld || Packing(c.now.Load()) != Plain
}

// wrote reports that a payload is on the link.
func (c *chooser) wrote(s Sent) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent += int64(s.After)
	c.brought += int64(s.Before)
	c.sending += s.Took
	c.waiting += s.Waited
	c.holding += s.Held
	if s.Behind {
		c.behind += int64(s.After)
	}
	c.clock += (s.Took + s.Waited) / time.Duration(s.Lines)
	if c.sending+c.waiting >= window*time.Duration(s.Lines) {
		c.choose(s.Lines)
	}
}

// choose makes a choice from the figures of a window; the caller holds mu.
func (c *chooser) choose(lines int) {
	seconds := ((c.sending + c.waiting) / time.Duration(lines)).Seconds()
	rate := float64(c.brought) / seconds
	// The rate of the link while it is used.
	link := float64(c.sent) * float64(lines) / max(c.sending.Seconds(), 1e-9)
	idle, all := c.idle()
	processors := 0.0
	if all > c.all0 {
		processors = float64(runtime.NumCPU()) * (idle - c.idle0) / (all - c.all0)
	}
	// The processors that pack now could pack by another method.
	free := usable*processors + c.packing.Seconds()/seconds
	c.starves = float64(c.waiting) > starving*float64(c.sending+c.waiting)
	// A link that is empty before more data come is not the bottleneck: sending takes
	// processors, and packing takes more of them.
	full := float64(c.behind) >= linkFull*float64(c.sent)
	c.isHeld = float64(c.holding) > held*float64(c.sending+c.waiting)
	c.chosen = true

	now := Packing(c.now.Load())
	best := now
	c.sinceChange++
	if c.proof {
		c.shown += rate / proofWindows
	}
	proving := c.proof
	switch t := &c.trials[now]; {
	case proving && c.sinceChange < proofWindows:
	case proving && c.shown < c.beforeRate*gainShown:
		t.rest = min(max(2*t.rest, restHeld), restMost)
		t.until = c.clock + t.rest
		best = c.before
	case proving:
		c.proof = false
	case c.sinceChange >= 2 && c.beforeRate > 0 && rate < c.beforeRate/gainKept && now != c.before:
		t.rest = min(max(2*t.rest, restLeast), restMost)
		t.until = c.clock + t.rest
		best = c.before
	case now != Plain && c.sent > c.brought-c.brought/gain:
		best = Plain // it cannot be packed
	default:
		best = c.promising(now, rate, link, free, full)
		if time.Duration(c.sinceChange)*window > restLeast {
			t.rest, c.beforeRate = 0, 0 // it has kept its promise
		}
	}
	if best != now {
		c.before, c.beforeRate, c.sinceChange = now, rate, 0
		c.proof, c.shown = c.isHeld && best > now, 0
		c.now.Store(int32(best))
	}
	if best == Plain && now == Plain && (c.starves || c.isHeld || !full || processors < idleWanted) {
		c.pause = min(2*c.pause, sampleSeldom)
	} else {
		c.pause = sampleEvery
	}
	c.sent, c.brought, c.behind, c.sending, c.waiting, c.packing, c.holding, c.idle0, c.all0 = 0, 0, 0, 0, 0, 0, 0, idle, all
}

// promising is the method that promises clearly more than now brings; now, if none does. link is the rate of the
// link, free the processors that could pack, and full says that the link is the bottleneck.
func (c *chooser) promising(now Packing, rate, link, free float64, full bool) Packing {
	best := now
	most := rate * gainWanted
	for p := range c.trials {
		p, t := Packing(p), &c.trials[p]
		if p == now || (p < now) != c.starves || t.until > c.clock {
			continue
		}
		would := link
		if p != Plain {
			if !t.known || !full && p > now {
				continue
			}
			would = min(link/t.ratio, t.speed*free)
		}
		if would > most {
			best, most = p, would
		}
	}
	return best
}

// idleTime reads how long the machine's processors have been idle, and how long
// they have been there, in ticks.
func idleTime() (idle, all float64) {
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0 // no processor is known to be idle, so nothing is packed
	}
	line, _, _ := bytes.Cut(stat, []byte("\n"))
	// cpu user nice system idle iowait irq softirq steal, and guests, which user
	// includes
	for i, field := range bytes.Fields(line)[1:min(9, len(bytes.Fields(line)))] {
		n, _ := strconv.ParseFloat(string(field), 64)
		all += n
		if i == 3 || i == 4 {
			idle += n
		}
	}
	return idle, all
}
