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
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Threads are processors by thread: those of the threads that are bound to some.
type Threads map[int][]int

// Read reads the threads of a cgroup and of those below it. Bound is a thread that may
// not run on all processors that another one may run on.
func Read(cgroup string) (Threads, error) {
	sets, widest := map[int]unix.CPUSet{}, 0
	err := filepath.WalkDir(cgroup, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(filepath.Join(path, "cgroup.threads"))
		if err != nil {
			return err
		}
		for _, field := range strings.Fields(string(text)) {
			thread, err := strconv.Atoi(field)
			if err != nil {
				return fmt.Errorf("%s: a thread %q", path, field)
			}
			var set unix.CPUSet
			if err := unix.SchedGetaffinity(thread, &set); err != nil {
				return fmt.Errorf("thread %d: %w", thread, err)
			}
			sets[thread] = set
			widest = max(widest, set.Count())
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("affinity: %w", err)
	}
	bound := Threads{}
	for thread, set := range sets {
		if set.Count() == widest {
			continue
		}
		inside, err := numberInside(strconv.Itoa(thread))
		if err != nil {
			return nil, err
		}
		bound[inside] = processors(&set)
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
	for pids := []string{root}; len(pids) > 0; pids = pids[1:] {
		tasks, err := os.ReadDir(filepath.Join("/proc", pids[0], "task"))
		if err != nil {
			return nil, fmt.Errorf("affinity: %w", err)
		}
		for _, task := range tasks {
			inside, err := numberInside(task.Name())
			if err != nil {
				return nil, err
			}
			if wanted, ok := t[inside]; ok {
				bound[inside] = true
				if fits, err := bind(task.Name(), wanted); err != nil {
					return nil, err
				} else if !fits {
					unbound = append(unbound, inside)
				}
			}
			children, err := os.ReadFile(filepath.Join("/proc", pids[0], "task", task.Name(), "children"))
			if err != nil {
				return nil, fmt.Errorf("affinity: %w", err)
			}
			pids = append(pids, strings.Fields(string(children))...)
		}
	}
	for inside := range t {
		if !bound[inside] {
			return nil, fmt.Errorf("affinity: thread %d was bound to some processors on the source, and was not restored", inside)
		}
	}
	return unbound, nil
}

func bind(thread string, wanted []int) (fits bool, err error) {
	number, err := strconv.Atoi(thread)
	if err != nil {
		return false, fmt.Errorf("affinity: a thread %q", thread)
	}
	var set unix.CPUSet
	for _, processor := range wanted {
		set.Set(processor)
	}
	err = unix.SchedSetaffinity(number, &set)
	if errors.Is(err, unix.EINVAL) { // this host has none of them
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("affinity: binding thread %d: %w", number, err)
	}
	return true, nil
}

// numberInside is the number of a thread in the innermost of its namespaces.
func numberInside(thread string) (int, error) {
	text, err := os.ReadFile(filepath.Join("/proc", thread, "status"))
	if err != nil {
		return 0, fmt.Errorf("affinity: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if numbers, ok := strings.CutPrefix(line, "NSpid:"); ok {
			all := strings.Fields(numbers)
			return strconv.Atoi(all[len(all)-1])
		}
	}
	return 0, fmt.Errorf("affinity: the kernel does not tell the number that thread %s has inside", thread)
}

func processors(set *unix.CPUSet) (all []int) {
	for p := 0; len(all) < set.Count(); p++ {
		if set.IsSet(p) {
			all = append(all, p)
		}
	}
	return all
}
