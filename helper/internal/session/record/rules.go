package record

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	"github.com/livefleet/handover/helper/internal/blockmap"
	"github.com/livefleet/handover/helper/internal/codec"
	"github.com/livefleet/handover/helper/internal/passes"
	"github.com/livefleet/handover/helper/internal/tracker"
	"github.com/livefleet/handover/helper/internal/transport"
)

// StartsNothing reports whether nothing is started or mounted in a session.
func (s *Spec) StartsNothing() bool {
	nothing := s.Mode == Copy && s.Hooks == (Hooks{}) && len(s.Trees)+len(s.Directories) == 0
	for _, v := range s.Volumes {
		nothing = nothing && v.Mountpoint == ""
	}
	return nothing
}

// Has reports whether the workload, or a member of it, is the container in an OCI bundle.
func (s *Spec) Has(bundle string) bool {
	return bundle != "" && (s.Bundle == bundle || slices.Contains(s.Bundles, bundle))
}

// ByCommands reports whether plain commands stop the workload here, or bring it up: those of an engine that knows no
// CRIU of ours. In the mode live such an engine holds by itself what it has frozen or restored, from the end of one
// command to the beginning of the next.
func (s *Spec) ByCommands() bool {
	switch {
	case s.Mode == Offline:
		return true
	case s.Mode == Copy || len(s.Members) > 0:
		return false
	case s.Role == Source:
		return s.Hooks.Freeze.Given() && s.Hooks.Freeze.Gate == ""
	}
	return !s.Hooks.Restore.Given() || s.Hooks.Restore.Gate == ""
}

// endsItself reports whether there is a command for each way out of a freeze by commands: back, and to the end.
func (s *Spec) endsItself() bool { return s.Hooks.Thaw.Given() && s.Hooks.Reclaim.Given() }

// undoes reports the same of a restore.
func (s *Spec) undoes() bool { return s.Hooks.Resume.Given() && s.Hooks.Discard.Given() }

// Hooked reports whether the OCI hook knows the workload.
func (s *Spec) Hooked() bool { return s.Bundle != "" || len(s.Bundles) > 0 }

// Lends says that a source in this state has memory that the destination may need.
func (s *Spec) Lends(st State) bool {
	return s.Policy.LazyPages && (st == Released || st == InDoubt || st == Resumed)
}

// leavesMemory names the policy by which CRIU leaves memory to us; none: it carries all.
func (s *Spec) leavesMemory() string {
	switch {
	case s.Policy.LazyPages:
		return "lazy_pages"
	case s.Policy.PlaceMemory:
		return "place_memory"
	}
	return ""
}

// rule is one thing that a spec must not say. The first broken rule is reported, so a rule may rely on those
// before it.
type rule struct {
	broken func(s *Spec) bool
	says   func(s *Spec) string
}

func always(text string) func(*Spec) string { return func(*Spec) string { return text } }

// generalRules are about the session itself and its policy.
var generalRules = []rule{
	{
		func(s *Spec) bool { return s.Version != 1 },
		func(s *Spec) string { return fmt.Sprintf("version is %d, and this pcopy understands 1", s.Version) },
	},
	{
		func(s *Spec) bool { return !isID(s.ID) },
		func(s *Spec) string { return fmt.Sprintf("id %q: small letters, digits and dashes, at most 64", s.ID) },
	},
	{
		func(s *Spec) bool { return s.Role != Source && s.Role != Destination },
		func(s *Spec) string { return fmt.Sprintf("role %q: source or destination", s.Role) },
	},
	{
		func(s *Spec) bool { return !slices.Contains([]string{Live, Offline, Copy, Trial}, s.Mode) },
		func(s *Spec) string { return fmt.Sprintf("mode %q: live, offline, copy or trial", s.Mode) },
	},
	{
		func(s *Spec) bool { return s.Mode == Trial && s.Role != Source },
		always("mode trial is for the source alone"),
	},
	{
		func(s *Spec) bool { return s.Workload != "" && !isName(s.Workload) },
		func(s *Spec) string { return fmt.Sprintf("workload %q is no name", s.Workload) },
	},
	{
		func(s *Spec) bool { return s.Mode != Copy && s.Workload == "" },
		func(s *Spec) string { return fmt.Sprintf("mode %s needs a workload", s.Mode) },
	},
	{
		func(s *Spec) bool { return s.Policy.Free != FreeSkip && s.Policy.Free != FreeSend },
		func(s *Spec) string { return fmt.Sprintf("policy: free %q: skip or send", s.Policy.Free) },
	},
	{
		func(s *Spec) bool { return s.Policy.outOfRange() },
		always("policy: a number is out of range"),
	},
	{
		func(s *Spec) bool { return s.Policy.MaxFrozenMS > 0 && s.Mode != Live },
		func(s *Spec) string {
			return fmt.Sprintf("policy: max_frozen_ms is for the mode live: what a stop and a start take (mode %s), nobody can foresee", s.Mode)
		},
	},
	{
		func(s *Spec) bool { return s.Policy.Throttle != "" && s.Policy.MaxFrozenMS == 0 },
		always("policy: throttle slows the workload down until the pause is within max_frozen_ms, which is not set: set it, or leave throttle out"),
	},
	{
		func(s *Spec) bool { return relative(s.Policy.Throttle) },
		func(s *Spec) string {
			return fmt.Sprintf("policy: throttle: the cgroup %q is not an absolute path", s.Policy.Throttle)
		},
	},
	{
		func(s *Spec) bool { return s.Policy.PauseAt != "" && next[s.Role][s.Policy.PauseAt] == nil },
		func(s *Spec) string {
			return fmt.Sprintf("policy: pause_at %q is no state in which this side could go on", s.Policy.PauseAt)
		},
	},
	{
		func(s *Spec) bool { return s.Policy.Connections < 1 || s.Policy.Connections > MaxConnections },
		func(s *Spec) string {
			return fmt.Sprintf("policy: %d connections: 1 to %d", s.Policy.Connections, MaxConnections)
		},
	},
}

