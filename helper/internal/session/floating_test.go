package session

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/floating"
	"github.com/livefleet/handover/helper/internal/hooks"
	"github.com/livefleet/handover/helper/internal/session/engine"
	"github.com/livefleet/handover/helper/internal/session/record"
	"github.com/livefleet/handover/helper/internal/session/recovery"
)

// Both sides of a rig are on one host, which can have an address once. So each side has
// one of its own, and a side believes its own specification alone.
var (
	sourceFloats      = floating.Address{Prefix: netip.MustParsePrefix("192.0.2.50/24"), Interface: "seg"}
	destinationFloats = floating.Address{Prefix: netip.MustParsePrefix("192.0.2.60/24"), Interface: "seg"}
)

const ownNetwork = "HANDOVER_TEST_OWN_NETWORK"

// inOwnNetwork runs a test again, in a process whose network is a segment of its own; it
// says whether this is that process.
func inOwnNetwork(t *testing.T) bool {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root: a network namespace")
	}
	if os.Getenv(ownNetwork) == t.Name() {
		for _, words := range []string{"link set lo up", "link add seg type bridge", "link set seg up", "address add 192.0.2.1/24 dev seg"} {
			if out, err := exec.Command("ip", strings.Fields(words)...).CombinedOutput(); err != nil {
				t.Fatalf("ip %s: %v: %s", words, err, out)
			}
		}
		return true
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	again := exec.Command(self, "-test.run=^"+t.Name()+"$", "-test.count=1", "-test.v")
	again.Env = append(os.Environ(), ownNetwork+"="+t.Name())
	again.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
	if out, err := again.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("%v\n%s", err, out)
	}
	return false
}

// newFloatingRig is a rig whose workload has published a port on a floating address.
func newFloatingRig(t *testing.T) *rig {
	t.Helper()
	// Beside the folders of the sessions is the book of the addresses.
	top, err := os.MkdirTemp("", "f")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(top) })
	t.Setenv("TMPDIR", top)
	r := newRig(t)
	r.spec.src.Network.Floating, r.spec.src.Bundle = []floating.Address{sourceFloats}, r.layer
	r.spec.dst.Network.Floating, r.spec.dst.Bundle = []floating.Address{destinationFloats}, r.dstLayer
	// It has come here by an earlier move.
	if err := errors.Join(floating.Bring(r.spec.src.Network.Floating), engine.BookOf(r.src).Note(r.layer, nil, r.spec.src.Network.Floating)); err != nil {
		t.Fatal(err)
	}
	return r
}

func has(t *testing.T, a floating.Address) bool {
	t.Helper()
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(all, func(other net.Addr) bool { return other.String() == a.Prefix.String() })
}

// floats demands which sides have the address.
func (r *rig) floats(when string, source, destination bool) {
	r.t.Helper()
	if here, there := has(r.t, sourceFloats), has(r.t, destinationFloats); here != source || there != destination {
		r.t.Errorf("%s: the source has the address: %v, the destination: %v; wanted %v and %v", when, here, there, source, destination)
	}
}

// noted demands whether a start on a side would bring the address.
func (r *rig) noted(dir, bundle string, want bool) {
	r.t.Helper()
	all, err := engine.BookOf(dir).Of(bundle)
	if err != nil || (len(all) > 0) != want {
		r.t.Errorf("noted for %s: %v, %v; wanted: %v", bundle, all, err, want)
	}
}

