// Package report writes down events, for machines first: one JSON object a line.
//
// Every event has
//
//	time     wall clock, UTC, RFC 3339 with nanoseconds: to line hosts up by eye
//	mono_ns  CLOCK_MONOTONIC of this host: to subtract; comparable between all
//	         processes of one host and of one boot, and with nothing else
//	event    the event, one of the project's own words
//
// followed by the event's fields in alphabetical order. A line is written with
// one call of Write, so that lines of several goroutines do not mix.
//
// Timings is the table at the end: stages in the order they began, each with
// how long it took.
package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Log writes events. A nil *Log takes events and drops them.
type Log struct {
	mu  sync.Mutex
	w   io.Writer
	err error
}

// NewWriter makes a Log that writes to w.
func NewWriter(w io.Writer) *Log { return &Log{w: w} }

// Emit writes one event. The names time, mono_ns and event belong to the line
// itself; a field of such a name is written with "field_" in front, never in
// place of it. A log that cannot be written stops no migration: the first error
// is kept for Err.
func (l *Log) Emit(event string, fields map[string]any) {
	if l == nil {
		return
	}
	line, err := encode(time.Now(), MonotonicNS(), event, fields)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		_, err = l.w.Write(line)
	}
	if err != nil && l.err == nil {
		l.err = fmt.Errorf("report: event %q could not be written: %w", event, err)
	}
}

// Err returns the first error of writing, if there was one.
func (l *Log) Err() error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// MonotonicNS is the clock that mono_ns is read from.
func MonotonicNS() int64 {
	var ts unix.Timespec
	// CLOCK_MONOTONIC is always there on Linux, and the pointer is good: this
	// call has no way to fail.
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return ts.Nano()
}

func encode(now time.Time, mono int64, event string, fields map[string]any) ([]byte, error) {
	var b bytes.Buffer
	name, err := json.Marshal(event)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(&b, `{"time":%q,"mono_ns":%d,"event":%s`, now.UTC().Format(time.RFC3339Nano), mono, name)
	keys := make([]string, 0, len(fields))
	for k := range fields {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		v := fields[k]
		if e, ok := v.(error); ok { // an error has no JSON of its own: use its text
			v = e.Error()
		}
		value, err := json.Marshal(v)
		if err != nil {
			return nil, fmt.Errorf("field %q: %w", k, err)
		}
		switch k {
		case "time", "mono_ns", "event":
			k = "field_" + k
		}
		key, err := json.Marshal(k)
		if err != nil {
			return nil, err
		}
		b.WriteByte(',')
		b.Write(key)
		b.WriteByte(':')
		b.Write(value)
	}
	b.WriteString("}\n")
	return b.Bytes(), nil
}

// Timings is a list of stages with their durations, in the order in which they
// were first named. The zero value is ready for use.
type Timings struct {
	mu     sync.Mutex
	stages []Stage
}

// Stage is one row of a Timings.
type Stage struct {
	Name     string
	Duration time.Duration
}

// Start begins a stage and returns the function that ends it and gives its
// duration. The row is in the table from the start, so that rows stand in the
// order in which stages began.
func (t *Timings) Start(name string) (stop func() time.Duration) {
	t.Add(name, 0)
	began := time.Now()
	var once sync.Once
	var took time.Duration
	return func() time.Duration {
		once.Do(func() {
			took = time.Since(began)
			t.Add(name, took)
		})
		return took
	}
}

// Add adds d to a stage, which it makes if it is not there yet.
func (t *Timings) Add(name string, d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if i := t.find(name); i >= 0 {
		t.stages[i].Duration += d
		return
	}
	t.stages = append(t.stages, Stage{name, d})
}

// Get returns a stage's duration and whether the stage is there.
func (t *Timings) Get(name string) (time.Duration, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if i := t.find(name); i >= 0 {
		return t.stages[i].Duration, true
	}
	return 0, false
}

// Stages returns a copy of all rows.
func (t *Timings) Stages() []Stage {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.stages)
}

func (t *Timings) find(name string) int {
	return slices.IndexFunc(t.stages, func(s Stage) bool { return s.Name == name })
}

// MarshalJSON writes one object, stage name to seconds, in the table's order.
func (t *Timings) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, s := range t.Stages() {
		if i > 0 {
			b.WriteByte(',')
		}
		name, err := json.Marshal(s.Name)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&b, "%s:%.6f", name, s.Duration.Seconds())
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// UnmarshalJSON reads the output of MarshalJSON, in its order.
func (t *Timings) UnmarshalJSON(data []byte) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	if tok, err := dec.Token(); err != nil || tok != json.Delim('{') {
		return fmt.Errorf("report: timings are not a JSON object")
	}
	var stages []Stage
	for dec.More() {
		tok, err := dec.Token()
		if err != nil {
			return fmt.Errorf("report: timings: %w", err)
		}
		var seconds float64
		if err := dec.Decode(&seconds); err != nil {
			return fmt.Errorf("report: timings: stage %q: %w", tok, err)
		}
		name, _ := tok.(string) // the keys of an object are strings
		stages = append(stages, Stage{name, time.Duration(seconds * float64(time.Second))})
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stages = stages
	return nil
}
