package session

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/livefleet/handover/helper/internal/hooks"
	"github.com/livefleet/handover/helper/internal/session/record"
	"github.com/livefleet/handover/helper/internal/session/recovery"
)

// What may be wrong with a source's records when CRIU's hook has to decide by
// them, and how it is mended.
var damages = map[string]func(t *testing.T, r *rig) (mend func() error){
	"the release in the journal is garbled": func(t *testing.T, r *rig) func() error {
		return spoil(t, filepath.Join(r.src, record.JournalFile), func(b []byte) []byte { b[len(b)-3] ^= 0x20; return b })
	},
	"the journal is garbled in the middle": func(t *testing.T, r *rig) func() error {
		return spoil(t, filepath.Join(r.src, record.JournalFile), func(b []byte) []byte { b[20] ^= 0x20; return b })
	},
	"the journal is empty": func(t *testing.T, r *rig) func() error {
		return spoil(t, filepath.Join(r.src, record.JournalFile), func([]byte) []byte { return nil })
	},
	"the journal is gone": func(t *testing.T, r *rig) func() error {
		path := filepath.Join(r.src, record.JournalFile)
		if err := os.Rename(path, path+".away"); err != nil {
			t.Fatal(err)
		}
		return func() error { return os.Rename(path+".away", path) }
	},
	"the spec is garbled": func(t *testing.T, r *rig) func() error {
		return spoil(t, filepath.Join(r.src, record.SpecFile), func(b []byte) []byte { return b[:len(b)/2] })
	},
	"the registration is garbled": func(t *testing.T, r *rig) func() error {
		files, err := filepath.Glob(filepath.Join(hooks.Gates(r.srcRun), "*.json"))
		if err != nil || len(files) != 1 {
			t.Fatal(files, err)
		}
		return spoil(t, files[0], func([]byte) []byte { return []byte("{") })
	},
}

// spoil rewrites a file in one step; mend brings back what was there.
func spoil(t *testing.T, path string, how func([]byte) []byte) (mend func() error) {
	t.Helper()
	good, err := os.ReadFile(path)
	if err == nil {
		err = putInPlace(path, how(append([]byte(nil), good...)))
	}
	if err != nil {
		t.Fatal(err)
	}
	return func() error { return putInPlace(path, good) }
}

// releasedAlone brings a source as far as its release. The function that it
// returns kills its process: CRIU's hook has nobody to ask from then on.
func releasedAlone(t *testing.T) (r *rig, w *writer, kill func()) {
	t.Helper()
	r = newRig(t)
	r.note("resume-takes", "1s")
	w = r.startWriter()
	end := r.startApart(record.Source)
	r.wait(r.src, record.UntilConverged)
	ctx := brief(t)
	go func() { _, _ = recovery.Cutover(ctx, r.src) }()
	r.wait(r.dst, string(record.Released)) // the token is there; earlier, the destination would refuse
	return r, w, func() { end(); <-r.receive }
}

// A source whose records cannot be read stays frozen: it may have been released.
func TestAHookThatCannotReadBlocks(t *testing.T) {
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			r, w, kill := releasedAlone(t)
			mend := damage(t, r)
			kill()
			time.Sleep(500 * time.Millisecond) // a hook that lets go has let go by then
			if !exists(filepath.Join(r.control, "frozen")) {
				t.Error("CRIU let the tasks go")
			}
			r.runsOnce(w, record.Destination)
			if name != "the registration is garbled" { // then nobody knows whose it is
				events, err := os.ReadFile(filepath.Join(r.src, record.EventsFile))
				if err != nil || !strings.Contains(string(events), "the workload stays frozen: cannot tell whether the source was released") {
					t.Errorf("it does not say why it stays frozen: %v", err)
				}
			}
			if err := mend(); err != nil {
				t.Fatal(err)
			}
			if s, err := recovery.Resolve(brief(t), r.src, r.srcRun, record.Resumed); err != nil || s.State != record.Done {
				t.Fatalf("mended: %+v, %v", s, err)
			}
			if err := await(filepath.Join(r.control, "killed")); err != nil {
				t.Error(err)
			}
			r.runsOnce(w, record.Destination)
		})
	}
}

// The way out where nothing can be mended: an operator who has asked both hosts.
func TestAJournalThatIsLostIsResolved(t *testing.T) {
	for _, outcome := range []record.State{record.Resumed, record.Fenced} {
		t.Run(string(outcome), func(t *testing.T) {
			r, w, kill := releasedAlone(t)
			if err := record.SetJournalAside(r.src); err == nil || !strings.Contains(err.Error(), "its process lives") {
				t.Errorf("beside a process: %v", err)
			}
			kill()
			if err := record.SetJournalAside(r.src); err == nil || !strings.Contains(err.Error(), "can be read") {
				t.Errorf("a journal that is good: %v", err)
			}
			spoil(t, filepath.Join(r.src, record.JournalFile), func(b []byte) []byte { b[20] ^= 0x20; return b })
			if _, err := recovery.Resolve(brief(t), r.src, r.srcRun, outcome); err == nil || !strings.Contains(err.Error(), "is damaged") {
				t.Errorf("resolved without a journal: %v", err)
			}
			if err := record.SetJournalAside(r.src); err != nil {
				t.Fatal(err)
			}
			side, end := record.Destination, record.Done
			if outcome == record.Fenced {
				side, end = record.Source, record.Thawed
				if err := os.Remove(filepath.Join(r.control, "resumed")); err != nil { // it was switched off
					t.Fatal(err)
				}
			}
			if s, err := recovery.Resolve(brief(t), r.src, r.srcRun, outcome); err != nil || s.State != end {
				t.Fatalf("%+v, %v", s, err)
			}
			r.runsOnce(w, side)
			if !exists(filepath.Join(r.src, record.JournalFile+".damaged")) {
				t.Error("the damaged journal was thrown away")
			}
		})
	}
}