// The address leaves the source before the release is recorded, and is on the destination
// when anything runs there. In between no side has it.
func TestTheAddressIsWhereTheWorkloadMayRun(t *testing.T) {
	if !inOwnNetwork(t) {
		return
	}
	r := newFloatingRig(t)
	r.spec.src.Policy.PauseAt = record.Prepared
	r.spec.dst.Policy.PauseAt = record.Released
	w := r.startWriter()
	r.start()
	r.wait(r.src, record.UntilConverged)
	r.floats("before the freeze", true, false)
	r.noted(r.dst, r.dstLayer, true)
	if err := recovery.BringAddresses(filepath.Dir(r.dst), r.dstRun, &recovery.OCIState{Bundle: r.dstLayer}); err != nil {
		t.Fatal(err)
	}
	r.floats("at a restore of the session's own", true, false)
	go func() { _, _ = recovery.Cutover(context.Background(), r.src) }()
	r.wait(r.src, string(record.Prepared))
	r.floats("prepared", true, false)
	if err := record.Continue(r.src); err != nil {
		t.Fatal(err)
	}
	r.wait(r.dst, string(record.Released))
	r.floats("released", false, false)
	if err := record.Continue(r.dst); err != nil {
		t.Fatal(err)
	}
	<-r.send
	<-r.receive
	src, dst := r.show()
	if src.State != record.Done || dst.State != record.Done {
		t.Fatalf("source %s %q, destination %s %q", src.State, src.Error, dst.State, dst.Error)
	}
	r.runsOnce(w, record.Destination)
	r.floats("done", false, true)
	r.noted(r.dst, r.dstLayer, true)
	r.noted(r.src, r.layer, false)
}

func TestAFailureBeforeTheReleaseLeavesTheAddress(t *testing.T) {
	if !inOwnNetwork(t) {
		return
	}
	r := newFloatingRig(t)
	r.note("restore-fails", "CRIU says no")
	w := r.startWriter()
	r.start()
	r.wait(r.src, record.UntilConverged)
	if src, _ := r.cutover(); src.State != record.Thawed {
		t.Fatalf("source %s %q", src.State, src.Error)
	}
	r.runsOnce(w, record.Source)
	r.floats("thawed", true, false)
	r.noted(r.dst, r.dstLayer, false)
	r.noted(r.src, r.layer, true)
}

// CRIU fails when the destination has the address already: it is back on the source.
func TestAResumeThatNeverRanGivesTheAddressBack(t *testing.T) {
	if !inOwnNetwork(t) {
		return
	}
	r := newFloatingRig(t)
	r.note("resume-fails", "CRIU cannot unlock the network")
	w := r.startWriter()
	r.start()
	r.wait(r.src, record.UntilConverged)
	if src, dst := r.cutover(); src.State != record.Thawed || dst.State != record.Discarded {
		t.Fatalf("source %s %q, destination %s %q", src.State, src.Error, dst.State, dst.Error)
	}
	r.runsOnce(w, record.Source)
	r.floats("refused", true, false)
}

// Nothing has run yet when the address is to come. Without it the workload goes on where it was.
func TestAnAddressThatCannotComeGivesTheWorkloadBack(t *testing.T) {
	if !inOwnNetwork(t) {
		return
	}
	ip := func(words string) {
		t.Helper()
		if out, err := exec.Command("ip", strings.Fields(words)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v: %s", words, err, out)
		}
	}
	ip("link add other type bridge")
	ip("link set other up")
	r := newFloatingRig(t)
	r.spec.dst.Network.Floating = []floating.Address{{Prefix: destinationFloats.Prefix, Interface: "other"}}
	r.spec.dst.Policy.PauseAt = record.Released
	w := r.startWriter()
	r.start()
	r.wait(r.src, record.UntilConverged)
	go func() { _, _ = recovery.Cutover(context.Background(), r.src) }()
	r.wait(r.dst, string(record.Released))
	ip("link delete other")
	if err := record.Continue(r.dst); err != nil {
		t.Fatal(err)
	}
	<-r.send
	<-r.receive
	if src, dst := r.show(); src.State != record.Thawed || dst.State != record.Discarded {
		t.Fatalf("source %s %q, destination %s %q", src.State, src.Error, dst.State, dst.Error)
	}
	r.runsOnce(w, record.Source)
	r.floats("given back", true, false)
}

// A destination that has the address is not the one to take it, and keeps it.
func TestADestinationThatHasTheAddressIsRefused(t *testing.T) {
	if !inOwnNetwork(t) {
		return
	}
	r := newFloatingRig(t)
	if err := floating.Bring([]floating.Address{destinationFloats}); err != nil {
		t.Fatal(err)
	}
	r.write(r.dst, r.spec.dst)
	err := Receive(brief(t), r.dst, r.dstRun, planted)
	if err == nil || !strings.Contains(err.Error(), "192.0.2.60 is on seg of this host already") {
		t.Errorf("received: %v", err)
	}
	r.floats("refused", true, true)
}

