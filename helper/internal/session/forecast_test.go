package session

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/livefleet/handover/helper/internal/passes"
	"github.com/livefleet/handover/helper/internal/report"
	"github.com/livefleet/handover/helper/internal/session/record"
	"github.com/livefleet/handover/helper/internal/session/recovery"
)

func TestForecast(t *testing.T) {
	of := func(p record.Policy, sent ...record.Pass) *source {
		s := newSource(&record.Session{Dir: t.TempDir(), Spec: &record.Spec{Policy: p}}, &atomic.Bool{}, planted)
		s.Update(false, func(st *record.Status) { st.Passes = sent })
		return s
	}
	pass := func(payload int64, ms float64) record.Pass {
		return record.Pass{Pass: passes.Pass{Payload: payload, MS: ms}}
	}
	const mib, gib = 1 << 20, 1 << 30
	quick := pass(512*mib, 1000)
	for name, c := range map[string]struct {
		s       *source
		dirty   int64
		since   time.Duration
		looking time.Duration
		want    time.Duration
	}{
		"nothing to carry":                         {s: of(record.Policy{}), want: usualBase},
		"a trial's base":                           {s: of(record.Policy{PauseBaseMS: 500}), want: 500 * time.Millisecond},
		"memory, twice through CRIU and once over": {s: of(record.Policy{Memory: gib}, quick), want: usualBase + 2*time.Second + 2*seconds(1024./1300)},
		"a link of which nothing is known":         {s: of(record.Policy{Memory: 117 * mib}), want: usualBase + time.Second + 2*seconds(117./1300)},
		"small passes say nothing of the link":     {s: of(record.Policy{Memory: 117 * mib}, pass(mib, 1)), want: usualBase + time.Second + 2*seconds(117./1300)},
		"the best pass counts":                     {s: of(record.Policy{Memory: 512 * mib}, pass(512*mib, 4000), quick), want: usualBase + time.Second + 2*seconds(512./1300)},
		"few blocks travel beside the dump":        {s: of(record.Policy{}, quick), dirty: 10 * mib, want: usualBase},
		"many do not":                              {s: of(record.Policy{}, quick), dirty: 512 * mib, want: usualBase + time.Second - time.Duration(dumpPart*float64(usualBase))},
		"what a round leaves is less":              {s: of(record.Policy{}, quick), dirty: 512 * mib, since: 20 * roundIdle, want: usualBase},
		"and comparing takes its time":             {s: of(record.Policy{}, quick), looking: time.Second, want: usualBase + time.Second},
	} {
		c.s.collecting = c.looking
		got := c.s.foresee(c.dirty, c.since)
		if d := got.Total() - c.want; d < -time.Millisecond || d > time.Millisecond {
			t.Errorf("%s: %s, and %s wanted", name, got, c.want)
		}
		var said float64
		c.s.Look(func(st *record.Status) { said = st.ForecastMS })
		if said != report.MS(got.Total()) {
			t.Errorf("%s: the status says %v", name, said)
		}
	}
}

// Of memory that has gone ahead only what changes has to follow, and how fast it changes
// is known from the second look on.
func TestForecastOfMemoryThatHasGoneAhead(t *testing.T) {
	const mib = 1 << 20
	s := newSource(&record.Session{Dir: t.TempDir(), Spec: &record.Spec{Policy: record.Policy{Memory: 512 * mib}}}, &atomic.Bool{}, planted)
	for _, c := range []struct {
		memory ahead
		link   time.Duration
	}{
		{ahead{}, seconds(512. / 117)},
		{ahead{scans: 1, fresh: 512 * mib, rate: 256 * mib}, 2 * time.Second},
		{ahead{scans: 1, told: true, fresh: 64 * mib, rate: 256 * mib}, 250 * time.Millisecond},
		{ahead{scans: 2, told: true, rate: 256 * mib}, 0},
	} {
		s.memory = c.memory
		want := usualBase + 2*seconds(512./1300) + c.link
		if d := s.foresee(0, 0).Total() - want; d < -time.Millisecond || d > time.Millisecond {
			t.Errorf("%+v: off by %s", c.memory, d)
		}
	}
}

