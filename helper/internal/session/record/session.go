// Package record keeps all that a session has on disk, and reads it where no process serves the session: the spec with its
// rules, the journal with the table of states, the status, the marks, and the socket for requests.
//
// A session is a folder on each host. It holds
//
//	spec.json     the session's task, written by the controller (Spec)
//	identity/     this side's key for the one connection
//	journal       the states this side has reached, one record a line
//	events.jsonl  the events, for reports
//	status.json   its state, for display (Status)
//	control.sock  requests to the running process: cutover, abort, resolve, start
//	lock          held (flock) by the running process
//	throttle      source: the limit of processor time that is to be put back
//	made          destination: the paths that it made, or was about to make
//	criu.conf     lazy pages: CRIU's further options
//	fetched       lazy pages, destination: all memory has come
//	placing       CRIU leaves the memory alone: it is placed
//	continue      a rehearsal goes on (Policy.PauseAt)
//
// The states, in the order in which a side reaches them, and the action of a side
// that stops in one of them:
//
//	source                            destination
//	prepare                           prepare
//	presync    nothing is frozen      presync     discards
//	barrier    nothing is frozen      barrier     discards
//	frozen     thaws                  frozen      discards
//	flushed    thaws                  flushed     discards
//	prepared   thaws                  prepared    refuses, discards
//	released   stays frozen, asks     released    resumes
//	resumed    reclaims               resumed     runs
//	settled    reclaims               settled     runs
//	done                              done
//
// Other ends: source failed (nothing was frozen), thawed (runs on), in_doubt
// (released, and the outcome is not known: frozen until an operator resolves it);
// destination refused, discarded. Both: fenced, when an operator had the destination
// switched off and ordered the source to continue without it.
package record

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/report"
)

// Files of a session's folder.
const (
	SpecFile     = "spec.json"
	IdentityDir  = "identity"
	JournalFile  = "journal"
	EventsFile   = "events.jsonl"
	StatusFile   = "status.json"
	controlFile  = "control.sock"
	LockFile     = "lock"
	ThrottleFile = "throttle"
	madeFile     = "made"
	continueFile = "continue"
	CRIUFile     = "criu.conf"
	FetchedFile  = "fetched"
	PlacingFile  = "placing"
	// RunsFile is there as long as the session has not frozen the workload's cgroup: if it
	// stands still, somebody else has stopped it, and only they let it go on.
	RunsFile     = "runs"
	WorkloadLock = "locks"
)

// RunDir is where gates and locks live: gone after a reboot, like the tasks that they
// guard.
const RunDir = "/run/handover"

// SharesDir is where the sessions that copy at the moment are counted, and turnsDir
// where those stand in line that copy a few at a time.
const (
	SharesDir = "shares"
	TurnsDir  = "turns"
)

// Session is the common part of both sides of a session.
type Session struct {
	Dir     string
	RunDir  string
	Spec    *Spec
	Journal *Journal
	Log     *report.Log
	locks   []*os.File
	events  *os.File
	Control *control
	Heed    Heed // of a pause for a rehearsal

	mu      sync.Mutex
	status  Status
	written time.Time
}

// Open locks a session's folder: no other process serves it now, and no other session
// moves the workload. mayStart is asked whether its container may be started on this
// host.
func Open(dir, runDir string, role Role, mayStart func(restores bool) error) (_ *Session, err error) {
	spec, err := LoadSpec(dir)
	if err != nil {
		return nil, err
	}
	if spec.Role != role {
		return nil, fmt.Errorf("session: %s is the %s's folder, and this is the %s", dir, spec.Role, role)
	}
	b := &Session{Dir: dir, RunDir: runDir, Spec: spec}
	defer func() {
		if err != nil {
			b.Close()
		}
	}()
	own, err := lockToServe(filepath.Join(dir, LockFile))
	if errors.Is(err, ErrLocked) {
		return nil, fmt.Errorf("session: %s is being served by another process already", spec.ID)
	} else if err != nil {
		return nil, err
	}
	b.locks = append(b.locks, own)
	if err := b.lockWorkload(); err != nil {
		return nil, err
	}
	if b.Journal, err = OpenJournal(dir, role); err != nil {
		return nil, err
	}
	if st := b.Journal.State(); st != Prepare && !(role == Source && (st == Presync && spec.Mode != Trial || spec.Lends(st))) {
		return nil, fmt.Errorf("session: %s has got as far as %q before and cannot begin again: end it (`pcopy session abort %s`) and start a new one", spec.ID, st, dir)
	}
	if b.events, err = os.OpenFile(filepath.Join(dir, EventsFile), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err != nil {
		return nil, fmt.Errorf("session: %w", err)
	}
	b.Log = report.NewWriter(b.events)
	if b.Control, err = listenControl(filepath.Join(dir, controlFile), mayStart); err != nil {
		return nil, err
	}
	b.status = Status{ID: spec.ID, Role: role, Workload: spec.Workload, Mode: spec.Mode, State: b.Journal.State()}
	b.publish(true)
	return b, nil
}

// Close lets go of it.
func (b *Session) Close() {
	if b.Control != nil {
		b.Control.Close()
	}
	if b.events != nil {
		b.events.Close()
	}
	if b.Journal != nil {
		b.Journal.Close()
	}
	for i := len(b.locks) - 1; i >= 0; i-- {
		b.locks[i].Close()
	}
}

var ErrLocked = errors.New("locked")

// Lock takes an flock; it goes with the process, however that ends.
func Lock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("session: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, ErrLocked
		}
		return nil, fmt.Errorf("session: locking %s: %w", path, err)
	}
	return f, nil
}

