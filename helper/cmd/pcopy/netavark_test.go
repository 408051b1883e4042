package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/livefleet/handover/helper/internal/network"
)

// The environment stays with podman's processes for as long as the container lives: what silences its network must not do so
// at a later start.
func TestANetworkComesUpSilentOnlyWhileThatIsAskedFor(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: network namespaces")
	}
	p := exec.Command("unshare", "--net", "sleep", "1000")
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Process.Kill(); _ = p.Wait() })
	namespace := filepath.Join("/proc", strconv.Itoa(p.Process.Pid), "ns/net")
	apart := func() bool {
		own, err := os.Readlink("/proc/self/ns/net")
		theirs, e := os.Readlink(namespace)
		return err == nil && e == nil && own != theirs
	}
	for until := time.Now().Add(time.Minute); !apart(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatal("there is no namespace")
		}
	}
	asked := filepath.Join(t.TempDir(), "infra")
	t.Setenv(silentEnv, asked)
	for _, there := range []bool{false, true} {
		if there {
			if err := os.WriteFile(asked, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := silenceFirst([]string{"--config", "/run", "setup", namespace}); err != nil {
			t.Fatal(err)
		}
		if silent, err := network.Silent(namespace); err != nil || silent != there {
			t.Errorf("the file is there: %v; the network is silent: %v (%v)", there, silent, err)
		}
	}
}
