package session

import (
	"fmt"
	"time"

	"github.com/livefleet/handover/helper/internal/report"
	"github.com/livefleet/handover/helper/internal/session/record"
)

// forecast is how long a pause would be if the workload was cut over now, with its
// parts. CRIU dumps while the last blocks travel, so of these two the longer one
// counts.
type forecast struct {
	Base   time.Duration // the pause with nothing to carry
	Memory time.Duration // the memory: out of the tasks, over the link, into them
	Blocks time.Duration // writes until the freeze, which have to follow
	Look   time.Duration // the time to find them
	memory int64         // bytes
	carry  int64         // of them, that have not gone ahead
	blocks int64
	rate   int64         // bytes a second over the link
	since  time.Duration // in which that was written of which blocks were foretold
	busy   float64       // how many times longer the processors' part takes, since others want them too
	copies float64       // bytes of memory a second, each way through CRIU
}

// Constants that are not measured on the host itself. A trial puts its own in place
// of the first one.
const (
	// An idle container's whole pause on a host that does nothing else
	// (docs/benchmarks/freeze.md).
	usualBase = 200 * time.Millisecond
	// CRIU copies memory through pipes and a tmpfs, twice: out of the tasks and into
	// them. From the same table, between 64 MiB and 1 GiB.
	criuRate = 1300 << 20
	criuWays = 2.0
	// Placed memory is read on the one side and copied by several threads on the other: so
	// many of CRIU's ways. From the same table, 256 MiB.
	placedWays = 0.65
	// Each way takes it so many times as long as a plain copy into a tmpfs, which is
	// measured on the host itself: fitted to eight moves of 512 MiB and 1 GiB, whose pauses
	// were 0.68 to 1.40 of the forecast with it. The more memory, the more each byte costs:
	// a copy of a few MiB stays in pages that are warm.
	criuCopies = 2.1
	// The assumed rate of a link without a measurement yet: a gigabit, less its
	// headers.
	usualRate = 117 << 20
	// A pass that carried less says nothing of the link.
	tellingPass = 4 << 20
	// Less than that is not worth a word.
	tellingBusy = 1.2
	// The part of the base in which CRIU dumps, and blocks travel beside it.
	dumpPart = 0.4
)

func (f forecast) Total() time.Duration {
	beside := time.Duration(dumpPart * float64(f.Base))
	return f.Base + f.Memory + f.Look + max(0, f.Blocks-beside)
}

func (f forecast) String() string {
	said := fmt.Sprintf("%.0f ms: %.0f ms in any case, %.0f ms for %d bytes of memory, copied at %.0f bytes a second, of which %d have not gone ahead, %.0f ms for %d bytes that are written until then, at %d bytes a second, and %.0f ms to find them",
		report.MS(f.Total()), report.MS(f.Base), report.MS(f.Memory), f.memory, f.copies, f.carry, report.MS(f.Blocks), f.blocks, f.rate, report.MS(f.Look))
	if f.busy >= tellingBusy {
		said += fmt.Sprintf("; the processors are busy, and all takes %.1f times as long", f.busy)
	}
	return said
}

// limiter compares the pause of a cutover with the allowed one, and slows the workload down where it may.
type limiter struct {
	*memorySource
	brake brake
}

// foresee makes the forecast, which the status shows, from the figures of the passes. dirty are the
// bytes written in the time since the collect before.
func (s *limiter) foresee(dirty int64, since time.Duration) forecast {
	f := forecast{Look: s.options.lookTakes(s.collecting), memory: s.memoryInPause(), rate: s.linkRate(), since: since, busy: s.options.howBusy()}
	f.Base = seconds(f.busy * usualBase.Seconds())
	if b := s.Spec.Policy.PauseBaseMS; b > 0 { // measured here, busy or not
		f.Base = time.Duration(b) * time.Millisecond
	}
	// The rounds before the freeze leave the writes of one of them.
	f.blocks = dirty
	if since > roundIdle {
		f.blocks = int64(float64(dirty) * roundIdle.Seconds() / since.Seconds())
	}
	f.Blocks = f.link(f.blocks)
	if f.copies = s.options.copyRate() / criuCopies; f.copies == 0 {
		f.copies = criuRate / f.busy
	}
	s.foreseeMemory(&f)
	return f
}

// foreseeMemory adds the memory's part to a forecast, by the last scan or look: between
// that and the freeze about as much changes as before it. The first scan finds all of
// it, and says nothing of that.
func (s *limiter) foreseeMemory(f *forecast) {
	if f.carry = f.memory; s.memory.told {
		f.carry = min(f.memory, s.memory.fresh)
	}
	ways := criuWays
	if s.memory.there {
		ways = placedWays
	}
	f.Memory = seconds(ways*float64(f.memory)/f.copies) + f.link(f.carry)
	s.Update(true, func(st *record.Status) { st.ForecastMS = report.MS(f.Total()) })
}

// link is how long so many bytes are on their way.
func (f forecast) link(bytes int64) time.Duration { return seconds(float64(bytes) / float64(f.rate)) }

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// linkRate is the best rate of any pass: others were held up by the workload's own
// disk, or by a limit that does not hold in the pause.
func (s *limiter) linkRate() int64 {
	best := s.memory.rate
	s.Look(func(st *record.Status) {
		for _, p := range st.Passes {
			if p.Payload >= tellingPass && p.MS > 0 {
				best = max(best, int64(float64(p.Payload)/p.MS*1000))
			}
		}
	})
	if best == 0 {
		return usualRate
	}
	return best
}

// within says whether the forecast is within the limit, if there is one.
func (s *limiter) within(f forecast) bool {
	limit := time.Duration(s.Spec.Policy.MaxFrozenMS) * time.Millisecond
	return limit == 0 || f.Total() <= limit
}

// timely says whether a cutover that was asked for may begin: at once if no limit was
// set, else when the forecast is within it. Where that is allowed the workload is
// slowed down in that time. If it never is, the workload was never stopped.
func (s *limiter) timely(f forecast, asked time.Time) (bool, error) {
	if s.within(f) {
		s.Log.Emit("forecast", map[string]any{"ms": report.MS(f.Total()), "limit_ms": s.Spec.Policy.MaxFrozenMS, "why": f.String()})
		return true, nil
	}
	last, err := s.slowDown(f)
	if err != nil {
		return false, err
	}
	patience := time.Duration(s.Spec.Policy.FrozenPatienceSeconds) * time.Second
	waited := time.Since(asked)
	if !last && waited <= patience {
		return false, nil
	}
	return false, fmt.Errorf("session: a cutover would pause %s for about %s. max_frozen_ms allows %d ms, and in %s there was no better moment%s: allow more, move it when it does less, or move it offline",
		s.Spec.Workload, f, s.Spec.Policy.MaxFrozenMS, min(waited, patience).Round(time.Second), s.brake.said())
}