// A look at whether a process serves a session holds the lock, too, for an instant (served). More looks tell it from
// such a process.
const (
	lockPause = 5 * time.Millisecond
	lockLooks = 40
)

func lockToServe(path string) (f *os.File, err error) {
	for look := range lockLooks {
		if look > 0 {
			time.Sleep(lockPause)
		}
		if f, err = Lock(path); !errors.Is(err, ErrLocked) {
			break
		}
	}
	return f, err
}

// lockWorkload keeps two sessions from moving one workload at the same time.
func (b *Session) lockWorkload() error {
	if b.Spec.Workload == "" {
		return nil
	}
	dir := filepath.Join(b.RunDir, WorkloadLock)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("session: %w", err)
	}
	path := filepath.Join(dir, b.Spec.Workload)
	f, err := Lock(path)
	if errors.Is(err, ErrLocked) {
		holder, _ := os.ReadFile(path)
		return fmt.Errorf("session: %s is being moved by session %s, which is at work: wait for its end", b.Spec.Workload, holder)
	} else if err != nil {
		return err
	}
	b.locks = append(b.locks, f)
	if err := errors.Join(f.Truncate(0), writeAt(f, b.Spec.ID)); err != nil {
		return fmt.Errorf("session: %s: %w", path, err)
	}
	return nil
}

func writeAt(f *os.File, s string) error {
	_, err := f.WriteAt([]byte(s), 0)
	return err
}

// Reach records a state in the journal and in the status.
func (b *Session) Reach(st State, why string) error {
	if st.Ended() { // its figures are there when the journal says so
		b.publish(true)
	}
	if err := b.Journal.Append(st, why); err != nil {
		return err
	}
	b.Log.Emit("state", map[string]any{"state": st, "why": why})
	b.Update(true, func(s *Status) {
		s.State = st
		if why != "" {
			s.Error = why
		}
	})
	if st == b.Spec.Policy.PauseAt {
		return b.pause(st)
	}
	return nil
}

// WaitTimeout is how long this side waits for a step that only another party can
// begin.
func (b *Session) WaitTimeout() time.Duration {
	return time.Duration(b.Spec.Policy.WaitTimeout) * time.Second
}

// Update changes the status; it is written at once if it matters, and otherwise
// a few times a second.
func (b *Session) Update(now bool, change func(*Status)) {
	b.mu.Lock()
	change(&b.status)
	b.mu.Unlock()
	b.publish(now)
}

// State is the last state that was recorded, for any goroutine. The journal is for the one
// that records.
func (b *Session) State() (at State) {
	b.Look(func(s *Status) { at = s.State })
	return at
}

// Look reads the status.
func (b *Session) Look(see func(*Status)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	see(&b.status)
}

func (b *Session) publish(now bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !now && time.Since(b.written) < 200*time.Millisecond {
		return
	}
	b.written = time.Now()
	s := b.status
	data, err := json.Marshal(s)
	if err == nil {
		err = replaceFile(filepath.Join(b.Dir, StatusFile), data)
	}
	if err != nil { // the display has less; the session itself does not depend on it
		b.Log.Emit("warning", map[string]any{"text": err.Error()})
	}
}

// replaceFile writes a small file so that a reader sees the old or the new one.
func replaceFile(path string, data []byte) error {
	tmp := path + ".new"
	if err := os.WriteFile(tmp, data, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

// Cause prefers the reason why a context ended over the bare fact.
func Cause(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return context.Cause(ctx)
	}
	return err
}
