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

// Auto is the compression that is chosen by what is measured, and chosen again as
// that changes.
const Auto = "auto"

// What Auto goes by. The clock of all of it is the time that was spent on
// sending: between two passes nothing is measured.
const (
	// window is how long is measured before a choice.
	window = 100 * time.Millisecond
	// sampleEvery is how often a piece is also packed in the ways that are not in
	// use, to know what they would do. As long as nothing is gained by packing, and
	// either it is not the link that is waited for or there are no idleWanted
	// processors to spare, the time doubles up to sampleSeldom.
	sampleEvery  = 50 * time.Millisecond
	sampleSeldom = 800 * time.Millisecond
	sampleLen    = 64 << 10
	idleWanted   = 0.25
	// starving is the part of the time from which on a sending side that waits
	// for pieces is not what the whole waits for.
	starving = 0.25
	// gainWanted is by how much a way has to be quicker than a cheaper one.
	gainWanted = 1.1
	// gainKept is how far behind a way may fall of what was brought without it.
	gainKept = 1.05
	// linkFull is the part of what is sent that has to find the link still at work, for
	// the link to be what is waited for.
	linkFull = 0.5
	// held is the part of the time from which on it is the other side that is waited
	// for, and not the link: it does not take what has come.
	held = 0.25
	// gainShown is by how much a way has to have become quicker, over proofWindows, to
	// stay in use where the other side is waited for; else it rests for restHeld.
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

// trial is what is known of one way to pack.
type trial struct {
	speed float64 // bytes a second that one processor packs
	ratio float64 // of what comes out to what goes in
	known bool
	rest  time.Duration // how long it rests when it fails next
	until time.Duration // when its rest ends, by the chooser's clock
}

// chooser chooses the way to pack that is likely to bring the most bytes over,
// counted before they are packed.
//
// The sending side either waits for pieces (it starves) or the link is what all
// wait for. If it starves, a way that packs less may be quicker; if not, one that
// packs more, as far as there are processors for it. What each would bring is the
// smaller one of what the link would carry of what it packs, and of what the
// idle processors pack in the time. What then does not bring more than what was
// in use before rests for a while: it may be that the other side's disk was waited
// for, or its processors.
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
	proof   bool          // what is in use has not yet shown that it is quicker
	shown   float64       // what it has brought a second since, on average
	chosen  bool          // there was one

	// What was in use before, what that brought a second, and how many whole
	// windows there have been since.
	before      Packing
	beforeRate  float64
	sinceChange int

	// Since the last choice:
	sent, brought    int64         // after and before packing
	behind           int64         // of what was sent, while the link had not yet sent what came before
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

// packed reports what packing a piece came to.
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

// worthDelta says whether it pays to look for what has changed in clusters: where
// the link is what all wait for, or would be if nothing were packed.
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

// choose makes a choice from what was measured in a window; the caller holds mu.
func (c *chooser) choose(lines int) {
	seconds := ((c.sending + c.waiting) / time.Duration(lines)).Seconds()
	rate := float64(c.brought) / seconds
	// What the link carries while it is used.
	link := float64(c.sent) * float64(lines) / max(c.sending.Seconds(), 1e-9)
	idle, all := c.idle()
	processors := 0.0
	if all > c.all0 {
		processors = float64(runtime.NumCPU()) * (idle - c.idle0) / (all - c.all0)
	}
	// What packs now could pack something else.
	free := usable*processors + c.packing.Seconds()/seconds
	c.starves = float64(c.waiting) > starving*float64(c.sending+c.waiting)
	// A link that has sent what it was given before more comes is waited for by nobody:
	// what sending takes are processors, and packing takes more of them.
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
		if time.Duration(c.sinceChange)*window > restLeast {
			t.rest, c.beforeRate = 0, 0 // it has held what it promised
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

// idleTime reads how long the machine's processors have been idle, and how long
// they have been there, in ticks.
func idleTime() (idle, all float64) {
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0 // no processor is known to be idle, so nothing is packed
	}
	line, _, _ := bytes.Cut(stat, []byte("\n"))
	// cpu user nice system idle iowait irq softirq steal, and guests, who are in user
	for i, field := range bytes.Fields(line)[1:min(9, len(bytes.Fields(line)))] {
		n, _ := strconv.ParseFloat(string(field), 64)
		all += n
		if i == 3 || i == 4 {
			idle += n
		}
	}
	return idle, all
}
