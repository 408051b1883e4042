package elsewhere

import (
	"bufio"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/store"
)

// Either side is killed at a random moment, again and again: each point that was
// acknowledged is there and whole, and the next one is taken.
func TestAKillOfEitherSideLosesNothingAcknowledged(t *testing.T) {
	r := newRig(t)
	rnd := rand.New(rand.NewPCG(1, 27))
	acknowledged := map[string]string{}
	rounds := 20
	if testing.Short() {
		rounds = 4
	}
	for round := range rounds {
		writes := exec.Command(os.Args[0], "act-take", r.dir, strconv.Itoa(round))
		writes.Stderr = os.Stderr
		out, err := writes.StdoutPipe()
		r.must(err)
		r.must(writes.Start())
		lines := make(chan string)
		go func() {
			for s := bufio.NewScanner(out); s.Scan(); {
				lines <- s.Text()
			}
			close(lines)
		}()
		note := func(line string) {
			id, letters, _ := strings.Cut(line, " ")
			acknowledged[id] = letters
		}
		note(<-lines) // it is at work
		moment := time.After(time.Duration(rnd.IntN(300_000)) * time.Microsecond)
	work:
		for {
			select {
			case line, open := <-lines:
				if !open {
					t.Fatalf("round %d: the writer has ended by itself", round)
				}
				note(line)
			case <-moment:
				break work
			}
		}
		kill := func() { _ = writes.Process.Kill() }
		if round%2 == 1 {
			kill = r.killServer
		}
		kill()
		for open := true; open; {
			var line string
			select {
			case line, open = <-lines:
				if open {
					note(line)
				}
			case <-time.After(100 * time.Millisecond):
				kill() // it was between two of them
			}
		}
		_ = writes.Wait()
		r.unlocked()
		x, err := store.Peek(r.dir)
		r.must(err)
		there := map[string]bool{}
		for _, p := range x.Points {
			there[p.ID] = true
		}
		for id, letters := range acknowledged {
			if !there[id] {
				t.Fatalf("round %d: the point %s was acknowledged and is gone", round, id)
			}
			r.has(r.dir, id, letters)
		}
		r.whole(r.dir)
	}
	t.Logf("%d points were acknowledged", len(acknowledged))
	r.take(store.Digests, "abcd")
}

// killServer kills the process that has the store, if one has.
func (r rig) killServer() {
	self, err := os.Executable()
	r.must(err)
	b, err := os.ReadFile(filepath.Join(r.dir, ".lock"))
	r.must(err)
	pid := strings.TrimSpace(string(b))
	// The number may be this process's own, or one that is another's by now.
	if exe, err := os.Readlink(filepath.Join("/proc", pid, "exe")); err == nil && exe == self && pid != strconv.Itoa(os.Getpid()) {
		number, err := strconv.Atoi(pid)
		r.must(err)
		_ = unix.Kill(number, unix.SIGKILL) // fails if it has ended
	}
}

// unlocked waits until the side that is left has let go.
func (r rig) unlocked() {
	r.Helper()
	for range 600 {
		s, err := store.Open(r.dir, false)
		if err == nil {
			r.must(s.Close())
			return
		}
		if !strings.Contains(err.Error(), "works on it") {
			r.Fatal(err)
		}
		time.Sleep(50 * time.Millisecond)
	}
	r.Fatal("the store stays locked")
}
