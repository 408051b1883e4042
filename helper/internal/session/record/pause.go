package record

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Heed ends a pause before its time: with the process's context, and where the other
// side has hung up.
type Heed struct {
	Context context.Context
	HungUp  func() bool
}

// ErrAborted: somebody asked for the session's undoing.
var ErrAborted = errors.New("session: aborted on request")

// abortable are the states that end with an abort. In all others the way leads on, as
// also an undoing has to come to its end.
var abortable = []State{Presync, Barrier, Frozen, Flushed, Prepared}

// pause is for rehearsals: a fault can come while the session is exactly in this
// state. `pcopy session continue` ends it, and no limit does: that would make the
// rehearsal another one on a slower machine. An abort is heeded at once.
func (b *Session) pause(st State) error {
	b.Log.Emit("paused", nil)
	var requests <-chan Request
	ended := context.Background()
	if slices.Contains(abortable, st) {
		if b.Heed.Context != nil {
			ended = b.Heed.Context
		}
		if b.Spec.Role == Source { // a destination listens all the time
			requests = b.Control.Requests
		}
	}
	var later []Request
	defer func() {
		for _, r := range later {
			go b.Control.again(r)
		}
	}()
	t := time.NewTicker(10 * time.Millisecond)
	defer t.Stop()
	for {
		select {
		case <-ended.Done():
			return context.Cause(ended)
		case r := <-requests:
			if r.Do == AskAbort {
				r.Answer(nil)
				return ErrAborted
			}
			later = append(later, r)
		case <-t.C:
			if _, err := os.Lstat(filepath.Join(b.Dir, continueFile)); err == nil {
				return nil
			}
			// The next step finds that, and ends as it would without a pause.
			if b.Heed.HungUp != nil && slices.Contains(abortable, st) && b.Heed.HungUp() {
				return nil
			}
		}
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
