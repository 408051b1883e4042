package snapshot

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// A workload whose memory is taken along does not run from its dump to its restore. The
// freeze lies in between, so memory and disks are of one moment.

// moment is the freeze, with the workload halted around it if that is asked for. Both
// commands are run to their ends: one that was left half done could not be taken back. The
// time from the first to the end of the second is that for which the workload stood still.
func (j *job) moment(ctx context.Context) error {
	switch {
	case j.Memory != nil:
		return withMemory(ctx, j)
	case !j.Halt.Given():
		return j.freeze(ctx)
	}
	whole := context.WithoutCancel(ctx)
	began := time.Now()
	err := j.Halt.Run(whole)
	if err != nil {
		err = fmt.Errorf("the command that halts the workload: %w", err)
	} else {
		err = j.freeze(ctx)
	}
	// Also after a halt that failed: it may have come to something.
	if failed := j.GoOn.Run(whole); failed != nil {
		err = errors.Join(err, fmt.Errorf("the command that lets the workload go on: %w", failed))
	}
	j.frozen = time.Since(began)
	return err
}
