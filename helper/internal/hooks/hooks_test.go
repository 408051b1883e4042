package hooks

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func sh(script string) *Command { return &Command{Argv: []string{"sh", "-c", script}} }

func TestCommandKeepsStatusAndLastWord(t *testing.T) {
	err := sh("echo fi''rst >&2; echo 'the disk is gone' >&2; exit 7").Run(context.Background())
	if err == nil || !strings.Contains(err.Error(), "exit status 7: the disk is gone") || strings.Contains(err.Error(), "first") {
		t.Errorf("%v", err)
	}
	if err := sh("exit 0").Run(context.Background()); err != nil {
		t.Error(err)
	}
	if err := (&Command{Argv: []string{"/nowhere/at-all"}}).Run(context.Background()); err == nil {
		t.Error("a command that is not there ran")
	}
	var none *Command
	if none.Given() {
		t.Error("no command counts as given")
	}
}

func TestCommandIsKilledAtItsLimitWithItsChildren(t *testing.T) {
	pid := filepath.Join(t.TempDir(), "pid")
	c := sh("sleep 60 & echo $! >" + pid + "; wait")
	c.Timeout = 1
	err := c.Run(context.Background())
	if err == nil || !strings.Contains(err.Error(), "took longer than 1s") {
		t.Fatalf("%v", err)
	}
	b, err := os.ReadFile(pid)
	if err != nil {
		t.Fatal(err)
	}
	child := filepath.Join("/proc", strings.TrimSpace(string(b)), "stat")
	for range 200 {
		// Gone, or a zombie that waits for this machine's init.
		if s, err := os.ReadFile(child); err != nil || strings.Contains(string(s), ") Z ") {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Error("the command's child is still there")
}

func TestCommandDoesNotWaitForAGrandchildThatKeepsItsPipe(t *testing.T) {
	began := time.Now()
	if err := sh("sleep 20 & exit 0").Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	if time.Since(began) > 15*time.Second {
		t.Error("it waited for the grandchild")
	}
}

func TestTheReasonIsInTheLogOfCRIU(t *testing.T) {
	log := filepath.Join(t.TempDir(), "dump.log")
	fails := func(script string, words ...string) string {
		c := &Command{Argv: append([]string{"sh", "-c", script, "sh"}, words...), Log: log}
		err := c.Run(context.Background())
		if err == nil {
			t.Fatal("it did not fail")
		}
		return err.Error()
	}
	const write = `log=$1; shift; printf '%s\n' "$@" >"$log"; echo "log file: $log" >&2; exit 1`
	for _, c := range []struct {
		script string
		words  []string
		text   string
	}{
		{"echo 'no log yet' >&2; exit 1", nil, ": no log yet"},
		{write, []string{
			log,
			"(00.004450) Error (criu/util.c:1534): rlimit: Can't setup RLIMIT_NOFILE for self: Operation not permitted",
			"(00.219000) Dumping path for 9 fd via self 16 [/data/a]",
			"(00.219073) Error (criu/files-reg.c:1031): Can't dump ghost file /data/a of 2097152 size, increase limit",
			"(00.238660) Error (criu/cr-dump.c:1975): Dumping FAILED.",
		}, ": CRIU: Can't dump ghost file /data/a of 2097152 size, increase limit"},
		{"echo 'the log is of another time' >&2; exit 1", nil, ": the log is of another time"},
		{"sleep 0.02; " + write, []string{log, "(01.2)     12: Error (criu/x.c:1): no such thing"}, ": CRIU: no such thing"}, // a restore names the process
		{"sleep 0.02; " + write, []string{log, "(01.2) all is well"}, ": log file: " + log},
	} {
		if text := fails(c.script, c.words...); !strings.HasSuffix(text, c.text) {
			t.Errorf("%q does not end with %q", text, c.text)
		}
	}
}

func gate(t *testing.T) (*Gate, string, string) {
	t.Helper()
	run, err := os.MkdirTemp("", "g") // t.TempDir can be too long for a socket's path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(run) })
	images := t.TempDir()
	g, err := OpenGate(run, images, "/sessions/one")
	if err != nil {
		t.Fatal(err)
	}
	return g, run, images
}

func TestGateHoldsUntilAnswered(t *testing.T) {
	for _, yes := range []bool{true, false} {
		g, run, images := gate(t)
		reg, err := Lookup(run, images)
		if err != nil || reg == nil || reg.Session != "/sessions/one" {
			t.Fatalf("%+v, %v", reg, err)
		}
		// A point that nobody decides is only noted.
		if ok, err := reg.Ask(NetworkSetup, ""); err != nil || !ok {
			t.Fatalf("network-setup: %v, %v", ok, err)
		}
		got := make(chan bool, 2)
		for range 2 { // CRIU may call the script twice for one point
			go func() {
				ok, err := reg.Ask(PostDump, "4711")
				got <- ok && err == nil
			}()
		}
		p, err := sh("sleep 30").Start()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := g.Await(context.Background(), PostDump, p); err != nil {
			t.Fatal(err)
		}
		if root := g.Root(); root != "4711" {
			t.Errorf("the first process is %q", root)
		}
		select {
		case <-got:
			t.Fatal("the script was let go without an answer")
		case <-time.After(50 * time.Millisecond):
		}
		g.Answer(PostDump, yes)
		g.Answer(PostDump, !yes) // the first answer counts
		for range 2 {
			if ok := <-got; ok != yes {
				t.Errorf("answered %v, heard %v", yes, ok)
			}
		}
		if ok, _ := reg.Ask(PostDump, ""); ok != yes {
			t.Error("a later call got another answer")
		}
		if err := g.Close(); err != nil {
			t.Error(err)
		}
		if left, _ := filepath.Glob(filepath.Join(Gates(run), "*")); len(left) > 0 {
			t.Errorf("left over: %v", left)
		}
		_ = p.Wait(context.Background(), time.Millisecond)
	}
}

func TestGateRefusesWhatHasNotComeYet(t *testing.T) {
	g, run, images := gate(t)
	defer g.Close()
	g.Refuse()
	reg, _ := Lookup(run, images)
	if ok, err := reg.Ask(PostRestore, ""); ok || err != nil {
		t.Errorf("%v, %v", ok, err)
	}
}

func TestGateWithoutAProcess(t *testing.T) {
	g, run, images := gate(t)
	g.listener.Close() // as a kill would do, leaving the registration
	reg, err := Lookup(run, images)
	if err != nil || reg == nil {
		t.Fatalf("the registration went with the process: %v", err)
	}
	if _, err := reg.Ask(PostDump, ""); !errors.Is(err, ErrNobody) {
		t.Errorf("%v", err)
	}
	if _, err := OpenGate(run, images, "/sessions/two"); err == nil || !strings.Contains(err.Error(), "session one still has a gate") {
		t.Errorf("a second session took the gate: %v", err)
	}
	again, err := OpenGate(run, images, "/sessions/one")
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
}

func TestGateAwaitEndsWithTheCommand(t *testing.T) {
	g, _, _ := gate(t)
	defer g.Close()
	for script, text := range map[string]string{
		"exit 0":                           "ended without CRIU's post-dump hook",
		"echo 'criu: no such' >&2; exit 1": "criu: no such",
	} {
		p, err := sh(script).Start()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := g.Await(context.Background(), PostDump, p); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%v, without %q", err, text)
		}
	}
}

func TestNoGate(t *testing.T) {
	if reg, err := Lookup(t.TempDir(), "/nowhere"); reg != nil || err != nil {
		t.Errorf("%v, %v", reg, err)
	}
}
