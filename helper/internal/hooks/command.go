// Package hooks runs the driver's commands and stands between CRIU and the tasks
// that it freezes or restores.
//
// A driver is a table of commands, argument lists without a shell. A Command has a
// time limit. Its exit status and its last words on standard error are kept: a failed
// freeze has to be reported, not logged.
//
// A Gate is the meeting point with CRIU's action script. CRIU calls the script
// at fixed points and waits for its exit status:
//
//	pre-dump       source: CRIU is ready, nothing is frozen. Status 0: it freezes
//	               and dumps; anything else: it ends
//	network-lock   source: tasks are frozen, nothing of them is dumped yet, and the
//	               network is open still. Status 0: it is locked and they are
//	               dumped; anything else: they run on. If the tasks are frozen
//	               before CRIU comes, the script does not ask
//	post-dump      source: the dump is complete, tasks are still frozen.
//	               status 0: CRIU kills them; anything else: they run on
//	pre-restore    destination: the images have been read, nothing is made yet
//	post-restore   destination: everything is restored, tasks are stopped.
//	               status 0: they resume; anything else: CRIU kills them
//
// On the destination podman asks before CRIU, when it makes the network; that is
// called network-setup here.
//
// So the script that blocks at pre-dump keeps the start of three processes out of
// the pause, the one that blocks at post-dump holds the source, and the one that
// blocks at post-restore holds the destination. The script may be called more
// than once for one point; each call after the first gets the first's answer.
package hooks

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// DefaultTimeout is how long a command may take that names no limit of its own.
const DefaultTimeout = 60 * time.Second

// Command is one entry of a driver's table.
type Command struct {
	Argv    []string `json:"argv"`
	Timeout int      `json:"timeout,omitempty"` // seconds; 0 means DefaultTimeout
	// Log is CRIU's log: it has the reason of a failure, while CRIU's caller only
	// names the file.
	Log string `json:"log,omitempty"`
	// Env is added to pcopy's own environment.
	Env map[string]string `json:"env,omitempty"`
	// Gate is the directory that CRIU writes to, or reads from, when this
	// command drives CRIU and is to be held by its hooks.
	Gate string `json:"gate,omitempty"`
	// Cgroup is the directory of the workload's cgroup, if freezing it spares
	// CRIU a wait.
	Cgroup Cgroup `json:"cgroup,omitempty"`
	// Container is the ID of the container that the command restores: its cgroup has
	// that in its name, and tasks that a killed CRIU leaves in it are ended.
	Container string `json:"container,omitempty"`
	// Hold is a folder with a program criu that stands in for CRIU, if a command
	// that restores may be started before there is anything to restore.
	Hold string `json:"hold,omitempty"`
	// Unlocked has the CRIU of a restore lift no lock of the network: it has made none
	// there, and looking for one takes it 14 ms with nftables and 67 with iptables, in the
	// pause. CRIU 3.19 and later can be told so, by the stand-in.
	Unlocked bool `json:"unlocked,omitempty"`
}

// Given reports whether there is anything to run.
func (c *Command) Given() bool { return c != nil && len(c.Argv) > 0 }

// Limit is the command's time limit.
func (c *Command) Limit() time.Duration {
	if c.Timeout > 0 {
		return time.Duration(c.Timeout) * time.Second
	}
	return DefaultTimeout
}

// Run runs the command and waits for it, within its limit.
func (c *Command) Run(ctx context.Context) error {
	p, err := c.Start()
	if err != nil {
		return err
	}
	return p.Wait(ctx, c.Limit())
}

// Process is a command that was started.
type Process struct {
	name   string
	cmd    *exec.Cmd
	stderr tail
	done   chan struct{}
	err    error
}

// Start starts the command in a process group of its own: a signal meant for
// pcopy must not reach a dump that is under way.
func (c *Command) Start() (*Process, error) { return c.start("") }

