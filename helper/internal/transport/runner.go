package transport

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// RunnerWord is the word of the command line that calls Run, before the command's own.
const RunnerWord = "run-way"

// runnerPatience is how long the runner has to answer: it waits for nothing itself.
const runnerPatience = 10 * time.Second

// runner runs a command again and again for a process that may start nothing any more,
// since its restrictions (package confine) hold for every child. It is a process of its
// own, begun while that was still allowed, and knows the command's words from then on.
// It can be asked to start that command, if none runs, and to send it a signal; and it
// hears nothing of the peer, since it hands the command's streams over and keeps none of
// them.
//
// Each packet on the pair of sockets between the two is one ask or one told, as JSON.
// When the asking process ends, the command and the runner end too.
type runner struct {
	name string
	cmd  *exec.Cmd
	conn *net.UnixConn

	mu      sync.Mutex
	running bool
}

type ask struct {
	Start  bool        `json:"start,omitempty"`
	Signal unix.Signal `json:"signal,omitempty"`
}

// told is the runner's answer to Start, with the command's standard streams beside it,
// and its message when the command has ended.
type told struct {
	PID     int    `json:"pid,omitempty"`
	Refused string `json:"refused,omitempty"`
	Ended   bool   `json:"ended,omitempty"`
	Why     string `json:"why,omitempty"` // if that was not well
}

// run is one run of the command.
type run struct {
	pid          int
	in, out, err *os.File
	ended        chan error
}

// newRunner begins the runner of a command, and not yet the command.
func newRunner(argv []string) (*runner, error) {
	if len(argv) == 0 {
		return nil, errors.New("transport: no command was given")
	}
	r := &runner{name: argv[0]}
	fail := func(err error) (*runner, error) {
		return nil, fmt.Errorf("transport: what runs the command %q could not be started: %w", r.name, err)
	}
	self, err := os.Executable()
	if err != nil {
		return fail(err)
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fail(err)
	}
	theirs := os.NewFile(uintptr(pair[1]), "runner")
	defer theirs.Close()
	if r.conn, err = packets(pair[0]); err != nil {
		return fail(err)
	}
	r.cmd = exec.Command(self, append([]string{RunnerWord}, argv...)...)
	r.cmd.ExtraFiles = []*os.File{theirs}
	r.cmd.Stderr = os.Stderr
	if err := r.cmd.Start(); err != nil {
		r.conn.Close()
		return fail(err)
	}
	return r, nil
}

// packets takes a descriptor as a connection, and closes it.
func packets(fd int) (*net.UnixConn, error) {
	f := os.NewFile(uintptr(fd), "runner")
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	u, ok := c.(*net.UnixConn)
	if !ok {
		c.Close()
		return nil, errors.New("it is no unix socket")
	}
	return u, nil
}

func say(c *net.UnixConn, what any, files ...*os.File) error {
	text, err := json.Marshal(what)
	if err != nil {
		return err
	}
	var beside []byte
	if len(files) > 0 {
		var fds []int
		for _, f := range files {
			fds = append(fds, int(f.Fd()))
		}
		beside = unix.UnixRights(fds...)
	}
	_, _, err = c.WriteMsgUnix(text, beside, nil)
	return err
}

// hear reads one packet, and takes the files beside it.
func hear(c *net.UnixConn, what any) (files []*os.File, err error) {
	text, beside := make([]byte, 64<<10), make([]byte, unix.CmsgSpace(3*4))
	n, m, _, _, err := c.ReadMsgUnix(text, beside)
	if err != nil {
		return nil, err
	}
	if n == 0 {
		return nil, io.EOF
	}
	messages, err := unix.ParseSocketControlMessage(beside[:m])
	if err != nil {
		return nil, err
	}
	for _, message := range messages {
		fds, err := unix.ParseUnixRights(&message)
		if err != nil {
			return nil, err
		}
		for _, fd := range fds {
			_ = unix.SetNonblock(fd, true) // so that deadlines end its calls
			files = append(files, os.NewFile(uintptr(fd), "stream"))
		}
	}
	return files, json.Unmarshal(text[:n], what)
}