// workloadRules are about the network and the commands of the workload.
var workloadRules = []rule{
	{
		func(s *Spec) bool { return relative(s.Network.Namespace) },
		func(s *Spec) string {
			return fmt.Sprintf("network: the namespace %q is not an absolute path", s.Network.Namespace)
		},
	},
	{
		func(s *Spec) bool {
			n := s.Network
			return (n.Namespace != "" || n.Silent || len(n.Only) > 0) && !s.dumps()
		},
		func(s *Spec) string {
			return fmt.Sprintf("network: mode %s moves no connections, and nothing has to be silent", s.Mode)
		},
	},
	{
		func(s *Spec) bool { return s.floatingFault() != "" },
		func(s *Spec) string { return "network: floating: " + s.floatingFault() },
	},
	{
		func(s *Spec) bool { return relative(s.Bundle) },
		func(s *Spec) string { return fmt.Sprintf("bundle %q is not an absolute path", s.Bundle) },
	},
	{
		func(s *Spec) bool {
			return slices.ContainsFunc(s.Bundles, func(b string) bool { return !filepath.IsAbs(b) })
		},
		func(s *Spec) string {
			return fmt.Sprintf("bundles %q: not each of them is an absolute path", s.Bundles)
		},
	},
	{
		func(s *Spec) bool { return len(s.Bundles) > 0 && s.dumps() && len(s.Members) == 0 },
		func(s *Spec) string {
			return fmt.Sprintf("bundles: in mode %s several containers are one workload only as members, each with its own commands", s.Mode)
		},
	},
	{
		func(s *Spec) bool { return s.Role == Source && s.Mode != Copy && !s.Parts()[0].Freeze.Given() },
		always("hooks: freeze is missing"),
	},
	{
		func(s *Spec) bool { return s.Role == Source && s.Mode == Offline && !s.Hooks.Thaw.Given() },
		always("hooks: thaw is missing: what is stopped must be startable again"),
	},
	{
		func(s *Spec) bool {
			return s.Role == Source && s.dumps() && s.Parts()[0].Freeze.Gate == "" && !s.endsItself()
		},
		always("hooks: a live freeze needs a gate, the directory that CRIU writes to, or the commands thaw and reclaim of an engine that holds what it has frozen"),
	},
	{
		func(s *Spec) bool {
			r := s.Hooks.Restore
			return r != nil && r.Container != "" && !containerPattern.MatchString(r.Container)
		},
		func(s *Spec) string {
			return fmt.Sprintf("hooks: the container %q is no ID: at least 12 digits, 0 to 9 and a to f", s.Hooks.Restore.Container)
		},
	},
	{
		func(s *Spec) bool { return s.Hooks.Freeze != nil && relative(string(s.Hooks.Freeze.Cgroup)) },
		func(s *Spec) string {
			return fmt.Sprintf("hooks: the cgroup %q is not an absolute path", s.Hooks.Freeze.Cgroup)
		},
	},
	{
		func(s *Spec) bool {
			r := s.Parts()[0].Restore
			return s.Role == Destination && s.Mode == Live && (!r.Given() || r.Gate == "" && !s.undoes())
		},
		always("hooks: a live restore needs a command and a gate, the directory that CRIU reads from, or the commands resume and discard of an engine that holds what it has restored"),
	},
	{
		func(s *Spec) bool { return s.Role == Destination && s.Mode == Offline && !s.Hooks.Resume.Given() },
		always("hooks: resume is missing"),
	},
	{
		func(s *Spec) bool { return s.Policy.LazyPages && s.Policy.PlaceMemory },
		always("policy: lazy_pages has the memory follow, and place_memory has all of it there before: choose one of them"),
	},
	{
		func(s *Spec) bool { return s.leavesMemory() != "" && s.Mode != Live },
		func(s *Spec) string {
			return fmt.Sprintf("policy: %s is for the mode live: mode %s moves no memory", s.leavesMemory(), s.Mode)
		},
	},
	{
		func(s *Spec) bool {
			return s.leavesMemory() != "" && s.Role == Source && slices.ContainsFunc(s.Parts(), func(m Member) bool { return m.Freeze.Cgroup == "" || m.Freeze.Hold == "" })
		},
		func(s *Spec) string {
			return "policy: " + s.leavesMemory() + " needs the workload's cgroup, of the second version, and what stands in for CRIU: hooks.freeze has cgroup or hold missing"
		},
	},
	{
		func(s *Spec) bool {
			return s.leavesMemory() != "" && s.Role == Destination && slices.ContainsFunc(s.Parts(), func(m Member) bool {
				return m.Restore.Hold == "" || m.Restore.Container == "" || !filepath.IsAbs(m.Restore.Log)
			})
		},
		func(s *Spec) string {
			return "policy: " + s.leavesMemory() + " needs to know what stands in for CRIU, where CRIU works, and whose tasks it restores: hooks.restore has hold, log or container missing"
		},
	},
}

