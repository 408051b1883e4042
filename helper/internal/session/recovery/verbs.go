package recovery

import (
	"context"
	"errors"
	"fmt"
	"github.com/livefleet/handover/helper/internal/session/record"
)

// Cutover asks the source's process to hand over now, and waits for the outcome,
// which the status says.
func Cutover(ctx context.Context, dir string) (*record.Status, error) {
	if err := record.Ask(ctx, dir, record.Request{Do: record.AskCutover}); err != nil {
		// Its own last words say more than that it is gone.
		if s, e := record.Show(dir); e == nil && errors.Is(err, record.ErrNobody) && !s.Ended && s.Error != "" {
			return s, fmt.Errorf("session: %s is %s: %s", s.ID, s.State, s.Error)
		}
		return nil, err
	}
	return record.Wait(ctx, dir, []string{record.UntilEnded, record.UntilHeld})
}

// CheckOutcome refuses a word that is no outcome.
func CheckOutcome(outcome record.State) error {
	if outcome != record.Resumed && outcome != record.Refused && outcome != record.Fenced {
		return fmt.Errorf("session: an outcome is %s, %s or %s, not %q", record.Resumed, record.Refused, record.Fenced, outcome)
	}
	return nil
}

// Resolve tells a side the other one's outcome.
//
// To a source: resumed says that the destination has settled, refused that it refused
// or discarded, fenced that it was switched off and the source is ordered to continue
// without it. To a destination: resumed says that the source has settled or is done,
// and will never thaw; refused, that a workload in doubt does not run here; fenced,
// that the source was ordered to continue without it.
//
// Each of them is believed. A wrong word makes the workload run twice, or not at
// all.
func Resolve(ctx context.Context, dir, runDir string, outcome record.State) (*record.Status, error) {
	if err := CheckOutcome(outcome); err != nil {
		return nil, err
	}
	if s, err := record.Show(dir); err != nil || s.Ended {
		return s, err
	}
	err := record.Ask(ctx, dir, record.Request{Do: record.AskResolve, Outcome: outcome})
	if errors.Is(err, record.ErrNobody) {
		if err := resolveOrphan(ctx, dir, runDir, outcome); err != nil {
			return nil, err
		}
		return record.Show(dir)
	}
	if err != nil {
		return nil, err
	}
	return record.Wait(ctx, dir, []string{record.UntilEnded})
}

// Abort ends a session that is not released: through its process if there is one,
// otherwise as that process would have done. After the release it refuses: then only
// the outcome on the destination counts.
func Abort(ctx context.Context, dir, runDir string) (*record.Status, error) {
	st, err := record.Show(dir)
	if err != nil {
		return nil, err
	}
	if st.Ended {
		return st, nil
	}
	if st.Running {
		if err := record.Ask(ctx, dir, record.Request{Do: record.AskAbort}); err != nil {
			if now, e := record.Show(dir); e == nil && now.Ended {
				return now, nil
			}
			return nil, err
		}
		s, err := record.Wait(ctx, dir, []string{record.UntilEnded})
		if s != nil && s.Ended {
			return s, nil
		}
		return s, err
	}
	if err := abandon(ctx, dir, runDir); err != nil {
		return nil, err
	}
	return record.Show(dir)
}
