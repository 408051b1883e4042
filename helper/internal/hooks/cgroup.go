package hooks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/undump"
)

// Cgroup is the directory of a cgroup (v2) whose tasks can be stopped and let
// go together.
//
// CRIU freezes a container's cgroup too, looks at once whether it is frozen, and if
// not sleeps for a tenth of a second before it looks again. A cgroup is frozen within
// a millisecond, but not at once: so that sleep is in every pause. A cgroup that is
// frozen when CRIU comes costs none. CRIU lets it go when it holds the tasks itself,
// and if the dump is refused it leaves the cgroup as it found it, frozen: the process
// that froze it has to thaw it when CRIU is done.
//
// CRIU holds the tasks as a debugger does, and a debugger's tasks run on when it
// is killed. So when the dump is complete the cgroup is frozen once more, under
// CRIU's hold: then nothing that happens to CRIU lets them run.
type Cgroup string

const (
	freezeFile = "cgroup.freeze"
	eventsFile = "cgroup.events"
	killFile   = "cgroup.kill"
)

// ownPatience is how often a cgroup that another process has is asked for.
const ownPatience = 2 * time.Millisecond

// Own has the cgroup for the caller, who is about to stop its tasks: a move and a snapshot
// do not undo each other's freeze. It returns when no other process has it, and it is given
// back when the file is closed, by all processes that were handed it. The lock is on the
// folder itself, and so as old as the cgroup.
func (c Cgroup) Own(ctx context.Context) (*os.File, error) {
	dir, err := os.Open(string(c))
	if err != nil {
		return nil, fmt.Errorf("hooks: %w", err)
	}
	for {
		err := unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return dir, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, errors.Join(fmt.Errorf("hooks: having the cgroup %s: %w", c, err), dir.Close())
		}
		select {
		case <-time.After(ownPatience):
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("hooks: a move or a snapshot has the cgroup %s: %w", c, context.Cause(ctx)), dir.Close())
		}
	}
}

// Stopped says whether somebody has told its tasks to stand still.
func (c Cgroup) Stopped() (bool, error) {
	b, err := os.ReadFile(filepath.Join(string(c), freezeFile))
	if err != nil {
		return false, fmt.Errorf("hooks: %w", err)
	}
	return string(bytes.TrimSpace(b)) == "1", nil
}

// Populated says whether a task is in it, or below it. One that is gone has none.
func (c Cgroup) Populated() (bool, error) {
	events, err := os.Open(filepath.Join(string(c), eventsFile))
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("hooks: %w", err)
	}
	defer events.Close()
	now, err := eventOf(events, "populated")
	if errors.Is(err, unix.ENODEV) {
		return false, nil
	}
	return now == "1", err
}

// Freeze returns when no task of the cgroup runs any more, and since when.
func (c Cgroup) Freeze(ctx context.Context) (time.Time, error) {
	if err := c.write(freezeFile, "1"); err != nil {
		return time.Time{}, err
	}
	if err := c.await(ctx, frozen); err != nil {
		return time.Time{}, fmt.Errorf("hooks: freezing the cgroup %s: %w", c, err)
	}
	return time.Now(), nil
}

// killLimit is how long tasks may take to die: one that waits for its disk does not
// until that answers.
const killLimit = 60 * time.Second

// Kill ends the tasks, frozen or not, and returns when there is none any more, or
// one is left after killLimit. A cgroup that is gone has none.
func (c Cgroup) Kill(ctx context.Context) error {
	if c == "" {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, killLimit, fmt.Errorf("they have not ended within %s", killLimit))
	defer cancel()
	err := c.write(killFile, "1")
	if err == nil {
		err = c.await(ctx, unpopulated)
	}
	if err == nil || errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	return fmt.Errorf("hooks: ending what is in the cgroup %s: %w", c, err)
}

const (
	frozen      = "frozen 1"
	unpopulated = "populated 0"
)

