// Package metrics tells a monitoring of the sessions of a host: those that are there, and the sum of those that have ended.
//
// A session's folder is removed at the end of a move, so its figures are kept in a tally beside the folder of all sessions. Whoever
// sees a session that has ended counts it: its unit's last command, an operator's order, and the command that writes the metrics.
// The tally names the counted sessions whose folders are still there, so each counts once.
package metrics

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/session/record"
)

// mostWorkloads bounds the tally: those that moved last stay.
const mostWorkloads = 500

// pauseBounds are the upper bounds of the pauses' histogram, in seconds.
var pauseBounds = []float64{0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60}

// Tally is the sum of all sessions of this host that have ended.
type Tally struct {
	Counted   []string             `json:"counted"` // folders that are still there
	Ended     map[Ending]int64     `json:"ended"`
	SentBytes int64                `json:"sent_bytes"`
	Pauses    map[string]*Pauses   `json:"pauses"` // by mode
	Workloads map[string]*Workload `json:"workloads"`
}

// Ending is the kind of an end.
type Ending struct {
	Role  record.Role
	Mode  string
	State record.State
}

// MarshalText makes it the name of a member.
func (e Ending) MarshalText() ([]byte, error) {
	return fmt.Appendf(nil, "%s %s %s", e.Role, e.Mode, e.State), nil
}

// UnmarshalText reads such a name.
func (e *Ending) UnmarshalText(text []byte) error {
	_, err := fmt.Sscan(string(text), &e.Role, &e.Mode, &e.State)
	return err
}

// Pauses are the times for which workloads stood still.
type Pauses struct {
	Within  []int64 `json:"within"` // how many were within each of pauseBounds
	Count   int64   `json:"count"`
	Seconds float64 `json:"seconds"`
}

// Workload is the last that happened to one.
type Workload struct {
	Pause   *Pause   `json:"pause,omitempty"`
	Failure *Failure `json:"failure,omitempty"`
}

// Pause is the last one.
type Pause struct {
	At      time.Time `json:"at"`
	Mode    string    `json:"mode"`
	Seconds float64   `json:"seconds"`
}

// Failure is the last end of a session that handed nothing over.
type Failure struct {
	At    time.Time    `json:"at"`
	Role  record.Role  `json:"role"`
	State record.State `json:"state"`
}

// Count adds the session in dir to the tally if it has ended and was not counted before.
func Count(dir string) error {
	s, err := look(dir)
	if err != nil || !s.Ended {
		return err
	}
	_, err = change(filepath.Dir(filepath.Clean(dir)), []session{s})
	return err
}

// CountAll does so with every session below root.
func CountAll(root string) error {
	all, _, err := list(root)
	if err == nil {
		_, err = change(root, all)
	}
	return err
}

// change counts the sessions that have ended, and hands the tally out. It holds a lock on the folder of the sessions, so that
// two that count at once do not lose each other's.
func change(root string, all []session) (*Tally, error) {
	lock, err := os.Open(root)
	if errors.Is(err, os.ErrNotExist) {
		return load(root) // no session was here ever
	} else if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return nil, fmt.Errorf("metrics: locking %s: %w", root, err)
	}
	t, damaged := load(root)
	changed := damaged != nil // so that it is told once
	for _, s := range all {
		changed = s.Ended && t.add(s) || changed
	}
	if !changed {
		return t, nil
	}
	t.forget(root)
	data, err := json.Marshal(t)
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	return t, errors.Join(damaged, replace(tallyFile(root), data, 0o600))
}

func tallyFile(root string) string { return filepath.Clean(root) + ".tally.json" }

// load reads it. One that is damaged is told, and begun anew: the counters' readers know such a reset.
func load(root string) (*Tally, error) {
	t := &Tally{}
	data, err := os.ReadFile(tallyFile(root))
	if err == nil {
		err = json.Unmarshal(data, t)
	}
	if err == nil {
		err = t.check()
	}
	if err != nil {
		t = &Tally{}
	}
	if t.Ended == nil {
		t.Ended = map[Ending]int64{}
	}
	if t.Pauses == nil {
		t.Pauses = map[string]*Pauses{}
	}
	if t.Workloads == nil {
		t.Workloads = map[string]*Workload{}
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return t, fmt.Errorf("metrics: %s cannot be read, and the counters begin at 0: %w", tallyFile(root), err)
	}
	return t, nil
}

func (t *Tally) check() error {
	for mode, p := range t.Pauses {
		if p == nil || len(p.Within) != len(pauseBounds) {
			return fmt.Errorf("the pauses of the mode %s have other bounds", mode)
		}
	}
	for name, w := range t.Workloads {
		if w == nil {
			return fmt.Errorf("nothing is told of the workload %s", name)
		}
	}
	return nil
}

// add counts a session that has ended.
func (t *Tally) add(s session) bool {
	if slices.Contains(t.Counted, s.folder) {
		return false
	}
	t.Counted = append(t.Counted, s.folder)
	t.Ended[Ending{s.Role, s.Mode, s.State}]++
	t.SentBytes += s.sent()
	if s.Workload == "" {
		return true
	}
	w := t.Workloads[s.Workload]
	if w == nil {
		w = &Workload{}
		t.Workloads[s.Workload] = w
	}
	// The source's clock knows the pause; the destination's status has none.
	if s.Role == record.Source && s.FrozenMS > 0 {
		w.Pause = &Pause{s.since, s.Mode, s.FrozenMS / 1000}
		if t.Pauses[s.Mode] == nil {
			t.Pauses[s.Mode] = &Pauses{Within: make([]int64, len(pauseBounds))}
		}
		t.Pauses[s.Mode].add(s.FrozenMS / 1000)
	}
	if s.failed() {
		w.Failure = &Failure{s.since, s.Role, s.State}
	}
	return true
}

func (p *Pauses) add(seconds float64) {
	p.Count++
	p.Seconds += seconds
	for i, bound := range pauseBounds {
		if seconds <= bound {
			p.Within[i]++
		}
	}
}

// forget drops the sessions whose folders are gone, and the workloads that moved longest ago.
func (t *Tally) forget(root string) {
	t.Counted = slices.DeleteFunc(t.Counted, func(id string) bool {
		_, err := os.Lstat(filepath.Join(root, id))
		return errors.Is(err, os.ErrNotExist)
	})
	names := sorted(t.Workloads)
	if len(names) <= mostWorkloads {
		return
	}
	slices.SortStableFunc(names, func(a, b string) int { return t.Workloads[b].last().Compare(t.Workloads[a].last()) })
	for _, name := range names[mostWorkloads:] {
		delete(t.Workloads, name)
	}
}

// last is when anything happened to it.
func (w *Workload) last() (at time.Time) {
	if w.Pause != nil {
		at = w.Pause.At
	}
	if w.Failure != nil && w.Failure.At.After(at) {
		at = w.Failure.At
	}
	return at
}
