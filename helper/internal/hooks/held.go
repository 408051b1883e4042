package hooks

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/livefleet/handover/helper/internal/tasks"
)

// Held returns an error if no process holds a task of the cgroup as a debugger does.
// With the cgroup frozen that tells whether the CRIU that dumped it held it until
// then: one that was killed before has let it run on, and its work since is not in
// the dump.
func (c Cgroup) Held() error {
	err := c.eachStatus(func(proc, status string) error {
		if ended, held := holding(status); !ended && !held {
			return fmt.Errorf("CRIU does not hold process %s any more, it was killed: what that has done since is not in the dump", filepath.Base(proc))
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("hooks: the frozen tasks: %w", err)
	}
	return nil
}

// LetGo says whether no thread of it has a tracer any more: CRIU, which held all of them, is done
// with them, while it has much to put away still.
func (c Cgroup) LetGo() (bool, error) {
	let := true
	err := c.EachTask(func(proc string) error {
		err := tasks.Threads(proc, func(thread string) error {
			status, err := os.ReadFile(filepath.Join(thread, "status"))
			if err != nil {
				return err
			}
			if _, held := holding(string(status)); held {
				let = false
				return fs.SkipAll
			}
			return nil
		})
		if err == nil && !let {
			return fs.SkipAll
		}
		return err
	})
	if err != nil && !tasks.Gone(err) {
		return false, fmt.Errorf("hooks: the frozen tasks: %w", err)
	}
	return let, nil
}

// holding reads from a task's status whether it has ended, without a parent's notice,
// and whether it has a tracer.
func holding(status string) (ended, held bool) {
	for line := range strings.Lines(status) {
		switch key, value, _ := strings.Cut(line, ":"); key {
		case "State":
			ended = strings.ContainsAny(strings.TrimSpace(value)[:1], "ZX")
		case "TracerPid":
			held = strings.TrimSpace(value) != "0"
		}
	}
	return ended, held
}