func TestForecastOnABusyHost(t *testing.T) {
	copies := 0.0
	busy := Options{parts: parts{howBusy: func() float64 { return 4 }, copyRate: func() float64 { return copies }}}
	s := newSource(&record.Session{Dir: t.TempDir(), Spec: &record.Spec{Policy: record.Policy{Memory: 1300 << 20}}}, &atomic.Bool{}, busy)
	s.memory = ahead{scans: 2, told: true}
	if got, want := s.foresee(0, 0).Total(), 4*usualBase+8*time.Second; got != want {
		t.Errorf("%s, and %s wanted", got, want)
	}
	// A measured rate has that in it.
	copies = criuCopies * (650 << 20)
	if got, want := s.foresee(0, 0).Total(), 4*usualBase+4*time.Second; got != want {
		t.Errorf("%s, and %s wanted", got, want)
	}
	// Placed memory does not go through CRIU.
	s.memory.there = true
	if got, want := s.foresee(0, 0).Memory, seconds(placedWays/criuWays*4); got != want {
		t.Errorf("%s of memory that is placed, and %s wanted", got, want)
	}
	f := forecast{Base: 4 * usualBase, busy: 4}
	if said := f.String(); !strings.Contains(said, "800 ms in any case") || !strings.HasSuffix(said, "; the processors are busy, and all takes 4.0 times as long") {
		t.Error(said)
	}
	f.busy = 1
	if said := f.String(); strings.Contains(said, "busy") {
		t.Error(said)
	}
}

// holdMemory starts one more task of the workload, which has so much memory until
// it is let go.
func (r *rig) holdMemory(bytes int) (letGo func()) {
	r.t.Helper()
	task := exec.Command("python3", "-c", fmt.Sprintf("import time; own = bytearray(b'x') * %d; print(flush=True); time.sleep(600)", bytes))
	out, err := task.StdoutPipe()
	if err == nil {
		err = task.Start()
	}
	if err != nil {
		r.t.Fatal(err)
	}
	letGo = sync.OnceFunc(func() { _ = task.Process.Kill(); _ = task.Wait() })
	r.t.Cleanup(letGo)
	if _, err := out.Read(make([]byte, 1)); err != nil {
		r.t.Fatal(err)
	}
	procs := filepath.Join(string(r.spec.src.Hooks.Freeze.Cgroup), "cgroup.procs")
	if err := os.WriteFile(procs, []byte(strconv.Itoa(task.Process.Pid)), 0); err != nil {
		r.t.Fatal(err)
	}
	return letGo
}

// A pause that would be longer than allowed is not begun, and the workload was
// never stopped.
func TestAPauseThatWouldBeTooLongIsNotBegun(t *testing.T) {
	r := newRig(t)
	r.spec.src.Policy.MaxFrozenMS, r.spec.src.Policy.FrozenPatienceSeconds = 100, 1
	w := r.startWriter()
	r.start()
	r.wait(r.src, record.UntilConverged)
	src, dst := r.cutover()
	for _, said := range []string{"would pause shop for about", "ms in any case", "max_frozen_ms allows 100 ms", "allow more, move it when it does less, or move it offline"} {
		if !strings.Contains(src.Error, said) {
			t.Errorf("the source says %q, and not %q", src.Error, said)
		}
	}
	if src.State != record.Failed || !dst.Ended || src.FrozenMS != 0 {
		t.Errorf("the source is %s, frozen for %v ms, and the destination %s", src.State, src.FrozenMS, dst.State)
	}
	r.runsOnce(w, record.Source)
}

// The better moment comes: what is in the way goes while the cutover waits.
func TestACutoverWaitsForABetterMoment(t *testing.T) {
	r := newRig(t)
	r.spec.src.Policy.MaxFrozenMS = 1200
	r.withCgroup()
	letGo := r.holdMemory(512 << 20) // a second through CRIU alone
	w := r.startWriter()
	r.start()
	r.wait(r.src, record.UntilConverged)
	time.AfterFunc(time.Second, letGo)
	go func() { _, _ = recovery.Cutover(context.Background(), r.src) }()
	r.moved(w)
	r.event(r.src, `"event":"forecast"`)
}
