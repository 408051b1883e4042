package hooks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// turnsDir holds the locks of InTurn.
const turnsDir = "turns"

// A Turn is a command for some members of a workload: it runs for each, with the
// member's name as its last word.
type Turn struct {
	Argv    []string
	Members []string
}

// InTurn runs commands for the members of a workload, up to the first that fails.
//
// One command for all of a workload is at work at a time. A helper that was killed
// leaves its command behind: the recovery, which starts the members again, must not
// overtake one that still stops them.
func InTurn(ctx context.Context, runDir, workload string, turns []Turn) error {
	lock, err := takeTurn(filepath.Join(runDir, turnsDir), workload)
	if err != nil {
		return err
	}
	defer lock.Close()
	for _, turn := range turns {
		for _, member := range turn.Members {
			var said bytes.Buffer
			c := exec.CommandContext(ctx, turn.Argv[0], slices.Concat(turn.Argv[1:], []string{member})...)
			c.Stderr = &said
			// A grandchild that keeps standard error open, as conmon does, is not waited for.
			c.WaitDelay = 100 * time.Millisecond
			if err := c.Run(); err != nil && !errors.Is(err, exec.ErrWaitDelay) {
				return fmt.Errorf("hooks: %s of %s: %w: %s", member, workload, err, bytes.TrimSpace(said.Bytes()))
			}
		}
	}
	return nil
}

func takeTurn(dir, workload string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("hooks: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, filepath.Base(workload)+".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("hooks: %w", err)
	}
	for {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
		if err != unix.EINTR {
			break
		}
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("hooks: the turn of %s: %w", workload, err)
	}
	return f, nil
}
