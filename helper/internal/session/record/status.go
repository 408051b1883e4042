package record

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/passes"
)

// Status is the state of a session, for display. The journal decides; the rest is for
// the eye.
type Status struct {
	ID         string   `json:"id"`
	Role       Role     `json:"role"`
	Workload   string   `json:"workload"`
	Mode       string   `json:"mode"`
	State      State    `json:"state"`
	Ended      bool     `json:"ended"`
	Running    bool     `json:"running"`   // a process serves it now
	Held       bool     `json:"held"`      // source: frozen until an operator resolves it
	Fenced     bool     `json:"fenced"`    // an operator ordered the source to go on without the destination
	Restarted  bool     `json:"restarted"` // the host was booted since the session began
	Error      string   `json:"error"`
	Listen     string   `json:"listen,omitempty"`
	Waits      int64    `json:"waits,omitempty"` // source: how many that began earlier copy before it does
	Converged  bool     `json:"converged"`
	Why        string   `json:"converged_why,omitempty"`
	Pass       int      `json:"pass"`
	Passes     []Pass   `json:"passes"`
	TotalBytes int64    `json:"total_bytes"`
	SentBytes  int64    `json:"sent_bytes"`
	DoneBytes  int64    `json:"done_bytes"` // of this pass, read or received
	PassBytes  int64    `json:"pass_bytes"` // all of this pass
	DirtyBytes int64    `json:"dirty_bytes"`
	Rate       int64    `json:"rate"`                  // bytes per second
	ForecastMS float64  `json:"forecast_ms,omitempty"` // source, converged: how long the pause of a cutover now would be
	Throttle   int      `json:"throttle,omitempty"`    // source: percent of its processor time that the workload is without now
	Tracker    string   `json:"tracker,omitempty"`
	Stages     []Stage  `json:"stages"`
	FrozenMS   float64  `json:"frozen_ms"`
	AtRiskMS   float64  `json:"at_risk_ms,omitempty"`  // lazy pages, source: after the pause, until the workload needed this host no more
	Totals     []string `json:"totals,omitempty"`      // by volume: the ledger's sum, on the source of the sent data, on the destination of the written ones
	StateBytes int64    `json:"state_bytes,omitempty"` // trial: of the dump, and the other data of the pause
	Reconnects int      `json:"reconnects,omitempty"`  // how often a broken connection was made again
	Broken     string   `json:"broken,omitempty"`      // the connection is broken, and why
	Fetch      *Fetch   `json:"fetch,omitempty"`       // lazy pages: memory that has followed
	Verify     *Verify  `json:"verify,omitempty"`

	oldStatus
}

// Fetch is how much of the memory has followed.
type Fetch struct {
	Total   int64  `json:"total"` // bytes
	Fetched int64  `json:"fetched"`
	Sent    int64  `json:"sent"`   // bytes over the link for that
	Faults  int64  `json:"faults"` // the number of times that a task waited for a page
	Broken  string `json:"broken,omitempty"`
}

// Pass is one walk over the dirty clusters.
type Pass struct {
	passes.Pass
	Files      int    `json:"files,omitempty"`      // of directory volumes, that were sent or removed
	Everything string `json:"everything,omitempty"` // why every entry of a directory volume was looked at, if that was so
}

// Stage is a piece of the cutover; stages overlap. Start counts from the
// moment in which the workload is told to stop.
type Stage struct {
	Stage string  `json:"stage"`
	Start float64 `json:"start_ms"`
	MS    float64 `json:"ms"`
}

// Verify is the result of the comparison of the frozen source with the destination: a
// digest for each volume, in hexadecimal.
type Verify struct {
	Checked     bool              `json:"checked"`
	Source      map[string]string `json:"source"`
	Destination map[string]string `json:"destination"`
}

