package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestLineIsExact(t *testing.T) {
	at := time.Date(2026, 11, 21, 4, 5, 6, 789, time.FixedZone("", 3600))
	line, err := encode(at, 42, "frozen", map[string]any{
		"volume": "data", "bytes": 65536, "error": errors.New("no \"way\""), "time": "x", "event": "y", "mono_ns": 0,
	})
	const want = `{"time":"2026-11-21T03:05:06.000000789Z","mono_ns":42,"event":"frozen",` +
		`"bytes":65536,"error":"no \"way\"","field_event":"y","field_mono_ns":0,"field_time":"x","volume":"data"}` + "\n"
	if err != nil || string(line) != want {
		t.Errorf("%v\n got %s\nwant %s", err, line, want)
	}
}

func TestLinesOfManyWriters(t *testing.T) {
	var b bytes.Buffer
	l := NewWriter(&b)
	var wg sync.WaitGroup
	for range 8 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := range 50 {
				l.Emit("progress", map[string]any{"i": i})
			}
		}()
	}
	wg.Wait()
	lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	if len(lines) != 400 {
		t.Fatal(len(lines), "lines")
	}
	for _, line := range lines {
		var e struct {
			Time  time.Time `json:"time"`
			Mono  int64     `json:"mono_ns"`
			Event string    `json:"event"`
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil || e.Event != "progress" || e.Mono <= 0 || e.Time.IsZero() {
			t.Fatalf("%v: %s", err, line)
		}
	}
	if l.Err() != nil {
		t.Error(l.Err())
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestErrorsAreKept(t *testing.T) {
	l := NewWriter(failing{})
	l.Emit("first", nil)
	l.Emit("second", nil)
	if err := l.Err(); !errors.Is(err, io.ErrClosedPipe) || !strings.Contains(err.Error(), `event "first" could not be written`) {
		t.Error(err)
	}
	l = NewWriter(io.Discard)
	l.Emit("bad", map[string]any{"f": func() {}})
	if err := l.Err(); err == nil || !strings.Contains(err.Error(), `field "f"`) {
		t.Error(err)
	}
	var none *Log
	none.Emit("dropped", nil)
	if none.Err() != nil {
		t.Error(none.Err())
	}
}

func TestTimings(t *testing.T) {
	var tm Timings
	outer := tm.Start("cutover")
	inner := tm.Start("dump")
	tm.Add("restore", 1500*time.Microsecond)
	tm.Add("restore", 500*time.Microsecond)
	d1, d2 := inner(), inner()
	if d1 != d2 || d1 < 0 {
		t.Error("stopping twice counts twice:", d1, d2)
	}
	outer()
	var names []string
	for _, s := range tm.Stages() {
		names = append(names, s.Name)
	}
	if got := strings.Join(names, " "); got != "cutover dump restore" {
		t.Error(got)
	}
	if d, ok := tm.Get("dump"); !ok || d != d1 {
		t.Error(d, ok)
	}
	if _, ok := tm.Get("nothing"); ok {
		t.Error("there is no such stage")
	}

	fixed := &Timings{}
	fixed.Add("z", 1234567*time.Microsecond)
	fixed.Add("a", 0)
	b, err := json.Marshal(fixed)
	if err != nil || string(b) != `{"z":1.234567,"a":0.000000}` {
		t.Errorf("%v %s", err, b)
	}
	var back Timings
	if err := json.Unmarshal(b, &back); err != nil {
		t.Fatal(err)
	}
	if got, want := back.Stages(), fixed.Stages(); len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Error(got, want)
	}
	for _, bad := range []string{`[]`, `{"a":"b"}`, `7`} {
		if err := json.Unmarshal([]byte(bad), &back); err == nil {
			t.Errorf("%s was taken for timings", bad)
		}
	}
}

func TestMonotonic(t *testing.T) {
	if a, b := MonotonicNS(), MonotonicNS(); a <= 0 || b < a {
		t.Error(a, b)
	}
}
