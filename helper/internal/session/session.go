// Package session moves one workload from a source to a destination: the
// passes, the barriers, the handover and its journal.
//
// A session is a folder on each host. It holds
//
//	spec.json     what to do, written by the controller (Spec)
//	identity/     this side's key for the one connection
//	journal       the states this side has reached, one record a line
//	events.jsonl  what happened, for reports
//	status.json   where it stands, for those who watch (Status)
//	control.sock  requests to the running process: cutover, abort, resolve, start
//	lock          held (flock) by the running process
//	throttle      source: the limit of processor time that is to be put back
//	made          destination: the paths that it made, or was about to make
//	criu.conf     lazy pages: what CRIU is told besides
//	fetched       lazy pages, destination: all memory has come
//	continue      a rehearsal goes on (Policy.PauseAt)
//
// The states, in the order in which a side reaches them, and what a side does
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
// (released, and the outcome is not known: frozen until somebody resolves it);
// destination refused, discarded. Both: fenced, when an operator had the
// destination switched off and ordered the source to go on without it.
//
// The rule of safety: at every instant at most one copy runs. The destination
// restores held and resumes only on the run token. The source sends the token
// only after `released` is on its disk, and after that it never thaws by itself:
// only on the destination's durable `refused`, or by an operator's order when the
// destination is fenced. helper/model is a model of this for spin.
package session

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

	"github.com/livefleet/handover/helper/internal/affinity"
	"github.com/livefleet/handover/helper/internal/network"
	"github.com/livefleet/handover/helper/internal/report"
)

// Files of a session's folder.
const (
	specFile     = "spec.json"
	identityDir  = "identity"
	journalFile  = "journal"
	eventsFile   = "events.jsonl"
	statusFile   = "status.json"
	controlFile  = "control.sock"
	lockFile     = "lock"
	throttleFile = "throttle"
	madeFile     = "made"
	continueFile = "continue"
	workloadLock = "locks"
)

// RunDir is where gates and locks live: gone after a reboot, as what they guard.
const RunDir = "/run/handover"

// sharesDir is where the sessions that copy at the moment are counted, and turnsDir
// where those stand in line that copy a few at a time.
const (
	sharesDir = "shares"
	turnsDir  = "turns"
)

// base is what both sides of a session have.
type base struct {
	dir     string
	runDir  string
	spec    *Spec
	journal *Journal
	log     *report.Log
	locks   []*os.File
	events  *os.File
	control *control
	waiting []network.Connection // on the destination: connections whose peers wait for its word

	threads  affinity.Threads // of the workload, that are bound to processors
	settings *netSettings     // of the workload's network namespace; nil: none are carried

	mu      sync.Mutex
	status  Status
	written time.Time
}

// open takes hold of a session's folder: nobody else serves it now, and nobody
// else moves the workload. mayStart is asked whether its container may be started
// on this host.
func open(dir, runDir string, role Role, mayStart func() error) (_ *base, err error) {
	spec, err := LoadSpec(dir)
	if err != nil {
		return nil, err
	}
	if spec.Role != role {
		return nil, fmt.Errorf("session: %s is the %s's folder, and this is the %s", dir, spec.Role, role)
	}
	b := &base{dir: dir, runDir: runDir, spec: spec}
	defer func() {
		if err != nil {
			b.close()
		}
	}()
	own, err := lock(filepath.Join(dir, lockFile))
	if errors.Is(err, errLocked) {
		return nil, fmt.Errorf("session: %s is being served by another process already", spec.ID)
	} else if err != nil {
		return nil, err
	}
	b.locks = append(b.locks, own)
	if err := b.lockWorkload(); err != nil {
		return nil, err
	}
	if b.journal, err = OpenJournal(dir, role); err != nil {
		return nil, err
	}
	if st := b.journal.State(); st != Prepare && !(role == Source && (st == Presync && spec.Mode != Trial || spec.lends(st))) {
		return nil, fmt.Errorf("session: %s has got as far as %q before and cannot begin again: end it (`pcopy session abort %s`) and start a new one", spec.ID, st, dir)
	}
	if b.events, err = os.OpenFile(filepath.Join(dir, eventsFile), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err != nil {
		return nil, fmt.Errorf("session: %w", err)
	}
	b.log = report.NewWriter(b.events)
	if b.control, err = listenControl(filepath.Join(dir, controlFile), mayStart); err != nil {
		return nil, err
	}
	b.status = Status{ID: spec.ID, Role: role, Workload: spec.Workload, Mode: spec.Mode, State: b.journal.State()}
	b.publish(true)
	return b, nil
}

func (b *base) close() {
	if b.control != nil {
		b.control.Close()
	}
	if b.events != nil {
		b.events.Close()
	}
	if b.journal != nil {
		b.journal.Close()
	}
	for i := len(b.locks) - 1; i >= 0; i-- {
		b.locks[i].Close()
	}
}

var errLocked = errors.New("locked")

// lock takes an flock; it goes with the process, however that ends.
func lock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("session: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, errLocked
		}
		return nil, fmt.Errorf("session: locking %s: %w", path, err)
	}
	return f, nil
}

