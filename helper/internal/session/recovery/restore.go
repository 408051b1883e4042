package recovery

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"

	"github.com/livefleet/handover/helper/internal/hooks"
	"github.com/livefleet/handover/helper/internal/session/engine"
	"github.com/livefleet/handover/helper/internal/session/record"
)

// An engine without hooks of its own is asked at its runtime. There a restore differs from
// a start: a session begins it while the workload still runs on the source, and it is held
// by what stands in for CRIU, by CRIU's action script, and before them by this: the runtime
// is told the session's own images, and no other.

// Restoring is the spec of the session that restores the container in a bundle here, from
// when it listens until the container runs or the session is over; nil: none does.
func Restoring(root, runDir, bundle string) (found *record.Spec, err error) {
	err = eachOf(root, bundle, func(dir string, spec *record.Spec) error {
		r := spec.Hooks.Restore
		if spec.Role != record.Destination || !r.Given() || r.Gate == "" {
			return nil
		}
		gate, err := filepath.EvalSymlinks(r.Gate)
		if err != nil {
			return nil //nolint:nilerr // its images are gone, and so is the gate that had their name
		}
		reg, err := hooks.Lookup(runDir, gate)
		if err == nil && reg != nil && reg.Session == dir {
			found = spec
		}
		return err
	})
	return found, err
}

// MayCreate is MayStart for a container that is made anew, and not restored: beside a
// restore that is under way it would be a second one.
func MayCreate(ctx context.Context, root, runDir string, c *OCIState) error {
	spec, err := Restoring(root, runDir, c.Bundle)
	if err != nil {
		return err
	}
	if spec != nil {
		return fmt.Errorf("session: %s comes to this host with its memory (session %s), and is not started: wait for the end of that session", spec.Workload, spec.ID)
	}
	return MayStart(ctx, root, runDir, c)
}

// Enter is for the moment in which a runtime has the namespaces of a container that it
// restores, and nothing is in them yet. An error ends the restore.
func Enter(ctx context.Context, root, runDir string, c *OCIState) error {
	spec, err := Restoring(root, runDir, c.Bundle)
	if err != nil {
		return err
	}
	if spec == nil {
		return errors.New("session: the session that restored this container is over")
	}
	if err := MayStart(ctx, root, runDir, c); err != nil || !spec.Network.Silent {
		return err
	}
	return engine.SetUpNetwork(runDir, spec.Hooks.Restore.Gate, engine.NamespaceOf(strconv.Itoa(c.Pid)))
}
