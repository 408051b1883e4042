// Package tasks walks over the tasks of a workload: the processes of a cgroup, those that
// descend from one, and the threads of each.
//
// A task may end between its listing and its reading. A walk leaves such a task out and goes
// on: its end is no error of the workload's, and must not stand in the place of one.
package tasks

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Gone says of an error that a task, or an entry of its folder in /proc, has ended since it
// was listed.
func Gone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) }

// InCgroup calls do with the folder in /proc of each process in a cgroup and in those below
// it. With fs.SkipAll from do the walk is over.
func InCgroup(cgroup string, do func(proc string) error) error {
	return filepath.WalkDir(cgroup, func(path string, entry fs.DirEntry, err error) error {
		below := filepath.Dir(path) != filepath.Clean(cgroup)
		if path != cgroup && Gone(err) { // a cgroup that was removed
			return nil
		}
		if err != nil || entry.IsDir() || entry.Name() != "cgroup.procs" {
			return err
		}
		list, err := os.ReadFile(path)
		// One of threads: the cgroup above lists their processes.
		if below && (Gone(err) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EOPNOTSUPP)) {
			return nil
		} else if err != nil {
			return err
		}
		for _, pid := range strings.Fields(string(list)) {
			if err := one(filepath.Join("/proc", pid), do); err != nil {
				return err
			}
		}
		return nil
	})
}

// Descending calls do with the folder in /proc of a process, and of each that descends from
// it, a parent before its children. With fs.SkipAll from do the walk is over.
func Descending(root string, do func(proc string) error) error {
	var err error
	for pids := []string{root}; len(pids) > 0 && err == nil; pids = pids[1:] {
		proc := filepath.Join("/proc", pids[0])
		if err = one(proc, do); err != nil {
			break
		}
		err = Threads(proc, func(thread string) error {
			children, err := os.ReadFile(filepath.Join(thread, "children"))
			pids = append(pids, strings.Fields(string(children))...)
			return err
		})
	}
	return over(err)
}

// Threads calls do with the folder in /proc of each thread of a process, by the folder of
// that. With fs.SkipAll from do the walk is over.
func Threads(proc string, do func(thread string) error) error {
	return over(one(proc, func(proc string) error {
		entries, err := os.ReadDir(filepath.Join(proc, "task"))
		if err != nil {
			return err
		}
		for _, entry := range entries {
			if err := one(filepath.Join(proc, "task", entry.Name()), do); err != nil {
				return err
			}
		}
		return nil
	}))
}

// Inside is the number that a task, by its folder in /proc, has in the innermost of its
// namespaces.
func Inside(task string) (number int, err error) {
	status, err := os.ReadFile(filepath.Join(task, "status"))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if numbers, ok := strings.CutPrefix(line, "NSpid:"); ok {
			if all := strings.Fields(numbers); len(all) > 0 {
				return strconv.Atoi(all[len(all)-1])
			}
		}
	}
	return 0, fmt.Errorf("%s/status: the kernel does not tell the number that the task has inside", task)
}

func over(err error) error {
	if errors.Is(err, fs.SkipAll) {
		return nil
	}
	return err
}

// one does it with one task. The error of a task that has not ended stays one: something else
// is missing then.
func one(task string, do func(task string) error) error {
	err := do(task)
	if Gone(err) && ended(task) {
		return nil
	}
	return err
}

// exiting is the flag of a task that has begun to end, and has no memory any more.
const exiting = 4

// ended says whether a task is gone, ends just now, or waits for its parent to take notice of
// its end.
func ended(task string) bool {
	stat, err := os.ReadFile(filepath.Join(task, "stat"))
	if err != nil {
		return Gone(err)
	}
	// The state stands behind the name, which may hold brackets and blanks.
	after := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(after) < 7 {
		return false
	}
	flags, err := strconv.ParseUint(after[6], 10, 64)
	return strings.Contains("ZX", after[0]) || err == nil && flags&exiting != 0
}
