package metrics

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/livefleet/handover/helper/internal/session/record"
)

// session is one whose folder is there.
type session struct {
	*record.Status
	folder string
	since  time.Time // in its state
}

// look tells where a session stands, and since when.
func look(dir string) (session, error) {
	s, err := record.Show(dir)
	if err != nil {
		return session{}, err
	}
	j, err := record.ReadJournal(dir, s.Role)
	if err != nil {
		return session{}, err
	}
	if all := j.Records(); len(all) > 0 {
		if s.FrozenMS == 0 && s.State == record.Thawed {
			s.FrozenMS = thawedAfter(all)
		}
		return session{s, filepath.Base(dir), all[len(all)-1].Time}, nil
	}
	began, err := os.Stat(filepath.Join(dir, record.SpecFile))
	if err != nil {
		return session{}, fmt.Errorf("metrics: %w", err)
	}
	return session{s, filepath.Base(dir), began.ModTime()}, nil
}

// thawedAfter is for how many milliseconds a workload stood still that then ran on: a source measures only the pause of one that
// has moved. After a boot there was nothing to thaw.
func thawedAfter(all []record.Record) float64 {
	last := all[len(all)-1]
	for _, r := range all {
		if r.State == record.Frozen && r.Boot == last.Boot {
			return float64(last.Time.Sub(r.Time).Microseconds()) / 1000
		}
	}
	return 0
}

// list looks at every session below root. One that cannot be read is named, and hides no other.
func list(root string) (all []session, unreadable []string, err error) {
	entries, err := os.ReadDir(root)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, nil, fmt.Errorf("metrics: %w", err)
	}
	for _, e := range entries {
		dir := filepath.Join(root, e.Name())
		has := func() bool { _, err := os.Stat(filepath.Join(dir, record.SpecFile)); return err == nil }
		if !has() {
			continue
		}
		s, err := look(dir)
		switch {
		case err == nil:
			all = append(all, s)
		case has(): // it was not removed meanwhile
			unreadable = append(unreadable, e.Name())
		}
	}
	return all, unreadable, nil
}

// sent are the bytes that a source has sent. A destination's are those of its peer.
func (s session) sent() int64 {
	if s.Role != record.Source {
		return 0
	}
	return s.SentBytes
}

// failed reports whether a session ended without its aim. A trial ends with the workload thawed.
func (s session) failed() bool {
	return s.State != record.Done && !(s.Mode == record.Trial && s.State == record.Thawed)
}

// held reports whether a workload stands still until an operator, or the play that is run again, tells its session the outcome.
func (s session) held() bool { return !s.Ended && (s.Held || s.State == record.InDoubt) }

// states are all of a side, in the order in which it comes to them.
func states(role record.Role) []record.State {
	found := []record.State{record.Prepare}
	for i := 0; i < len(found); i++ {
		for _, next := range record.Next(role, found[i]) {
			if !slices.Contains(found, next) {
				found = append(found, next)
			}
		}
	}
	return found
}

// writeSessions tells of the sessions that are there.
func (p *page) writeSessions(all []session, unreadable []string) {
	p.family("handover_sessions", "gauge", "Sessions whose folders are on this host, by the state in which they are.")
	for _, role := range []record.Role{record.Source, record.Destination} {
		for _, state := range states(role) {
			count := 0
			for _, s := range all {
				if s.Role == role && s.State == state {
					count++
				}
			}
			p.series("handover_sessions", float64(count), label{"role", string(role)}, label{"state", string(state)})
		}
	}
	p.family("handover_sessions_unreadable", "gauge", "Sessions of which a file is damaged, so that their state is not known.")
	p.series("handover_sessions_unreadable", float64(len(unreadable)))
	each := []struct {
		name, help string
		value      func(session) float64
	}{
		{"handover_session_held", "1 if the session waits to be told the outcome; unless it is resumed, the workload stands still.", func(s session) float64 { return yes(s.held()) }},
		{"handover_session_served", "1 if a process serves the session.", func(s session) float64 { return yes(s.Running) }},
		{"handover_session_state_timestamp_seconds", "When the session came to its state.", func(s session) float64 { return seconds(s.since) }},
	}
	for _, m := range each {
		p.family(m.name, "gauge", m.help)
		for _, s := range all {
			// One that has ended is told below; one in prepare has not been started.
			if !s.Ended && s.State != record.Prepare {
				p.series(m.name, m.value(s), label{"session", s.ID}, label{"workload", s.Workload}, label{"role", string(s.Role)}, label{"state", string(s.State)})
			}
		}
	}
}
