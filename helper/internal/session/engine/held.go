package engine

import (
	"errors"
	"fmt"
	"time"

	"github.com/livefleet/handover/helper/internal/network"
	"github.com/livefleet/handover/helper/internal/tasks"
)

// held gives the restored tasks, which have not run yet, all that CRIU does not, and looks at them.
func held(r *criuRestore) error {
	if err := errors.Join(r.settleLast(), r.hasOwnCgroups(), r.bindThreads(), r.armTriggers(), hasTmpfs(r.Session, r.part, r.gate.Root()), r.giveAttributes(), r.lead(), r.hasJoined(), hasGroups(r), hasTimers(r)); err != nil {
		return because(r, err)
	}
	if !r.Spec.Network.Silent {
		return nil
	}
	silent, err := network.Silent(NamespaceOf(r.gate.Root()))
	if err == nil && !silent {
		err = errors.New("session: the workload's network came up without being silent: the engine did not ask the helper before it made the first interface")
	}
	if err == nil {
		meetAgain(r)
	}
	return err
}

// endLimit is how long a command may take to end after the tasks that it restored.
const endLimit = time.Second

// because puts the end of a restore that is held before an error about its tasks: they have
// ended with it.
func because(r *criuRestore, err error) error {
	limit := time.Millisecond
	if tasks.Gone(err) {
		limit = endLimit
	}
	select {
	case <-r.p.Done():
		return errors.Join(endedHeld(r), err)
	case <-time.After(limit):
		return err
	}
}

// endedHeld is for a restore whose command has ended before it was let go: it never runs here.
func endedHeld(r *criuRestore) error {
	why := r.p.Err()
	if why == nil {
		why = errors.New("it has not waited for its answer")
	}
	return fmt.Errorf("its restore ended while it was held: %w", why)
}