// A source that does not have the address does not bring it up when it gives up.
func TestASourceWithoutTheAddressBringsNoneUp(t *testing.T) {
	if !inOwnNetwork(t) {
		return
	}
	r := newFloatingRig(t)
	if err := floating.Take([]floating.Address{sourceFloats}); err != nil {
		t.Fatal(err)
	}
	r.write(r.src, r.spec.src)
	err := Send(brief(t), r.src, r.srcRun, planted)
	if err == nil || !strings.Contains(err.Error(), "192.0.2.50 is not on this host") {
		t.Errorf("sent: %v", err)
	}
	r.floats("failed", false, false)
}

// recovering is a side that was left in a state by its process.
type recovering struct {
	role   record.Role
	way    []record.State
	booted bool         // the host was restarted since
	before bool         // the address is there when the recovery comes
	to     record.State // where the recovery brings the session
	after  bool         // the address is there then
	lost   bool         // an operator has set the journal aside, which could not be read
}

var toPrepared = []record.State{record.Presync, record.Barrier, record.Frozen, record.Flushed, record.Prepared}

func way(states ...record.State) []record.State { return slices.Concat(toPrepared, states) }

func recoveries() map[string]recovering {
	return map[string]recovering{
		"a source in presync":                           {record.Source, []record.State{record.Presync}, false, true, record.Failed, true, false},
		"one in presync, after a boot":                  {record.Source, []record.State{record.Presync}, true, false, record.Failed, true, false},
		"one that is prepared":                          {record.Source, toPrepared, false, true, record.Thawed, true, false},
		"one that was about to release":                 {record.Source, toPrepared, false, false, record.Thawed, true, false},
		"one that has released, and has the address":    {record.Source, way(record.Released), false, true, record.InDoubt, false, false},
		"one that has released, after a boot":           {record.Source, way(record.Released), true, false, record.InDoubt, false, false},
		"one in doubt to which another program gave it": {record.Source, way(record.Released, record.InDoubt), false, true, record.InDoubt, false, false},
		"one that was refused":                          {record.Source, way(record.Released, record.InDoubt, record.Refused), false, false, record.Thawed, true, false},
		"one whose destination was fenced":              {record.Source, way(record.Released, record.InDoubt, record.Fenced), false, false, record.Thawed, true, false},
		"one that has settled":                          {record.Source, way(record.Released, record.Resumed, record.Settled), false, true, record.Done, false, false},
		"a destination that is prepared":                {record.Destination, toPrepared, false, false, record.Discarded, false, false},
		"one with the token that ran":                   {record.Destination, way(record.Released, record.Resumed), false, false, record.Settled, true, false},
		"one with the token, after a boot":              {record.Destination, way(record.Released, record.Resumed), true, false, record.Settled, false, false},
		"a source without its journal":                  {role: record.Source, way: []record.State{record.Refused}, to: record.Thawed, after: true, lost: true},
		"a destination without its journal":             {role: record.Destination, way: []record.State{record.Refused}, before: true, to: record.Discarded, lost: true},
	}
}

