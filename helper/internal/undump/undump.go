// Package undump gives a workload back what a dump has taken from it, when it runs on
// where it is: the dump failed, or was refused, or was a trial.
//
// CRIU undoes most of what it does, and not all. A call that waits ends with EINTR, which
// programs without signals do not expect. What was queued in a pseudo-terminal is in the
// image, and no longer in the terminal, whose files do not block any more; CRIU puts that
// back if it fails itself, and not if its action script refuses at the end. So this is for
// the time after CRIU, while the tasks stand still in their frozen cgroup.
package undump

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/criuimage"
	"github.com/livefleet/handover/helper/internal/tasks"
)

// Report is what was put back.
type Report struct {
	Waits     int `json:"waits"`     // calls that are made again
	Lost      int `json:"lost"`      // that end early, as CRIU has left them
	Terminals int `json:"terminals"` // open files that have their flags again
	Bytes     int `json:"bytes"`     // that are queued again
}

// Any says that there is anything to tell.
func (r Report) Any() bool { return r != Report{} }

// Tasks calls do with the folder in /proc of each task that stands still.
type Tasks func(do func(proc string) error) error

// PutBack does it. Images is the folder of the dump; empty if none was made. It may be
// called by several at once, and again: each dump is put back once.
func PutBack(each Tasks, images string) (r Report, err error) {
	inside := map[int]int{} // process IDs here, by those inside
	err = each(func(proc string) error {
		pid, number, err := numbers(proc)
		if err != nil {
			return err
		}
		inside[number] = pid
		waits, err := threads(proc)
		r.Waits += waits.Waits
		r.Lost += waits.Lost
		return err
	})
	if images == "" {
		return r, err
	}
	once, e := begin(images)
	if e != nil || once == nil {
		return r, errors.Join(err, e)
	}
	defer once.end()
	found, e := criuimage.ReadTerminals(images)
	if e == nil {
		e = putBackTerminals(found, inside, &r)
	}
	return r, errors.Join(err, e)
}

// numbers are a process's number here and inside.
func numbers(proc string) (pid, inside int, err error) {
	if inside, err = tasks.Inside(proc); err == nil {
		pid, err = strconv.Atoi(filepath.Base(proc))
	}
	if err != nil {
		return 0, 0, fmt.Errorf("undump: %w", err)
	}
	return pid, inside, nil
}

// gone says that a process, or what it had open, has ended.
func gone(err error) bool { return tasks.Gone(err) || errors.Is(err, unix.EBADF) }

// threads lets the threads of a process wait on.
func threads(proc string) (r Report, err error) {
	var failed error // one does not keep the others from waiting on
	err = tasks.Threads(proc, func(task string) error {
		thread, err := strconv.Atoi(filepath.Base(task))
		if err != nil {
			return err
		}
		did, err := waitOn(thread)
		if err != nil && !gone(err) {
			failed = errors.Join(failed, fmt.Errorf("undump: thread %d: %w", thread, err))
		}
		r.Waits += did.Waits
		r.Lost += did.Lost
		return nil
	})
	if err != nil {
		err = fmt.Errorf("undump: %w", err)
	}
	return r, errors.Join(failed, err)
}

// doneFile is in the folder of a dump: which of its images were put back.
const doneFile = "handover-put-back"

// once is held while a dump is put back.
type once struct {
	f   *os.File
	own string // what says which dump it is
}

// begin returns nil if the dump was put back already, or there is none.
func begin(images string) (*once, error) {
	files, err := os.Stat(filepath.Join(images, "files.img"))
	if gone(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("undump: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(images, doneFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("undump: %w", err)
	}
	o := &once{f: f, own: strconv.FormatInt(files.ModTime().UnixNano(), 10)}
	was := make([]byte, 64)
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
	n := 0
	if err == nil {
		n, _ = f.ReadAt(was, 0)
	}
	if err != nil || string(was[:n]) == o.own {
		f.Close()
		return nil, err
	}
	return o, nil
}

func (o *once) end() {
	_, _ = o.f.WriteAt([]byte(o.own), 0)
	o.f.Close()
}