// lockWorkload keeps two sessions from moving one workload at the same time.
func (b *base) lockWorkload() error {
	if b.spec.Workload == "" {
		return nil
	}
	dir := filepath.Join(b.runDir, workloadLock)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("session: %w", err)
	}
	path := filepath.Join(dir, b.spec.Workload)
	f, err := lock(path)
	if errors.Is(err, errLocked) {
		holder, _ := os.ReadFile(path)
		return fmt.Errorf("session: %s is being moved by session %s, which is at work: wait for its end", b.spec.Workload, holder)
	} else if err != nil {
		return err
	}
	b.locks = append(b.locks, f)
	if err := errors.Join(f.Truncate(0), writeAt(f, b.spec.ID)); err != nil {
		return fmt.Errorf("session: %s: %w", path, err)
	}
	return nil
}

func writeAt(f *os.File, s string) error {
	_, err := f.WriteAt([]byte(s), 0)
	return err
}

// reach records a state in the journal and in the status.
func (b *base) reach(st State, why string) error {
	if err := b.journal.Append(st, why); err != nil {
		return err
	}
	b.log.Emit("state", map[string]any{"state": st, "why": why})
	b.update(true, func(s *Status) {
		s.State = st
		if why != "" {
			s.Error = why
		}
	})
	if st == b.spec.Policy.PauseAt {
		b.pause()
	}
	return nil
}

// waitTimeout is how long this side waits for what only somebody else can begin.
func (b *base) waitTimeout() time.Duration {
	return time.Duration(b.spec.Policy.WaitTimeout) * time.Second
}

// pause is for rehearsals: what fails, fails while the session is exactly in this
// state. `pcopy session continue` ends it, and nothing else does: a limit would
// make the rehearsal another one on a slower machine.
func (b *base) pause() {
	b.log.Emit("paused", nil)
	for {
		if _, err := os.Lstat(filepath.Join(b.dir, continueFile)); err == nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// Continue ends the pause of the session in dir, also one that it has not come to.
func Continue(dir string) error {
	if _, err := LoadSpec(dir); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, continueFile), nil, 0o600); err != nil {
		return fmt.Errorf("session: %w", err)
	}
	return nil
}

// update changes the status; it is written at once if it matters, and otherwise
// a few times a second.
func (b *base) update(now bool, change func(*Status)) {
	b.mu.Lock()
	change(&b.status)
	b.mu.Unlock()
	b.publish(now)
}

func (b *base) publish(now bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !now && time.Since(b.written) < 200*time.Millisecond {
		return
	}
	b.written = time.Now()
	s := b.status
	data, err := json.Marshal(s)
	if err == nil {
		err = replaceFile(filepath.Join(b.dir, statusFile), data)
	}
	if err != nil { // those who watch see less; the session itself does not depend on it
		b.log.Emit("warning", map[string]any{"text": err.Error()})
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

// cause prefers the reason why a context ended over the bare fact.
func cause(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return context.Cause(ctx)
	}
	return err
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
