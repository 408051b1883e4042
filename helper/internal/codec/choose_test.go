package codec

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// world is what a chooser lives in: a link, processors, and data. Nothing in it
// takes real time.
type world struct {
	link       float64 // bytes a second
	disk       float64 // bytes a second that are read; 0: no limit
	processors float64 // that are idle while nothing is packed
	held       float64 // part of the time of sending in which the other side's window is in the way
	free       bool    // what was given to the link before is always gone
	sender     float64 // processor seconds that a byte on the link costs
	speed      [len(packingNames)]float64
	ratio      [len(packingNames)]float64
	idle, all  float64
	used       float64 // processor seconds since the chooser looked last
}

func ordinary() *world {
	return &world{
		link: 117e6, processors: 2,
		speed: [...]float64{0, 500e6, 300e6},
		ratio: [...]float64{1, 0.5, 0.33},
	}
}

// run lets a chooser work for so many seconds of sending, and returns how many
// bytes it brought over.
func (w *world) run(c *chooser, seconds float64) (brought float64) {
	const piece = 512 << 10
	for clock := 0.0; clock < seconds; {
		if c.wantsSample() {
			for p := range packingNames {
				if Packing(p) != Plain && Packing(p) != Packing(c.now.Load()) {
					w.pack(c, Packing(p), sampleLen)
				}
			}
		}
		p := Packing(c.now.Load())
		out := piece
		packs := 0.0
		if p != Plain {
			out = w.pack(c, p, piece)
			packs = piece / w.speed[p] / max(w.processors, 0.01)
		}
		takes := float64(out) / w.link
		waits := max(0, packs-takes)
		if w.disk > 0 {
			waits = max(waits, piece/w.disk-takes)
		}
		w.used += float64(out) * w.sender
		clock += takes + waits
		w.all += 2 * (takes + waits)
		w.idle += max(0, w.processors*(takes+waits)-w.used)
		w.used = 0
		c.wrote(Sent{
			Before: piece, After: out, Took: time.Duration(takes * 1e9), Held: time.Duration(takes * w.held * 1e9), Waited: time.Duration(waits * 1e9),
			Behind: !w.free, Lines: 1,
		})
		brought += piece
	}
	return brought
}

func (w *world) pack(c *chooser, p Packing, n int) int {
	took := float64(n) / w.speed[p]
	out := int(float64(n) * w.ratio[p])
	w.used += took
	c.packed(p, n, out, time.Duration(took*1e9))
	return out
}

func (w *world) ticks() (idle, all float64) { return w.idle, w.all }

// What is chosen in a world that stays as it is, and that it brings no less than
// sending everything as it is.
func TestChoice(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*world)
		want   Packing
	}{
		{"a gigabit link", func(*world) {}, Zstd},
		{"a slow link", func(w *world) { w.link = 1e6 }, Zstd},
		{"10 Gbit/s, two processors", func(w *world) { w.link = 1170e6 }, Plain},
		{"10 Gbit/s, sixteen processors", func(w *world) { w.link, w.processors = 1170e6, 16 }, Zstd},
		{"3 Gbit/s: lz4 is quick enough", func(w *world) { w.link = 350e6 }, LZ4},
		{"no idle processor", func(w *world) { w.processors = 0 }, Plain},
		{"what sends takes them all", func(w *world) { w.link, w.sender = 800e6, 2/800e6 }, Plain},
		{"what cannot be packed", func(w *world) { w.ratio = [...]float64{1, 1, 1} }, Plain},
		{"what can hardly be packed", func(w *world) { w.ratio = [...]float64{1, 0.97, 0.95} }, Plain},
		{"a disk slower than the link", func(w *world) { w.disk = 50e6 }, Plain},
		{"a relay, whose own link is a slow one", func(w *world) { w.held = 1 }, Zstd},
		{"a link that is done before more comes", func(w *world) { w.link, w.free = 350e6, true }, Plain},
		{"a limit of the operator's", func(w *world) { w.link = 10e6 }, Zstd},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := ordinary()
			c.change(w)
			ch := newChooser(w.ticks)
			w.run(ch, 3)
			if got := Packing(ch.now.Load()); got != c.want {
				t.Errorf("%s was chosen, should be %s", got, c.want)
			}
			plain := w.link
			if w.disk > 0 {
				plain = min(w.link, w.disk)
			}
			if brought := w.run(ch, 5) / 5; brought < 0.97*plain {
				t.Errorf("%.0f MB/s were brought, and %.0f without packing", brought/1e6, plain/1e6)
			}
		})
	}
}

// It switches while it runs, there and back.
func TestChoiceChanges(t *testing.T) {
	w := ordinary()
	ch := newChooser(w.ticks)
	w.run(ch, 2)
	for i, step := range []struct {
		what   string
		change func()
		want   Packing
	}{
		{"the link becomes quick", func() { w.link = 2000e6 }, Plain},
		{"and slow", func() { w.link = 117e6 }, Zstd},
		{"others take the processors", func() { w.processors = 0.05 }, Plain},
		{"and give them back", func() { w.processors = 2 }, Zstd},
		{"noise", func() { w.ratio = [...]float64{1, 1, 1} }, Plain},
		{"text", func() { w.ratio = [...]float64{1, 0.5, 0.33} }, Zstd},
	} {
		step.change()
		w.run(ch, 4)
		if got := Packing(ch.now.Load()); got != step.want {
			t.Errorf("step %d, %s: %s is in use, should be %s", i+1, step.what, got, step.want)
		}
	}
}