// Show tells where the session in dir stands.
func Show(dir string) (*Status, error) {
	spec, err := LoadSpec(dir)
	if err != nil {
		return nil, err
	}
	// Ask for a process before reading the journal: a process that ends in between
	// has then written its last record. And read the journal before the figures, which
	// are written first: a session that has ended is told with all of them.
	running, err := served(dir)
	if err != nil {
		return nil, err
	}
	j, s, err := told(func() (*Journal, error) { return ReadJournal(dir, spec.Role) }, func() (*Status, error) { return figures(dir, spec) })
	if err != nil {
		return nil, err
	}
	s.Running, s.State = running, j.State()
	for _, r := range j.known() {
		if r.Why != "" {
			s.Error = r.Why
		}
	}
	s.Ended = s.State.Ended()
	s.Fenced = j.Reached(Fenced)
	s.Restarted = j.OfAnEarlierBoot()
	if !s.Running && s.Error == "" && (s.State == Resumed || s.State == InDoubt) && Lost(dir, spec) {
		s.Error = LostText(spec)
	}
	if !s.Running && s.Error == "" {
		s.whyGone(dir)
	}
	return s.filled(), nil
}

// figures are those that the session's process has written.
func figures(dir string, spec *Spec) (*Status, error) {
	s := &Status{ID: spec.ID, Role: spec.Role, Workload: spec.Workload, Mode: spec.Mode}
	if data, err := os.ReadFile(filepath.Join(dir, StatusFile)); err == nil {
		if err := json.Unmarshal(data, s); err != nil {
			return nil, fmt.Errorf("session: %s: %w", filepath.Join(dir, StatusFile), err)
		}
		s.takeOldNames()
	}
	return s, nil
}

// told reads a journal, and then the figures, once more where these are of a state that the
// journal did not have yet: a side would be told as held before it is in doubt. A loss of
// power may have taken the records, and left the figures: then it is read a few times.
func told(journal func() (*Journal, error), figures func() (*Status, error)) (j *Journal, s *Status, err error) {
	for range 3 {
		if j, err = journal(); err != nil {
			return nil, nil, err
		}
		if s, err = figures(); err != nil {
			return nil, nil, err
		}
		if s.State == "" || s.State == Prepare || j.Reached(s.State) {
			break
		}
	}
	return j, s, nil
}

// whyGone explains a session without a process, and the way out.
func (s *Status) whyGone(dir string) {
	if s.restartable() {
		// A source in presync writes its status several times a second.
		if at, err := os.Stat(filepath.Join(dir, StatusFile)); err == nil && time.Since(at.ModTime()) < RestartPatience {
			s.Broken = "its process died, and may be started again"
			return
		}
	}
	if !s.Ended && (s.State != Prepare || s.Listen != "") {
		way := "`pcopy session abort %[2]s` cleans up behind it"
		if s.State == Released || s.State == InDoubt || s.State == Resumed {
			way = "ask the other host's session what became of the workload, and then `pcopy session resolve %[2]s`"
		}
		if s.restartable() {
			way = "it can be started again (`pcopy send --session %[2]s`) for as long as the destination waits, or `pcopy session abort %[2]s` cleans up behind it"
		}
		s.Error = fmt.Sprintf("the pcopy process of this session is gone, in the state %[1]q: "+way, s.State, dir)
	}
}

// filled has lists where there is nothing to list, and the old names.
func (s *Status) filled() *Status {
	if s.Passes == nil {
		s.Passes = []Pass{}
	}
	if s.Stages == nil {
		s.Stages = []Stage{}
	}
	s.withOldNames()
	return s
}

// RestartPatience is how long a source's unit has to start its process again when it
// died in presync, before it counts as gone.
const RestartPatience = 10 * time.Second

// restartable reports whether another process may go on where this session's died.
func (s *Status) restartable() bool { return s.Role == Source && s.State == Presync && s.Mode != Trial }

// ReadJournal reads the journal without making one.
func ReadJournal(dir string, role Role) (*Journal, error) {
	if _, err := os.Stat(filepath.Join(dir, JournalFile)); errors.Is(err, os.ErrNotExist) {
		return &Journal{role: role}, nil
	}
	j, err := OpenJournal(dir, role)
	if err != nil {
		return nil, err
	}
	return j, j.Close()
}

