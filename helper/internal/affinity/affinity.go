// Package affinity carries the processors that a workload's threads are bound to.
//
// CRIU restores a thread without them: it may run where CRIU may. So the source
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

// initTask is the host's first process.
var initTask = 1

// Read reads the threads of a cgroup and of those below it. Bound is a thread that may not run
// on all processors that its cgroup leaves it. Those that this host keeps from its own init,
// and so from all that it starts, do not count.
func Read(cgroup string) (Threads, error) {
	bound := Threads{}
	cgroups, err := newLimits()
	if err != nil {
		return nil, fmt.Errorf("affinity: %w", err)
	}
	var ofInit unix.CPUSet
	if err := unix.SchedGetaffinity(initTask, &ofInit); err != nil {
		return nil, fmt.Errorf("affinity: this host's init: %w", err)
	}
	err = tasks.InCgroup(cgroup, func(proc string) error {
		return tasks.Threads(proc, func(thread string) error {
			number, inside, err := numbers(thread)
			if err != nil {
				return err
			}
			left, err := cgroups.of(thread)
			if err != nil {
				return err
			}
			if host := common(&left, &ofInit); host.Count() > 0 {
				left = host
			}
			var set unix.CPUSet
			if err := unix.SchedGetaffinity(number, &set); err != nil {
				return fmt.Errorf("thread %d: %w", number, err)
			}
			if common(&set, &left) != left {
				bound[inside] = processors(&set)
			}
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("affinity: %w", err)
	}
	return bound, nil
}

// Bind binds the threads of the processes that descend from root, and of root, a process
// ID on this host, and looks that they are. Processors that this host does not have, or the
// cgroup here does not leave them, are left out; a thread that would be left with none is not
// bound, and told.
func (t Threads) Bind(root string) (unbound []int, err error) {
	if len(t) == 0 {
		return nil, nil
	}
	bound := map[int]bool{}
	cgroups, err := newLimits()
	if err != nil {
		return nil, fmt.Errorf("affinity: %w", err)
	}
	err = tasks.Descending(root, func(proc string) error {
		return tasks.Threads(proc, func(thread string) error {
			number, inside, err := numbers(thread)
			wanted, ok := t[inside]
			if err != nil || !ok {
				return err
			}
			bound[inside] = true
			left, err := cgroups.of(thread)
			if err != nil {
				return err
			}
			fits, err := bind(number, wanted, &left)
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

// setAffinity is the kernel's call; a test has it do nothing.
var setAffinity = unix.SchedSetaffinity

// bind binds a thread to those of the wanted processors that it may have here.
func bind(thread int, wanted []int, left *unix.CPUSet) (fits bool, err error) {
	var set, is unix.CPUSet
	for _, processor := range wanted {
		set.Set(processor)
	}
	err = setAffinity(thread, &set)
	if errors.Is(err, unix.EINVAL) { // it has none of them here
		return false, nil
	}
	if err == nil {
		err = unix.SchedGetaffinity(thread, &is)
	}
	if err != nil {
		return false, fmt.Errorf("binding thread %d: %w", thread, err)
	}
	if here := common(&set, left); is != here {
		return false, fmt.Errorf("thread %d was bound to the processors %v on the source, and here to %v in the place of %v: look for a program that binds the threads of others",
			thread, wanted, processors(&is), processors(&here))
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