// await returns when the kernel says one of these of the cgroup, each a line of its events.
func (c Cgroup) await(ctx context.Context, lines ...string) error {
	events, err := os.Open(filepath.Join(string(c), eventsFile))
	if err != nil {
		return err
	}
	defer events.Close()
	for {
		for _, line := range lines {
			key, value, _ := strings.Cut(line, " ")
			if now, err := eventOf(events, key); err != nil || now == value {
				return err
			}
		}
		// The kernel announces a change of the file as urgent data. The limit is
		// for the context: a task that waits for its disk may hold this up.
		fds := []unix.PollFd{{Fd: int32(events.Fd()), Events: unix.POLLPRI}}
		if _, err := unix.Poll(fds, 20); err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("%s: %w", events.Name(), err)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

func eventOf(events *os.File, key string) (string, error) {
	b := make([]byte, 256)
	n, err := events.ReadAt(b, 0)
	if n == 0 && err != nil {
		return "", fmt.Errorf("%s: %w", events.Name(), err)
	}
	for line := range bytes.Lines(b[:n]) {
		if k, value, _ := bytes.Cut(bytes.TrimSpace(line), []byte(" ")); string(k) == key {
			return string(value), nil
		}
	}
	return "", fmt.Errorf("%s says nothing of %q: this kernel cannot do that with a cgroup", events.Name(), key)
}

// Thaw lets the tasks run. A cgroup that is not frozen stays as it is, and one
// that is gone, with its tasks, is no error; so every way out may call it.
func (c Cgroup) Thaw() error {
	if c == "" {
		return nil
	}
	err := c.write(freezeFile, "0")
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}

func (c Cgroup) write(file, word string) error {
	// Without O_CREATE: a path that is no cgroup must stay an error.
	f, err := os.OpenFile(filepath.Join(string(c), file), os.O_WRONLY|unix.O_CLOEXEC, 0)
	if err == nil {
		_, err = f.WriteString(word)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return fmt.Errorf("hooks: the container's cgroup: %w", err)
	}
	return nil
}

// runOnLimit is how long tasks may take to stand still when CRIU has let them go.
const runOnLimit = time.Second

// RunOn gives frozen tasks back what a dump took from them, if one was made in the
// folder images, and thaws them. They are thawed whatever comes of that.
func (c Cgroup) RunOn(images string) (r undump.Report, err error) {
	if c == "" {
		return r, nil
	}
	if state, e := os.ReadFile(filepath.Join(string(c), freezeFile)); e == nil && bytes.HasPrefix(state, []byte("1")) {
		ctx, cancel := context.WithTimeoutCause(context.Background(), runOnLimit, fmt.Errorf("they do not stand still within %s", runOnLimit))
		defer cancel()
		// Linux 6.18 may not call a cgroup frozen whose last task was killed in it.
		if err = c.await(ctx, frozen, unpopulated); err == nil {
			r, err = undump.PutBack(c.EachTask, images)
		}
	}
	return r, errors.Join(err, c.Thaw())
}

// Behind is what is done when CRIU, which was refused, has ended.
type Behind struct {
	Cgroup  Cgroup
	Images  string // the folder of the dump; empty if none was made
	Session string // the session's folder
	Held    bool   // CRIU has the tasks
}

// RunOn starts a process of its own that lets the tasks run on when the process pid has
// ended. Those that CRIU has do not run before: it lets them go a little earlier.
func (b Behind) RunOn(pid int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		_, err = b.Cgroup.RunOn(b.Images)
		return err
	} else if err != nil {
		return fmt.Errorf("hooks: process %d: %w", pid, err)
	}
	process := os.NewFile(uintptr(fd), "pidfd")
	defer process.Close()
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("hooks: %w", err)
	}
	cmd := exec.Command(self, RunOnWord, string(b.Cgroup), b.Images, b.Session)
	cmd.ExtraFiles = []*os.File{process}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("hooks: %w", err)
	}
	if b.Held { // from here on somebody thaws it
		err = b.Cgroup.hold()
	}
	return errors.Join(err, cmd.Process.Release())
}

// hold freezes the cgroup and does not wait: CRIU has its tasks. Without tasks it is no
// error.
func (c Cgroup) hold() error {
	err := c.write(freezeFile, "1")
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}

// RunOnWord is the word of the command line that calls RunOnWhenGone.
const RunOnWord = "run-on-behind"

// RunOnWhenGone is the process that RunOn starts: the process to wait for is its first
// file after the standard ones.
func (b Behind) RunOnWhenGone() (undump.Report, error) {
	if err := ended(3); err != nil {
		return undump.Report{}, err
	}
	return b.Cgroup.RunOn(b.Images)
}
