package session

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/livefleet/handover/helper/internal/session/record"
	"github.com/livefleet/handover/helper/internal/session/recovery"
)

// joins has a program join a multicast group in a network namespace.
func (r *rig) joins(namespace string) {
	r.t.Helper()
	task := exec.Command("ip", "netns", "exec", filepath.Base(namespace), "python3", "-c", `
import socket, struct, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, struct.pack("=4s4si", socket.inet_aton("239.1.2.3"), b"\0" * 4, socket.if_nametoindex("lo")))
print("joined", flush=True)
sys.stdin.read()
`)
	in, err := task.StdinPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	out, err := task.StdoutPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	if err := task.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = in.Close(); _ = task.Process.Kill(); _ = task.Wait() })
	if _, err := io.ReadFull(out, make([]byte, len("joined"))); err != nil {
		r.t.Fatal("it has not joined", err)
	}
}

// The check was before the session, and a program has joined a multicast group since: CRIU would
// leave it out of that without a word.
func TestAGroupThatWasJoinedAfterTheCheckTakesTheMoveBack(t *testing.T) {
	for name, c := range map[string]struct{ ignored, there, back bool }{
		"it would be lost":         {back: true},
		"it is restored":           {there: true},
		"it would, and is ignored": {ignored: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			here, there := r.networks()
			r.spec.src.Policy.IgnoreMulticast, r.spec.dst.Policy.IgnoreMulticast = c.ignored, c.ignored
			w := r.startWriter()
			r.start()
			r.wait(r.src, record.UntilConverged)
			r.joins(here)
			if c.there {
				r.joins(there)
			}
			if !c.back {
				go func() { _, _ = recovery.Cutover(context.Background(), r.src) }()
				r.moved(w)
				warned := strings.Contains(fmt.Sprint(r.events(r.dst, "warning")), "has left its multicast groups until its program joins them again: 239.1.2.3 on lo")
				if warned != c.ignored {
					t.Errorf("warned: %v", warned)
				}
				return
			}
			src, _ := r.cutover()
			if src.State != record.Thawed || !strings.Contains(src.Error, "the workload was in multicast groups, and CRIU restores no membership: 239.1.2.3 on lo") {
				t.Errorf("source %s %q", src.State, src.Error)
			}
			r.runsOnce(w, record.Source)
			r.silence(here, false)
			r.cleanDestination()
		})
	}
}

// An older destination does not look.
func TestAGroupNeedsADestinationThatLooks(t *testing.T) {
	r := newRig(t)
	here, _ := r.networks()
	r.joins(here)
	s := newSource(&record.Session{Spec: &r.spec.src}, nil, planted)
	for can, want := range map[string]bool{"settings own-network own-links system": false, "settings own-network own-links system groups": true} {
		if err := s.settings.Needed(strings.Fields(can)); err != nil {
			t.Fatal(err)
		}
		if _, err := s.settings.Look(); err != nil {
			t.Fatal(err)
		}
		if err := s.settings.LookAgain(); (err == nil) != want || err != nil && !strings.Contains(err.Error(), "does not look whether the workload is in its multicast groups") {
			t.Errorf("%s: %v", can, err)
		}
	}
}
