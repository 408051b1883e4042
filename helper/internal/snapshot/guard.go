package snapshot

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/livefleet/handover/helper/internal/hooks"
	"github.com/livefleet/handover/helper/internal/image"
)

// ThawWord is the word of the command line that calls ThawWhenGone.
const ThawWord = "thaw-after"

// cgroupWord begins the word of a workload's cgroup. The others are mount points.
const cgroupWord = "cgroup="

// guard is a process that thaws file systems and workloads when this one has ended without having
// said that it did so itself, or when the limit has passed. It reads from a pipe of
// which this process alone has the other end: the kernel closes that with it.
type guard struct {
	cmd *exec.Cmd
	end *os.File
}

// watch starts a guard. It keeps the owned files until it has thawed, also when this
// process is gone.
func watch(places []string, limit time.Duration, owned []*os.File) (*guard, error) {
	if len(places) == 0 {
		return nil, nil
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	from, end, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	defer from.Close()
	cmd := exec.Command(self, append([]string{"internal", ThawWord, limit.String()}, places...)...)
	cmd.Stdin, cmd.Stderr, cmd.ExtraFiles = from, os.Stderr, owned
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // a signal for this process's group is not for it
	if err := cmd.Start(); err != nil {
		end.Close()
		return nil, fmt.Errorf("snapshot: the process that would thaw the file systems if this one died: %w", err)
	}
	return &guard{cmd, end}, nil
}

// The words of the pipe.
const (
	freezing = 1 // from now on the limit counts
	thawed   = 2 // there is nothing to be done
)

// begin says that the freeze begins.
func (g *guard) begin() error { return g.say(freezing) }

func (g *guard) say(word byte) error {
	if g == nil {
		return nil
	}
	if _, err := g.end.Write([]byte{word}); err != nil {
		return fmt.Errorf("snapshot: the process that would thaw the file systems if this one died: %w", err)
	}
	return nil
}

// dismiss is for when nothing is frozen any more.
func (g *guard) dismiss() error {
	if g == nil {
		return nil
	}
	return errors.Join(g.say(thawed), g.end.Close(), g.cmd.Wait())
}

// patience is how long the guard waits between two tries: a freeze that took effect
// after the limit is found then.
const patience = 100 * time.Millisecond

// ThawWhenGone is the guard's process.
func ThawWhenGone(limit time.Duration, places []string) error {
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	said := make(chan byte)
	go func() {
		defer close(said)
		b := make([]byte, 1)
		for {
			if _, err := io.ReadFull(os.Stdin, b); err != nil {
				return
			}
			said <- b[0]
		}
	}()
	var over <-chan time.Time
	for {
		select {
		case word, alive := <-said:
			switch {
			case !alive && over == nil:
				return nil // it froze nothing, and what is frozen is another's, such as a move's
			case !alive:
				return thaw(places)
			case word == thawed:
				return nil
			}
			over = time.After(limit)
		case <-over:
			if err := thaw(places); err != nil {
				fmt.Fprintln(os.Stderr, "pcopy:", err)
			}
			over = time.After(patience)
		}
	}
}

func thaw(places []string) (err error) {
	for _, p := range places {
		if cgroup, ok := strings.CutPrefix(p, cgroupWord); ok {
			err = errors.Join(err, hooks.Cgroup(cgroup).Thaw())
		} else {
			err = errors.Join(err, image.Thaw(p))
		}
	}
	return err
}