func TestARecoveryHasTheAddressWhereTheWorkloadMayRun(t *testing.T) {
	if !inOwnNetwork(t) {
		return
	}
	for name, c := range recoveries() {
		t.Run(name, func(t *testing.T) {
			top, err := os.MkdirTemp("", "f")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { os.RemoveAll(top) })
			dir, run, own := filepath.Join(top, "sessions", "one"), filepath.Join(top, "run"), sourceFloats
			if err := errors.Join(os.MkdirAll(dir, 0o700), os.Mkdir(run, 0o700)); err != nil {
				t.Fatal(err)
			}
			command := &hooks.Command{Argv: []string{"true"}}
			s := record.Spec{Version: 1, ID: "one", Role: c.role, Mode: record.Offline, Workload: "shop", Bundle: top, Peer: record.Peer{Fingerprint: "sha256:" + strings.Repeat("ab", 32)}}
			s.Peer.Address, s.Hooks = "127.0.0.1:1", record.Hooks{Freeze: command, Thaw: command}
			if c.role == record.Destination {
				own = destinationFloats
				s.Peer.Address, s.Listen, s.Hooks = "", "127.0.0.1:0", record.Hooks{Resume: command, Discard: command}
			}
			s.Network.Floating = []floating.Address{own}
			r := &rig{t: t}
			r.write(dir, s)
			if c.lost {
				if err := errors.Join(os.WriteFile(filepath.Join(dir, record.JournalFile), []byte("?"), 0o600), record.SetJournalAside(dir)); err != nil {
					t.Fatal(err)
				}
			}
			j, err := record.OpenJournal(dir, c.role)
			if err != nil {
				t.Fatal(err)
			}
			goAlong(t, j, c.way...)
			j.Close()
			if c.booted {
				anotherBoot(t, dir)
			}
			put := floating.Take
			if c.before {
				put = floating.Bring
			}
			if err := errors.Join(put(s.Network.Floating), engine.BookOf(dir).Note(s.Bundle, nil, s.Network.Floating)); err != nil {
				t.Fatal(err)
			}
			r.recovered(dir, run, c.to)
			if got := has(t, own); got != c.after {
				t.Errorf("the address is there: %v", got)
			}
			if ended := c.to == record.Done || c.to == record.Discarded; ended {
				r.noted(dir, s.Bundle, false)
			}
		})
	}
}

// A start that was let through brings the addresses of its bundle, and no other.
func TestAStartBringsItsAddresses(t *testing.T) {
	if !inOwnNetwork(t) {
		return
	}
	root, run := filepath.Join(t.TempDir(), "sessions"), t.TempDir()
	if err := os.Mkdir(root, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := engine.BookBeside(root).Note(run, nil, []floating.Address{sourceFloats}); err != nil {
		t.Fatal(err)
	}
	for bundle, want := range map[string]bool{root: false, run: true} {
		if err := floating.Take([]floating.Address{sourceFloats}); err != nil {
			t.Fatal(err)
		}
		if err := recovery.BringAddresses(root, run, &recovery.OCIState{Bundle: bundle}); err != nil {
			t.Fatal(err)
		}
		if has(t, sourceFloats) != want {
			t.Errorf("%s: the address is there: %v", bundle, !want)
		}
	}
	gone := []floating.Address{{Prefix: destinationFloats.Prefix, Interface: "nowhere"}}
	if err := engine.BookBeside(root).Note(root, nil, gone); err != nil {
		t.Fatal(err)
	}
	err := recovery.BringAddresses(root, run, &recovery.OCIState{Bundle: root})
	if err == nil || !strings.Contains(err.Error(), "the container does not start: the addresses of its published ports") {
		t.Errorf("brought: %v", err)
	}
}

// CRIU's hook acts for a process that is gone: a workload that it lets run has the address.
func TestAHookWithoutItsProcessBringsTheAddress(t *testing.T) {
	if !inOwnNetwork(t) {
		return
	}
	r := newFloatingRig(t)
	for _, c := range []struct {
		dir, run, gate string
		spec           record.Spec
		way            []record.State
		action         string
		goOn           bool
	}{
		{r.dst, r.dstRun, r.dstGate, r.spec.dst, way(record.Released), hooks.PostRestore, true},
		{r.src, r.srcRun, r.gate, r.spec.src, toPrepared, hooks.PostDump, false}, // it runs on
	} {
		if err := floating.Take(c.spec.Network.Floating); err != nil {
			t.Fatal(err)
		}
		r.write(c.dir, c.spec)
		j, err := record.OpenJournal(c.dir, c.spec.Role)
		if err != nil {
			t.Fatal(err)
		}
		goAlong(t, j, c.way...)
		j.Close()
		if err := os.MkdirAll(c.gate, 0o700); err != nil {
			t.Fatal(err)
		}
		r.orphanGateOf(c.run, c.gate, c.dir)
		goOn, err := recovery.Hook(c.run, recovery.Call{Action: c.action, ImageDir: c.gate, CRIU: os.Getpid()})
		if err != nil || goOn != c.goOn {
			t.Errorf("%s: %v, %v", c.action, goOn, err)
		}
		if !has(t, c.spec.Network.Floating[0]) {
			t.Errorf("%s: the %s does not have the address", c.action, c.spec.Role)
		}
	}
}
