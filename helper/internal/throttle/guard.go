package throttle

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
)

// guard is a process that lifts the limit when this one has ended, however that was. It
// reads from a pipe of which this process alone has the other end: the kernel closes that
// with it.
type guard struct {
	end *os.File
}

// LiftBehindWord is the word of the command line that calls LiftWhenGone.
const LiftBehindWord = "lift-behind"

// watch starts a guard of the record at path.
func watch(path string) (*guard, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("throttle: %w", err)
	}
	from, end, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("throttle: %w", err)
	}
	defer from.Close()
	cmd := exec.Command(self, LiftBehindWord, path, strconv.Itoa(os.Getpid()))
	cmd.Stdin = from
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // a signal for this process's group is not for it
	if err := cmd.Start(); err != nil {
		end.Close()
		return nil, fmt.Errorf("throttle: the process that would lift the limit if this one died: %w", err)
	}
	go func() { _ = cmd.Wait() }()
	return &guard{end: end}, nil
}

// dismiss is for when there is nothing left to lift: it finds that out, and ends.
func (g *guard) dismiss() {
	if g != nil {
		g.end.Close()
	}
}

// LiftWhenGone is the process that waits, on its standard input, for the end of the one
// that started it.
func LiftWhenGone(path, owner string) error {
	// It ends with the process it waits for, and not because all processes are ended.
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return fmt.Errorf("throttle: waiting for the end of the session's process: %w", err)
	}
	r, err := load(path)
	if err != nil || r == nil || strconv.Itoa(r.Owner) != owner {
		return err // a later process has begun again, and has a guard of its own
	}
	return Lift(path)
}