// floatingFault is the reason why the floating addresses cannot be; empty: they can.
func (s *Spec) floatingFault() string {
	if len(s.Network.Floating) > 0 && (s.Mode == Copy || s.Mode == Trial) {
		return fmt.Sprintf("mode %s moves no workload, and no address", s.Mode)
	}
	if len(s.Network.Floating) > 0 && s.Bundle == "" {
		return "the bundle is missing, by which the start of the workload is known that brings them back after a boot"
	}
	seen := map[netip.Addr]bool{}
	for _, a := range s.Network.Floating {
		if fault := a.Fault(); fault != "" {
			return fault
		}
		if seen[a.Prefix.Addr()] {
			return fmt.Sprintf("%s is there twice", a.Prefix.Addr())
		}
		seen[a.Prefix.Addr()] = true
	}
	return ""
}

// relative says of a path that may be left out that it is there and not absolute.
func relative(path string) bool { return path != "" && !filepath.IsAbs(path) }

// dumps reports whether CRIU dumps the workload.
func (s *Spec) dumps() bool { return s.Mode == Live || s.Mode == Trial }

// outOfRange holds each number against the least that it may be.
func (p *Policy) outOfRange() bool {
	for _, n := range []struct{ is, least int64 }{
		{int64(p.MaxPasses), 1}, {p.TargetDirty, 0}, {p.Limit, 0}, {p.Shared, 0}, {p.AtOnce, 0}, {int64(p.PeerTimeout), 1}, {int64(p.ReconnectTimeout), 1},
		{p.HashLimit, 0}, {int64(p.WaitTimeout), 1}, {int64(p.MaxFrozenMS), 0}, {int64(p.FrozenPatienceSeconds), 1}, {int64(p.PauseBaseMS), 0}, {p.Memory, 0},
	} {
		if n.is < n.least {
			return true
		}
	}
	return false
}

// check tells the first rule that the spec breaks.
func (s *Spec) check() error {
	seen := names{}
	for _, part := range []func() error{
		func() error { return s.keeps(generalRules) },
		s.checkCompression,
		s.checkPeer,
		func() error { return s.checkVolumes(seen) },
		func() error { return s.checkDirectories(seen) },
		func() error { return s.checkTrees(seen) },
		func() error { return s.keeps(memberRules) },
		func() error { return s.keeps(workloadRules) },
	} {
		if err := part(); err != nil {
			return err
		}
	}
	return nil
}

func (s *Spec) keeps(rules []rule) error {
	for _, r := range rules {
		if r.broken(s) {
			return errors.New(r.says(s))
		}
	}
	return nil
}

func (s *Spec) checkCompression() error {
	if err := codec.CheckCompression(s.Policy.Compression); err != nil {
		return fmt.Errorf("policy: compression: %w", err)
	}
	return nil
}

