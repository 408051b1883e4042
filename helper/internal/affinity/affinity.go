// Package affinity carries the processors that a workload's threads are bound to.
//
// CRIU restores a thread without them: it may run where CRIU itself may. So the source
// reads them when the threads stand still, and the destination binds its threads again
// before the first instruction of the workload. A thread is known on both hosts by its
// number inside the workload.
package affinity

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/tasks"
)

// Threads are processors by thread: those of the threads that are bound to some.
type Threads map[int][]int

// Read reads the threads of a cgroup and of those below it. Bound is a thread that may
// not run on all processors that another one may run on.
func Read(cgroup string) (Threads, error) {
	sets, widest := map[int]unix.CPUSet{}, 0
	err := tasks.InCgroup(cgroup, func(proc string) error {
		return tasks.Threads(proc, func(thread string) error {
			number, inside, err := numbers(thread)
			if err != nil {
				return err
			}
			var set unix.CPUSet
			if err := unix.SchedGetaffinity(number, &set); err != nil {
				return fmt.Errorf("thread %d: %w", number, err)
			}
			sets[inside] = set
			widest = max(widest, set.Count())
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("affinity: %w", err)
	}
	bound := Threads{}
	for inside, set := range sets {
		if set.Count() < widest {
			bound[inside] = processors(&set)
		}
	}
	return bound, nil
}

// Bind binds the threads of the processes that descend from root, and of root, a process
// ID on this host. Processors that this host does not have are left out; a thread that
// would be left with none is not bound, and told.
func (t Threads) Bind(root string) (unbound []int, err error) {
	if len(t) == 0 {
		return nil, nil
	}
	bound := map[int]bool{}
	err = tasks.Descending(root, func(proc string) error {
		return tasks.Threads(proc, func(thread string) error {
			number, inside, err := numbers(thread)
			wanted, ok := t[inside]
			if err != nil || !ok {
				return err
			}
			bound[inside] = true
			fits, err := bind(number, wanted)
			if err == nil && !fits {
				unbound = append(unbound, inside)
			}
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("affinity: %w", err)
	}
	for inside := range t {
		if !bound[inside] {
			return nil, fmt.Errorf("affinity: thread %d was bound to some processors on the source, and was not restored", inside)
		}
	}
	return unbound, nil
}

func bind(thread int, wanted []int) (fits bool, err error) {
	var set unix.CPUSet
	for _, processor := range wanted {
		set.Set(processor)
	}
	err = unix.SchedSetaffinity(thread, &set)
	if errors.Is(err, unix.EINVAL) { // this host has none of them
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("binding thread %d: %w", thread, err)
	}
	return true, nil
}

// numbers are a thread's numbers: on this host, and in the innermost of its namespaces.
func numbers(thread string) (number, inside int, err error) {
	if inside, err = tasks.Inside(thread); err == nil {
		number, err = strconv.Atoi(filepath.Base(thread))
	}
	return number, inside, err
}

func processors(set *unix.CPUSet) (all []int) {
	for p := 0; len(all) < set.Count(); p++ {
		if set.IsSet(p) {
			all = append(all, p)
		}
	}
	return all
}
