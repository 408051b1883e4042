package hooks

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"log/syslog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/loop"
)

// A dump after which the workload runs on where it is, such as a snapshot's, has no session
// and no journal. All that it can come to is the same: the tasks run. So CRIU's action script
// has nothing to look up when the process behind its gate is gone. It refuses, and a dump that
// was refused is acknowledged by no program.
//
// The tasks stand still in their frozen cgroup, as in a move. At pre-dump, before anything is
// frozen, the script leaves a process behind that lets them run on when CRIU has ended, for
// any reason, and again when the owner of the gate is gone. So a kill of any of these
// processes leaves nothing frozen.

// Stays makes a gate one of such a dump.
type Stays struct {
	Cgroup Cgroup `json:"cgroup"`
	// Froze is a file that the gate's owner makes before it freezes the cgroup, and removes when
	// that runs on. A cgroup that another has frozen is not ours to let go.
	Froze string `json:"froze"`
	// Limit is how long the tasks may stand still for their owner, before the dump and after it. It begins anew
	// with the file's time: an owner that is at work on more than the last pass renews that (Renew).
	Limit time.Duration `json:"limit"`
}

// OpenStaying is OpenGate for a dump after which the workload runs on. A gate that a process
// left which is gone is taken over.
func OpenStaying(runDir, imageDir string, s Stays) (*Gate, error) {
	return openGate(runDir, Registration{ImageDir: imageDir, Session: stayingSession, Stays: &s})
}

// stayingSession stands where another gate has its session's folder.
const stayingSession = "snapshot"

// served says whether a process is behind the gate.
func (r *Registration) served() bool {
	c, err := net.Dial("unix", r.Socket)
	if err == nil {
		c.Close()
	}
	return err == nil
}

// Served says whether a process is behind the gate before a folder of images.
func Served(runDir, imageDir string) bool {
	if dir, err := filepath.EvalSymlinks(imageDir); err == nil {
		imageDir = dir
	}
	r, err := Lookup(runDir, imageDir)
	return err == nil && r != nil && r.served()
}

// stayPause is between two looks of a process that waits.
const stayPause = 20 * time.Millisecond

// closeLimit is for the kernel. A gate that is served still is one of the next owner's.
const closeLimit = 2 * time.Second

// Stay is CRIU's action script for such a dump: whether CRIU may go on.
func (r *Registration) Stay(action, root string, criu int) (bool, error) {
	switch action {
	case PreDump:
		if !r.served() { // a script that is called again finds no gate, and lets another program's CRIU go on
			return false, forget(r.runDir(), r.ImageDir)
		}
		if err := r.stayBehind(criu); err != nil {
			return false, err
		}
	case PostDump:
	default:
		return true, nil
	}
	goOn, err := r.askInTime(action, root)
	if errors.Is(err, ErrNobody) {
		return false, nil
	}
	return goOn, err
}

// askInTime is Ask with an end: the owner may be stopped with the tasks frozen.
func (r *Registration) askInTime(action, root string) (bool, error) {
	type answer struct {
		goOn bool
		err  error
	}
	got := make(chan answer, 1)
	go func() {
		goOn, err := r.Ask(action, root)
		got <- answer{goOn, err}
	}()
	from := time.Now()
	for {
		select {
		case a := <-got:
			return a.goOn, a.err
		case <-time.After(stayPause):
		}
		made, err := os.Stat(r.Stays.Froze)
		switch {
		case err == nil && (action == PreDump || made.ModTime().After(from)):
			from = made.ModTime()
		case err != nil && action == PreDump: // they run until then
			continue
		}
		if time.Since(from) > r.Stays.Limit {
			return false, nil
		}
	}
}

// StayWord is the word of the command line that calls StayWhenGone.
const StayWord = "stay-behind"

// stayBehind starts the process that lets the tasks run on.
func (r *Registration) stayBehind(criu int) error {
	fd, err := unix.PidfdOpen(criu, 0)
	if err != nil {
		return fmt.Errorf("hooks: CRIU's process %d: %w", criu, err)
	}
	process := os.NewFile(uintptr(fd), "pidfd")
	defer process.Close()
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("hooks: %w", err)
	}
	words, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("hooks: %w", err)
	}
	ready, done, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("hooks: %w", err)
	}
	defer ready.Close()
	cmd := exec.Command(self, "internal", StayWord, string(words))
	cmd.ExtraFiles = []*os.File{process, done}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	done.Close()
	if err == nil {
		err = cmd.Process.Release()
	}
	if err != nil {
		return fmt.Errorf("hooks: the process that lets the tasks run on: %w", err)
	}
	// It ignores signals, and is connected to the gate's owner.
	if _, err := bufio.NewReader(ready).ReadString('\n'); err != nil {
		return fmt.Errorf("hooks: the process that lets the tasks run on has not begun: %w", err)
	}
	return nil
}

// ReadStaying reads the words of stayBehind.
func ReadStaying(words string) (*Registration, error) {
	var r Registration
	if err := json.Unmarshal([]byte(words), &r); err != nil || r.Stays == nil {
		return nil, fmt.Errorf("hooks: %s: no gate of a dump in place", StayWord)
	}
	return &r, nil
}

