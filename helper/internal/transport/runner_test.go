package transport

import (
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// gone waits for the end of a process.
func gone(t *testing.T, pid int, limit time.Duration) {
	t.Helper()
	for until := time.Now().Add(limit); unix.Kill(pid, 0) == nil; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(until) {
			t.Errorf("process %d is still there", pid)
			_ = unix.Kill(pid, unix.SIGKILL)
			return
		}
	}
}

// One command at a time, again and again, and each end is told.
func TestARunnerStartsOneAfterTheOther(t *testing.T) {
	r, err := newRunner([]string{"sh", "-c", `read line; echo "$line"; exit 3`})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for range 3 {
		s, err := r.start()
		if err != nil {
			t.Fatal(err)
		}
		_, err = r.start()
		says(t, err, `the command "sh" runs still`)
		if _, err := s.in.WriteString("word\n"); err != nil {
			t.Error(err)
		}
		says(t, <-s.ended, "exit status 3")
		heard := make([]byte, 16)
		if n, err := s.out.Read(heard); err != nil || string(heard[:n]) != "word\n" {
			t.Errorf("%q, %v", heard[:n], err)
		}
		closeAll([]*os.File{s.in, s.out, s.err})
	}
}

// When whoever asked is gone, in whatever way, so is the command, also one that does
// not end by itself.
func TestARunnerGoesWithWhoAsked(t *testing.T) {
	for _, argv := range [][]string{{"cat"}, {"sleep", "1000"}} {
		t.Run(argv[0], func(t *testing.T) {
			t.Parallel()
			r, err := newRunner(argv)
			if err != nil {
				t.Fatal(err)
			}
			s, err := r.start()
			if err != nil {
				t.Fatal(err)
			}
			closeAll([]*os.File{s.in, s.out, s.err})
			r.conn.Close() // as the kernel does for a process that was killed
			gone(t, s.pid, childGrace+5*time.Second)
			if err := r.cmd.Wait(); err != nil {
				t.Error(err)
			}
		})
	}
}

// What runs the command may be killed itself: that is said, and the command ends.
func TestARunnerThatIsKilled(t *testing.T) {
	d := newDoorway(t)
	way := Over(carryTo(t, d.address))
	c, _ := d.enter(t, way)
	pid := way.trunk.child.pid
	if err := way.runner.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	c.Close()
	err := way.Close()
	if err == nil || !strings.Contains(err.Error(), "what ran it is gone") || !strings.Contains(err.Error(), "signal: killed") {
		t.Error(err)
	}
	gone(t, pid, 5*time.Second)
}