// start has the command started.
func (r *runner) start() (*run, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running {
		return nil, fmt.Errorf("transport: the command %q runs still", r.name)
	}
	var t told
	err := say(r.conn, ask{Start: true})
	if err == nil {
		err = r.conn.SetReadDeadline(time.Now().Add(runnerPatience))
	}
	var files []*os.File
	if err == nil {
		files, err = hear(r.conn, &t)
	}
	if err == nil && t.Refused == "" {
		err = r.conn.SetReadDeadline(time.Time{})
	}
	switch {
	case err != nil:
		err = fmt.Errorf("transport: what runs the command %q does not answer: %w", r.name, err)
	case t.Refused != "":
		err = fmt.Errorf("transport: the command %q could not be started: %s", r.name, t.Refused)
	case len(files) != 3:
		err = fmt.Errorf("transport: what runs the command %q has handed over %d streams", r.name, len(files))
	}
	if err != nil {
		closeAll(files)
		return nil, err
	}
	r.running = true
	s := &run{pid: t.PID, in: files[0], out: files[1], err: files[2], ended: make(chan error, 1)}
	go func() {
		s.ended <- r.end()
	}()
	return s, nil
}

// end waits for the command's end.
func (r *runner) end() error {
	var t told
	_, err := hear(r.conn, &t)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running = false
	switch {
	case err != nil:
		return fmt.Errorf("a status that nobody knows: what ran it is gone: %w", err)
	case t.Why != "":
		return errors.New(t.Why)
	}
	return nil
}

func (r *runner) signal(s unix.Signal) error { return say(r.conn, ask{Signal: s}) }

// Close ends the runner, which ends a command that is there still.
func (r *runner) Close() error {
	r.conn.Close()
	if err := r.cmd.Wait(); err != nil {
		return fmt.Errorf("transport: what ran the command %q: %w", r.name, err)
	}
	return nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// Run is the process that runs a command for the holder of the other end of its first
// file after the standard ones.
func Run(argv []string) error {
	if len(argv) == 0 {
		return errors.New("transport: no command was given")
	}
	unix.CloseOnExec(3)
	conn, err := packets(3)
	if err != nil {
		return fmt.Errorf("transport: file 3: %w: this is called by what needs the command, and by nobody else", err)
	}
	defer conn.Close()
	asked, ended := make(chan ask), make(chan error)
	go func() {
		defer close(asked)
		for {
			var a ask
			if _, err := hear(conn, &a); err != nil {
				return
			}
			asked <- a
		}
	}()
	var cmd *exec.Cmd // while it runs
	for {
		var err error
		select {
		case a, ok := <-asked:
			switch {
			case !ok && cmd == nil:
				return nil
			case !ok:
				return endChild(cmd.Process.Signal, ended)
			case a.Start && cmd != nil:
				err = say(conn, told{Refused: "it runs still"})
			case a.Start:
				cmd, err = launch(conn, argv)
				if cmd != nil {
					go func() { ended <- cmd.Wait() }()
				}
			case a.Signal != 0 && cmd != nil:
				_ = cmd.Process.Signal(a.Signal) // fails only if it ended meanwhile
			}
		case why := <-ended:
			cmd = nil
			t := told{Ended: true}
			if why != nil {
				t.Why = why.Error()
			}
			err = say(conn, t)
		}
		if err != nil && !errors.Is(err, unix.EPIPE) { // the asking process is gone: seen above
			return fmt.Errorf("transport: %w", err)
		}
	}
}

// launch starts the command and hands its streams over.
func launch(conn *net.UnixConn, argv []string) (*exec.Cmd, error) {
	var read, write [3]*os.File
	defer func() { closeAll(read[:]); closeAll(write[:]) }()
	for i := range read {
		var err error
		if read[i], write[i], err = os.Pipe(); err != nil {
			return nil, say(conn, told{Refused: err.Error()})
		}
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = read[0], write[1], write[2]
	if err := cmd.Start(); err != nil {
		return nil, say(conn, told{Refused: err.Error()})
	}
	return cmd, say(conn, told{PID: cmd.Process.Pid}, write[0], read[1], read[2])
}

// endChild waits for a command whose input is closed; after a while it is asked to end,
// and then killed.
func endChild(signal func(os.Signal) error, ended <-chan error) error {
	for _, s := range []os.Signal{nil, unix.SIGTERM, unix.SIGKILL} {
		if s != nil {
			_ = signal(s) // fails only if it ended meanwhile
		}
		select {
		case <-ended:
			return nil
		case <-time.After(childGrace):
		}
	}
	return errors.New("transport: the command cannot be killed")
}
