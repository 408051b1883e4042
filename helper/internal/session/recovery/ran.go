package recovery

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/livefleet/handover/helper/internal/hooks"
	"github.com/livefleet/handover/helper/internal/session/engine"
	"github.com/livefleet/handover/helper/internal/session/record"
)

// ranHere decides, when CRIU is done, whether a workload that was told to resume may
// have run. After a boot that is unknown, and so it may have. Members that were in doubt stay so:
// the source may have some of them still, and an outcome would end those.
func ranHere(ctx context.Context, runDir string, spec *record.Spec, j *record.Journal) (bool, error) {
	if j.Restarted(record.Released) {
		// What tells which members ran went with the boot.
		if len(spec.Members) > 0 && j.State() == record.InDoubt {
			return true, fmt.Errorf("session: %s was in doubt when this host was restarted, and some of its members may never have run here: look at both hosts, and then `pcopy session resolve`", spec.Workload)
		}
		return true, nil
	}
	parts := spec.Parts()
	if r := parts[0].Restore; !r.Given() || r.Gate == "" {
		return engine.StartedHere(runDir, spec), nil
	}
	var ran, never []string
	for _, part := range parts {
		one, err := hooks.Ran(ctx, part.Restore.Gate)
		if err != nil {
			return true, err
		}
		if one {
			ran = append(ran, part.Name)
		} else {
			never = append(never, part.Name)
		}
	}
	if len(ran) > 0 && len(never) > 0 {
		err := fmt.Errorf("session: of %s the members %s run here and %s never did, which the source still has: look at both hosts, and then `pcopy session resolve`",
			spec.Workload, strings.Join(ran, ", "), strings.Join(never, ", "))
		return true, errors.Join(err, j.Append(record.InDoubt, err.Error()))
	}
	return len(ran) > 0, nil
}