// names are those that were seen, each with its kind before it.
type names map[string]bool

func (n names) once(kind, name string) error {
	if !isName(name) || n[kind+name] {
		return fmt.Errorf("%s %q: the name is missing, there twice, or not a name", kind, name)
	}
	n[kind+name] = true
	return nil
}

func (s *Spec) checkVolumes(seen names) error {
	for _, v := range s.Volumes {
		if err := seen.once("volume", v.Name); err != nil {
			return err
		}
		if err := v.check(s.Role); err != nil {
			return fmt.Errorf("volume %s: %w", v.Name, err)
		}
	}
	return nil
}

func (s *Spec) checkDirectories(seen names) error {
	for _, d := range s.Directories {
		if d.byPath() || d.Tmpfs != "" {
			if seen[d.Name] {
				return fmt.Errorf("volume %q: it is there twice", d.Name)
			}
			seen[d.Name] = true
		} else if err := seen.once("volume", d.Name); err != nil {
			return err
		}
		if err := d.check(); err != nil {
			return fmt.Errorf("volume %s: %w", d.Name, err)
		}
		if err := s.checkTmpfs(&d); err != nil {
			return fmt.Errorf("volume %s: %w", d.Name, err)
		}
		if d.Ploop != "" && (s.Role != Source || s.Mode != Live) {
			return fmt.Errorf("volume %s: ploop is for the source of a live workload, and this is the %s in mode %s", d.Name, s.Role, s.Mode)
		}
	}
	return nil
}

func (s *Spec) checkTrees(seen names) error {
	for _, t := range s.Trees {
		if err := seen.once("tree", t.Name); err != nil {
			return err
		}
		if !filepath.IsAbs(t.Path) {
			return fmt.Errorf("tree %s: path %q is not absolute", t.Name, t.Path)
		}
		if s.Role == Source && t.Stage != StagePresync && t.Stage != StageFreeze && t.Stage != StageDump {
			return fmt.Errorf("tree %s: stage %q: presync, freeze or dump", t.Name, t.Stage)
		}
	}
	return nil
}

func (s *Spec) checkPeer() error {
	if s.Mode == Trial { // it has none
		return nil
	}
	if err := transport.CheckFingerprint(s.Peer.Fingerprint); err != nil {
		return fmt.Errorf("peer: %w", err)
	}
	at := s.Peer.Address
	switch {
	case s.Role == Destination && len(s.Peer.Command) > 0:
		return errors.New("peer: the command is for the source: it is the source that comes to the destination")
	case s.Role == Destination:
		at = s.Listen
	case at != "" && len(s.Peer.Command) > 0:
		return errors.New("peer: there is an address and a command, and one of them is needed")
	case len(s.Peer.Command) > 0:
		if s.Peer.Command[0] == "" || strings.ContainsRune(strings.Join(s.Peer.Command, ""), 0) {
			return fmt.Errorf("peer: %q is no command", s.Peer.Command)
		}
		return nil
	}
	_, err := transport.ParseAddress(at)
	return err
}

func (v *Vol) check(role Role) error {
	if v.Size <= 0 {
		return fmt.Errorf("size %d bytes", v.Size)
	}
	if err := blockmap.CheckCluster(v.Cluster); err != nil {
		return err
	}
	path := v.Device
	if role == Destination {
		path = v.Image
	}
	if !filepath.IsAbs(path) {
		return fmt.Errorf("%q is not an absolute path", path)
	}
	if v.Kept != "" && (role == Source || filepath.Dir(v.Kept) != filepath.Dir(v.Image) || v.Kept == v.Image) {
		return fmt.Errorf("kept %q is no other name in the folder of %q", v.Kept, v.Image)
	}
	if v.Mountpoint != "" && !filepath.IsAbs(v.Mountpoint) {
		return fmt.Errorf("mountpoint %q is not an absolute path", v.Mountpoint)
	}
	if role == Source && v.Tracker != passes.Untracked && !slices.Contains(tracker.Kinds(), v.Tracker) {
		return fmt.Errorf("tracker %q: %s or %s", v.Tracker, strings.Join(tracker.Kinds(), ", "), passes.Untracked)
	}
	if role == Destination && v.Mountpoint != "" && v.Fstype == "" {
		return errors.New("fstype is missing, and it is to be mounted")
	}
	for _, f := range v.Folders {
		if role != Destination || !filepath.IsLocal(f) {
			return fmt.Errorf("%q is no folder in it", f)
		}
	}
	if role == Destination && v.SameDevice && v.Device == "" {
		return errors.New("device is missing, and it is to be mounted on no other")
	}
	return nil
}