// An answer that nobody gives is none.
func TestAGarbledAnswerAtPostDumpBlocks(t *testing.T) {
	top, err := os.MkdirTemp("", "rig")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(top) })
	g, err := hooks.OpenGate(top, top, top)
	if err != nil {
		t.Fatal(err)
	}
	sockets, _ := filepath.Glob(filepath.Join(hooks.Gates(top), "*.sock"))
	registrations, _ := filepath.Glob(filepath.Join(hooks.Gates(top), "*.json"))
	registration, err := os.ReadFile(registrations[0])
	if err := errors.Join(err, g.Close(), os.WriteFile(registrations[0], registration, 0o600)); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", sockets[0])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	words := make(chan string, 8)
	go func() {
		for word := range words {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = bufio.NewReader(c).ReadString('\n')
			fmt.Fprintln(c, word)
			c.Close()
		}
	}()
	words <- "maybe"
	if goOn, err := recovery.Hook(top, recovery.Call{Action: hooks.PostRestore, ImageDir: top}); goOn || err == nil {
		t.Errorf("at post-restore: %t, %v", goOn, err)
	}
	words <- "maybe"
	words <- "perhaps"
	words <- "go"
	if goOn, err := recovery.Hook(top, recovery.Call{Action: hooks.PostDump, ImageDir: top}); !goOn || err != nil {
		t.Errorf("at post-dump: %t, %v", goOn, err)
	}
}

// The action script takes nothing for a no at post-dump but pcopy's own, and starts
// none at network-lock that has nothing to hear.
func TestTheActionScriptAsksAgain(t *testing.T) {
	for _, c := range []struct {
		action string
		mark   string // beside the images
		says   []int  // exit statuses, one call after the other; 137: killed
		want   int
	}{
		{hooks.PostDump, "", []int{0}, 0},
		{hooks.PostDump, "", []int{3}, 3},
		{hooks.PostDump, hooks.FrozenMark, []int{137, 1, 0}, 0},
		{hooks.PostDump, "", []int{2, 127, 3}, 3},
		{hooks.PostRestore, hooks.FrozenMark, []int{1}, 1},
		{hooks.PostRestore, hooks.RanMark, []int{3}, 3},
		{hooks.PreDump, hooks.FrozenMark, []int{137}, 137},
		{hooks.NetworkLock, "", []int{3}, 3},
		{hooks.NetworkLock, hooks.FrozenMark, nil, 0},
	} {
		dir, images := t.TempDir(), t.TempDir()
		if c.mark != "" {
			if err := os.WriteFile(filepath.Join(images, c.mark), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		script, err := os.ReadFile("../../../roles/pcopy/files/criu-hook")
		if err != nil {
			t.Fatal(err)
		}
		fake, calls := filepath.Join(dir, "pcopy"), filepath.Join(dir, "calls")
		text := strings.ReplaceAll(string(script), "/usr/local/libexec/handover/pcopy", fake)
		if text == string(script) {
			t.Fatal("the script names pcopy otherwise now: this test has to follow it")
		}
		body := "#!/bin/sh\necho $HANDOVER_CRIU >>" + calls + "\ncase $(wc -l <" + calls + ") in\n"
		for i, status := range c.says {
			how := fmt.Sprintf("exit %d", status)
			if status == 137 {
				how = "kill -9 $$"
			}
			body += fmt.Sprintf("%d) %s ;;\n", i+1, how)
		}
		path := filepath.Join(dir, "criu-hook")
		if err := errors.Join(os.WriteFile(fake, []byte(body+"esac\n"), 0o700), os.WriteFile(path, []byte(strings.ReplaceAll(text, "sleep 1", "sleep 0")), 0o700)); err != nil {
			t.Fatal(err)
		}
		run := exec.CommandContext(brief(t), "sh", "-c", path+"; exit $?")
		run.Env = []string{"CRTOOLS_SCRIPT_ACTION=" + c.action, "CRTOOLS_IMAGE_DIR=" + images, "PATH=" + os.Getenv("PATH")}
		err = run.Run()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		said, _ := os.ReadFile(calls)
		lines := strings.Fields(string(said))
		if got := run.ProcessState.ExitCode(); got != c.want {
			t.Errorf("%s, %v: the script ended with %d, and %d was due", c.action, c.says, got, c.want)
		}
		if n := strings.Count(string(said), "\n"); n != len(c.says) {
			t.Errorf("%s, %v: asked %d times", c.action, c.says, n)
		}
		if c.action == hooks.PostDump && (len(lines) == 0 || lines[0] == "") {
			t.Errorf("pcopy was not told which process CRIU is: %q", said)
		}
	}
}

// putInPlace replaces a file: a reader sees the old or the new one.
func putInPlace(path string, data []byte) error {
	if err := os.WriteFile(path+".put", data, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".put", path)
}
