package recovery

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/livefleet/handover/helper/internal/hooks"
	"github.com/livefleet/handover/helper/internal/network"
	"github.com/livefleet/handover/helper/internal/session/engine"
)

// A container that comes back without a session speaks when its sockets are there, and no other does.
func TestASilentContainerSpeaksWhenItsSocketsAreThere(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: network namespaces")
	}
	p := exec.Command("unshare", "--net", "sleep", "1000")
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Process.Kill(); _ = p.Wait() })
	root := strconv.Itoa(p.Process.Pid)
	namespace := engine.NamespaceOf(root)
	own, _ := os.Readlink("/proc/self/ns/net")
	for until := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if theirs, err := os.Readlink(namespace); err == nil && theirs != own {
			break
		}
		if time.Now().After(until) {
			t.Fatal("there is no namespace")
		}
	}
	if err := engine.ComeUpSilent(namespace); err != nil {
		t.Fatal(err)
	}
	images := t.TempDir()
	for _, step := range []struct {
		action string
		marked bool
		moved  bool // a session restores it
		silent bool
	}{{hooks.PostRestore, false, false, true}, {hooks.PreRestore, true, false, true}, {hooks.PostRestore, true, true, true}, {hooks.PostRestore, true, false, false}} {
		if step.marked {
			if err := os.WriteFile(filepath.Join(images, SilentMark), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		run, err := os.MkdirTemp("", "g") // t.TempDir can be too long for a socket's path
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(run) })
		if step.moved {
			gate, err := hooks.OpenGate(run, images, "/sessions/one")
			if err != nil {
				t.Fatal(err)
			}
			defer gate.Close()
			gate.Answer(step.action, true)
		}
		if goOn, err := Hook(run, Call{Action: step.action, ImageDir: images, CRIU: os.Getpid(), Root: root}); err != nil || !goOn {
			t.Errorf("%+v: %v, %v", step, goOn, err)
		}
		if silent, err := network.Silent(namespace); err != nil || silent != step.silent {
			t.Errorf("%+v: silent %v, %v", step, silent, err)
		}
	}
	if goOn, err := Hook(t.TempDir(), Call{Action: hooks.PostRestore, ImageDir: images, CRIU: os.Getpid(), Root: "0"}); err == nil || goOn {
		t.Errorf("one that stays silent goes on: %v, %v", goOn, err)
	}
}