// StayWhenGone is that process: CRIU is its first file after the standard ones, and the
// second one is told when it has begun.
func (r *Registration) StayWhenGone() error {
	owner, err := net.Dial("unix", r.Socket)
	if err != nil {
		return fmt.Errorf("hooks: %w", err)
	}
	defer owner.Close()
	ready := os.NewFile(4, "ready")
	_, err = ready.WriteString("ready\n")
	if err := errors.Join(err, ready.Close()); err != nil {
		return fmt.Errorf("hooks: %w", err)
	}
	if err := ended(3); err != nil {
		return err
	}
	err = r.keepTrying()
	// The owner may be stopped just before it freezes them. Its end of the connection tells
	// whether it lives.
	alive := true
	for alive && r.Stays.Stand() {
		_ = owner.SetReadDeadline(time.Now().Add(stayPause))
		_, e := owner.Read(make([]byte, 1))
		alive = errors.Is(e, os.ErrDeadlineExceeded)
	}
	if r.Stays.Stand() {
		if err = r.keepTrying(); err == nil {
			err = os.Remove(r.Stays.Froze)
		}
	}
	// The kernel closes the sockets of a process that ends one after the other, its gate's as the last.
	// It may be on its way out as well if nothing stands still: CRIU ends when its script is let go.
	for end := time.Now().Add(closeLimit); r.served() && time.Now().Before(end); {
		time.Sleep(stayPause)
	}
	return errors.Join(err, r.clear())
}

// clear removes the gate and the tmpfs of images, unless another owner has taken the gate over. None does
// so between the look and the end of this.
func (r *Registration) clear() error {
	free, err := alone(r.runDir())
	if err != nil {
		return err
	}
	defer free()
	now, err := Lookup(r.runDir(), r.ImageDir)
	if err != nil || now != nil && now.Stays == nil || r.served() {
		return err
	}
	if !r.Stays.Stand() { // else the images have what the tasks are still to get back
		err = loop.Unmount(r.ImageDir)
	}
	return errors.Join(err, forget(r.runDir(), r.ImageDir))
}

// runDir is the folder whose gates this is one of.
func (r *Registration) runDir() string { return filepath.Dir(filepath.Dir(r.Socket)) }

// triesLimit is for a kernel that refuses a thaw; the file stays then, by which a later let-run knows.
const triesLimit = time.Minute

// keepTrying lets the tasks run, if they are ours. Nobody sees the errors of this process: they go to the journal.
func (r *Registration) keepTrying() (err error) {
	for end := time.Now().Add(triesLimit); r.Stays.Stand(); time.Sleep(stayPause) {
		said := err
		if err = r.Stays.RunOn(r.ImageDir); err == nil {
			return nil
		}
		if said == nil || said.Error() != err.Error() {
			tell(fmt.Sprintf("the tasks of %s, dumped where they are, do not run on yet: %v", r.Stays.Cgroup, err))
		}
		if stopped, e := r.Stays.Cgroup.Stopped(); e == nil && !stopped {
			return nil // they run, without all that the dump took
		}
		if time.Now().After(end) {
			tell(fmt.Sprintf("the tasks of %s stand still: %v: see `pcopy internal let-run`, or write 0 to its cgroup.freeze", r.Stays.Cgroup, err))
			return err
		}
	}
	return nil
}

// tell writes to the journal of the host, by the socket that all of them have.
var tell = func(text string) {
	w, err := syslog.New(syslog.LOG_ERR|syslog.LOG_DAEMON, "pcopy")
	if err != nil {
		return
	}
	_ = w.Err(text)
	_ = w.Close()
}

// Stand says whether the tasks may stand still for this dump.
func (s Stays) Stand() bool {
	_, err := os.Lstat(s.Froze)
	return err == nil
}

// LetRun is RunOn, and no note of the freeze is left when they run.
func (s Stays) LetRun(images string) error {
	err := s.RunOn(images)
	if stopped, e := s.Cgroup.Stopped(); e == nil && stopped {
		return err
	}
	if e := os.Remove(s.Froze); e != nil && !errors.Is(e, os.ErrNotExist) {
		err = errors.Join(err, e)
	}
	return err
}

// Renew has the limit of the script begin anew as long as its owner is at work, for most at most. The
// end of it is the last beginning.
func (s Stays) Renew(most time.Duration) (end func() error) {
	renew := func() error {
		now := time.Now()
		if err := os.Chtimes(s.Froze, now, now); err != nil {
			return fmt.Errorf("hooks: %w", err)
		}
		return nil
	}
	over, done, until := make(chan struct{}), make(chan error, 1), time.Now().Add(most)
	go func() {
		for {
			select {
			case <-over:
				done <- renew()
				return
			case <-time.After(max(s.Limit/4, stayPause)):
				if time.Now().Before(until) {
					_ = renew() // the last one tells
				}
			}
		}
	}()
	return func() error { close(over); return <-done }
}

// RunOn gives the tasks back all that a dump in the folder images has taken from them, and lets
// them run. CRIU has to have ended. They run whatever comes of the first.
func (s Stays) RunOn(images string) error {
	_, err := s.Cgroup.RunOn(images)
	return errors.Join(err, s.Cgroup.Thaw())
}

// ended returns when the process of a pidfd has ended.
func ended(pidfd int32) error {
	fds := []unix.PollFd{{Fd: pidfd, Events: unix.POLLIN}}
	for {
		if _, err := unix.Poll(fds, -1); err == nil {
			return nil
		} else if !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("hooks: waiting for CRIU: %w", err)
		}
	}
}