// served reports whether a process holds the session's lock.
func served(dir string) (bool, error) {
	f, err := os.Open(filepath.Join(dir, LockFile))
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	} else if err != nil {
		return false, fmt.Errorf("session: %w", err)
	}
	defer f.Close()
	// A shared lock, so that two readers do not see each other.
	err = unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return true, nil
	}
	return false, err
}

// List shows every session below root, by name.
func List(root string) ([]*Status, error) {
	entries, err := os.ReadDir(root)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("session: %w", err)
	}
	all := []*Status{}
	for _, e := range entries {
		dir := filepath.Join(root, e.Name())
		if _, err := os.Stat(filepath.Join(dir, SpecFile)); err != nil {
			continue
		}
		s, err := Show(dir)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// Words that Wait takes in addition to the states.
const (
	UntilListening = "listening"
	UntilConverged = "converged"
	UntilEnded     = "ended"
	UntilHeld      = "held" // source: released, frozen, and waiting for an operator to resolve it
)

// Wait waits until the session in dir has come to one of the words: states, or
// listening, converged, ended. A session that ends otherwise, or whose process
// is gone, ends the wait with an error.
func Wait(ctx context.Context, dir string, until []string) (*Status, error) {
	for {
		s, err := Show(dir)
		if err != nil {
			return nil, err
		}
		for _, u := range until {
			switch {
			case string(s.State) == u,
				u == UntilListening && s.Listen != "",
				u == UntilConverged && s.Converged,
				u == UntilHeld && s.Held,
				u == UntilEnded && s.Ended:
				return s, nil
			}
		}
		if s.Ended || s.Held || !s.Running && s.Error != "" {
			why := s.Error
			if why == "" {
				why = "it gave no reason"
			}
			return s, fmt.Errorf("session %s is %s and will not be %v: %s", s.ID, s.State, until, why)
		}
		select {
		case <-ctx.Done():
			return s, fmt.Errorf("session %s is still %s (pass %d) and not yet %v: the time is up", s.ID, s.State, s.Pass, until)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// SetVerify notes the digests of a comparison.
func (s *Status) SetVerify(source, destination map[string]string) {
	s.Verify = &Verify{Checked: true, Source: source, Destination: destination}
}

// AddStage notes a stage and keeps them in the order of their start.
func (s *Status) AddStage(st Stage) {
	s.Stages = append(slices.Clone(s.Stages), st)
	slices.SortStableFunc(s.Stages, func(a, b Stage) int {
		switch {
		case a.Start < b.Start:
			return -1
		case a.Start > b.Start:
			return 1
		}
		return 0
	})
}

// CRIULeavesMemory says that CRIU dumps, and restores, without the memory's content.
func CRIULeavesMemory(dir string, spec *Spec) bool {
	if !spec.Policy.PlaceMemory {
		return spec.Policy.LazyPages
	}
	_, err := os.Lstat(filepath.Join(dir, PlacingFile))
	return err == nil
}

// Lost says that a destination's memory has not all come.
func Lost(dir string, spec *Spec) bool {
	if !spec.Policy.LazyPages || spec.Role != Destination {
		return false
	}
	_, err := os.Lstat(filepath.Join(dir, FetchedFile))
	return err != nil
}

// LostText says so, with the way out.
func LostText(spec *Spec) string {
	return fmt.Sprintf("%[1]s was ended on the destination: part of its memory was on the source still when this side stopped (lazy pages). On the source its tasks stand as they were when it was frozen. "+
		"To have it go on there from that moment, without what it did since: `pcopy session resolve --outcome fenced` for the session %[2]s on the destination, and then on the source. "+
		"To give its memory up and start it again on the destination: `--outcome resumed` on the source, and then on the destination", spec.Workload, spec.ID)
}