// Where all wait for the other side, TCP says so, and what is not quicker for it does
// not stay in use.
func TestTheOtherSideIsWaitedFor(t *testing.T) {
	w := ordinary()
	ch := newChooser(w.ticks)
	const piece, span = 1 << 20, 3500 * time.Microsecond // 300 MB/s
	takes := span.Seconds()
	in := map[Packing]float64{}
	for clock := 0.0; clock < 20; clock += takes {
		if ch.wantsSample() {
			w.pack(ch, LZ4, sampleLen)
			w.pack(ch, Zstd, sampleLen)
		}
		p, out := Packing(ch.now.Load()), piece
		if p != Plain {
			out = w.pack(ch, p, piece)
		}
		w.all, w.idle = w.all+2*takes, w.idle+2*takes
		ch.wrote(Sent{Before: piece, After: out, Took: span, Held: span, Behind: true, Lines: 1})
		in[p] += takes
	}
	if in[Plain] < 17 {
		t.Errorf("of 20 s, %v", in)
	}
	if ch.worthDelta() {
		t.Error("deltas are looked for")
	}
}

// Where all wait for the other side's disk, packing brings nothing, which looks
// like a slow link at first: what does not hold what it promised rests, longer
// each time.
func TestAChoiceThatFailsRests(t *testing.T) {
	w := ordinary()
	w.processors = 16
	ch := newChooser(w.ticks)
	const other = 900e6 // what the other side takes, packed or not; unpacking makes it slower
	in := map[Packing]float64{}
	const piece = 512 << 10
	for clock := 0.0; clock < 60; {
		if ch.wantsSample() {
			w.pack(ch, LZ4, sampleLen)
			w.pack(ch, Zstd, sampleLen)
		}
		p := Packing(ch.now.Load())
		takes, out := piece/other, piece
		if p != Plain {
			takes, out = piece/(0.8*other), w.pack(ch, p, piece)
		}
		clock += takes
		w.all, w.idle = w.all+2*takes, w.idle+2*takes
		ch.wrote(Sent{Before: piece, After: out, Took: time.Duration(takes * 1e9), Behind: true, Lines: 1})
		in[p] += takes
	}
	if in[Plain] < 50 {
		t.Errorf("of a minute, %v", in)
	}
}

// Taking samples costs next to nothing where nothing comes of it.
func TestSamplesAreRare(t *testing.T) {
	w := ordinary()
	w.link = 2000e6
	ch := newChooser(w.ticks)
	samples := 0
	for clock := 0.0; clock < 10; {
		if ch.wantsSample() {
			samples++
		}
		const takes = 0.0005
		clock += takes
		w.all += 2 * takes
		ch.wrote(Sent{Before: 1 << 20, After: 1 << 20, Took: takes * 1e9, Behind: true, Lines: 1})
	}
	if samples < 2 || samples > 30 {
		t.Errorf("%d samples in 10 s", samples)
	}
}

func TestIdleTime(t *testing.T) {
	idle, all := idleTime()
	if all <= 0 || idle < 0 || idle > all {
		t.Errorf("%v of %v", idle, all)
	}
}

func TestCompressions(t *testing.T) {
	for _, name := range []string{"auto", "none", "lz4", "zstd"} {
		e, err := NewEncoder(name)
		if err != nil {
			t.Fatal(err)
		}
		if got := e.Packing().String(); name != "auto" && got != name {
			t.Errorf("%s became %s", name, got)
		}
	}
	for _, name := range []string{"", "gzip", "delta"} {
		if _, err := NewEncoder(name); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("there is no compression %q: choose one of auto, none, lz4, zstd", name)) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// By Auto, what comes out is what went in, whatever is chosen meanwhile.
func TestAutoEncodes(t *testing.T) {
	const cluster = 4096
	e, err := NewEncoder(Auto)
	if err != nil {
		t.Fatal(err)
	}
	h := history(t, cluster, DefaultHistory)
	r := rand.New(rand.NewPCG(1, 6))
	volume := make([]byte, 64*cluster)
	there := make(image, len(volume))
	for range 60 {
		at := r.IntN(len(volume) / 2)
		text(r, volume[at:at+r.IntN(cluster)])
		pieces := e.Encode(volume, 0, cluster, make([]byte, Room(len(volume))), h)
		there.take(t, 0, pieces)
		for _, p := range pieces {
			// A link of 1 MB/s, as far as the encoder is told.
			e.Wrote(Sent{Before: p.Before, After: len(p.Payload), Took: time.Duration(len(p.Payload)) * time.Microsecond, Behind: true, Lines: 1})
		}
		if string(there) != string(volume) {
			t.Fatal("the sides differ")
		}
	}
}