// StartEarly starts a command that restores so that CRIU is held before it reads
// anything.
func (c *Command) StartEarly() (*Process, error) { return c.start(c.Hold) }

func (c *Command) start(hold string) (*Process, error) {
	if !c.Given() {
		return nil, errors.New("hooks: no command given")
	}
	p := &Process{name: strings.Join(c.Argv, " "), done: make(chan struct{})}
	p.cmd = exec.Command(c.Argv[0], c.Argv[1:]...)
	p.cmd.Stderr = &p.stderr
	// A service manager listens to this process alone.
	p.cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "NOTIFY_SOCKET=") })
	for name, value := range c.Env {
		p.cmd.Env = append(p.cmd.Env, name+"="+value)
	}
	if hold != "" { // the last of a name counts
		p.cmd.Env = append(p.cmd.Env, "PATH="+hold+string(filepath.ListSeparator)+os.Getenv("PATH"))
	}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	// A grandchild that keeps standard error open (conmon does) must not keep
	// us waiting once the command itself is gone.
	p.cmd.WaitDelay = 100 * time.Millisecond
	before := written(c.Log)
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("hooks: %s: %w", c.Argv[0], err)
	}
	go func() {
		err := p.cmd.Wait()
		if errors.Is(err, exec.ErrWaitDelay) {
			err = nil // it exited with status 0; only its pipe was still open
		}
		if err != nil {
			p.err = fmt.Errorf("hooks: `%s` failed: %w%s", p.name, err, p.reason(c.Log, before))
		}
		close(p.done)
	}()
	return p, nil
}

// Done is closed when the command has exited.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err is how it ended; only to be asked after Done.
func (p *Process) Err() error { return p.err }

// Wait waits for the end of the command. At the limit it kills the command's
// process group; when the context ends it returns at once and lets the command
// be.
func (p *Process) Wait(ctx context.Context, limit time.Duration) error {
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		return fmt.Errorf("hooks: `%s` is still running: %w", p.name, context.Cause(ctx))
	case <-t.C:
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
		<-p.done
		return fmt.Errorf("hooks: `%s` was killed: it took longer than %s%s", p.name, limit, p.stderr.said())
	}
}

// criuError is a line of CRIU's log with an error: (seconds) Error (place): text. Its last part
// names itself: pie: process: Error.
var criuError = regexp.MustCompile(`^\([0-9.]+\)\s+(?:pie:\s+)?(?:[0-9]+: )?Error \([^)]*\): (.*)`)

// criuGoesOn is in errors that CRIU tells and gets over.
const criuGoesOn = "rlimit: Can't setup"

// written is when a file was last written to; zero if there is none.
func written(path string) time.Time {
	i, err := os.Stat(path)
	if err != nil {
		return time.Time{}
	}
	return i.ModTime()
}

// reason is CRIU's first error, if it has written its log since then; else the
// last thing that the command said.
func (p *Process) reason(log string, before time.Time) string {
	f, err := os.Open(log)
	if err != nil {
		return p.stderr.said()
	}
	defer f.Close()
	if written(log).Equal(before) {
		return p.stderr.said()
	}
	for s := bufio.NewScanner(f); s.Scan(); {
		if m := criuError.FindStringSubmatch(s.Text()); m != nil && !strings.Contains(m[1], criuGoesOn) {
			return ": CRIU: " + m[1]
		}
	}
	return p.stderr.said()
}

// tail keeps the end of a command's output.
type tail struct {
	mu sync.Mutex
	b  []byte
}

const tailSize = 4096

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p...)
	if len(t.b) > tailSize {
		t.b = append(t.b[:0], t.b[len(t.b)-tailSize:]...)
	}
	return len(p), nil
}

// said is the last line that is not empty, ready to be put behind an error.
func (t *tail) said() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	lines := bytes.Split(bytes.TrimSpace(t.b), []byte("\n"))
	if last := bytes.TrimSpace(lines[len(lines)-1]); len(last) > 0 {
		return ": " + string(last)
	}
	return ""
}
