package record

import (
	"fmt"
	"path/filepath"
	"slices"

	"github.com/livefleet/handover/helper/internal/hooks"
)

// A workload may be several containers that are dumped and restored one by one, and that
// move as one: one session, one journal and one release. Each has commands of its own, and
// a gate before its images; each answer at a gate is that of the session.

// Member is one container of a workload that is several.
type Member struct {
	Name    string         `json:"name"`
	Freeze  *hooks.Command `json:"freeze,omitempty"`
	Restore *hooks.Command `json:"restore,omitempty"`
	// Joins are the namespaces that it has in common with the other members and that CRIU would
	// make anew: by CRIU's word for the kind, the path on this host.
	Joins map[string]string `json:"joins,omitempty"`
}

// joinable are the kinds of namespaces that CRIU has a restored process join, and of which nothing has to be restored then
// but what the session looks at.
var joinable = []string{"ipc", "uts"}

// Parts are what CRIU dumps and restores one by one: the members, or else the workload itself.
func (s *Spec) Parts() []Member {
	if len(s.Members) > 0 {
		return s.Members
	}
	return []Member{{Freeze: s.Hooks.Freeze, Restore: s.Hooks.Restore}}
}

// Cgroups are the parts', in which their tasks can be asked while they run; none where one has none.
func (s *Spec) Cgroups() (all []hooks.Cgroup) {
	for _, part := range s.Parts() {
		if part.Freeze == nil || part.Freeze.Cgroup == "" {
			return nil
		}
		all = append(all, part.Freeze.Cgroup)
	}
	return all
}

// PartAt is the one whose images are in a folder. A workload that is one container has no other images.
func (s *Spec) PartAt(images string) Member {
	if len(s.Members) == 0 {
		return s.Parts()[0]
	}
	for _, m := range s.Members {
		for _, c := range []*hooks.Command{m.Freeze, m.Restore} {
			if c != nil && sameFolder(c.Gate, images) {
				return m
			}
		}
	}
	return Member{}
}

// sameFolder compares paths. CRIU tells the real one.
func sameFolder(path, images string) bool {
	if path == images {
		return true
	}
	real, err := filepath.EvalSymlinks(path)
	return err == nil && real == images
}

// File is the place of a file in the session's folder that each part has for itself.
func (m Member) File(dir, name string) string {
	if m.Name != "" {
		name += "-" + m.Name
	}
	return filepath.Join(dir, name)
}

// Restores reports whether CRIU restores the workload here, held by its hooks, or its engine does so by itself.
func (s *Spec) Restores() bool { return s.Mode == Live && s.Parts()[0].Restore.Given() }

// memberRules are about a workload that is several containers.
var memberRules = []rule{
	{
		func(s *Spec) bool { return len(s.Members) > 0 && !s.dumps() },
		func(s *Spec) string {
			return fmt.Sprintf("members: they are for a workload that is dumped, and mode %s dumps none: name their bundles alone", s.Mode)
		},
	},
	{
		func(s *Spec) bool { return len(s.Members) > 0 && (s.Hooks.Freeze != nil || s.Hooks.Restore != nil) },
		always("members: each has a command of its own to freeze and to restore it, and hooks has one for all of them: leave that out"),
	},
	{
		func(s *Spec) bool { return len(s.Members) > 0 && s.Mode == Live && len(s.Bundles) < len(s.Members) },
		always("members: bundles has not all of theirs, by which the hook before every start knows them"),
	},
	{
		func(s *Spec) bool { return len(s.Members) > 0 && s.Policy.LazyPages },
		always("policy: lazy_pages is for a workload that is one container"),
	},
	{
		func(s *Spec) bool { return len(s.Members) > 0 && s.Policy.Throttle != "" },
		always("policy: throttle is for a workload that is one container"),
	},
	{
		func(s *Spec) bool {
			return len(s.Members) > 0 && s.Role == Destination && s.Network.Silent && s.Network.Namespace == ""
		},
		always("network: the namespace that the members share is missing, which is silent already"),
	},
	{
		func(s *Spec) bool {
			return len(s.Members) > 0 && s.Role == Source && s.Mode == Live && s.Network.Namespace != "" && !s.Hooks.Reclaim.Given()
		},
		always("hooks: reclaim is missing: what holds the network namespace of the members outlives them"),
	},
	{
		func(s *Spec) bool { return s.memberFault() != "" },
		func(s *Spec) string { return "members: " + s.memberFault() },
	},
}

// memberFault is the reason why the members cannot be; empty: they can.
func (s *Spec) memberFault() string {
	seen := map[string]bool{}
	for _, m := range s.Members {
		c, what := m.Freeze, "freeze"
		if s.Role == Destination {
			c, what = m.Restore, "restore"
		}
		switch {
		case !isName(m.Name) || seen[m.Name]:
			return fmt.Sprintf("%q: the name is missing, there twice, or not a name", m.Name)
		case !c.Given() || !filepath.IsAbs(c.Gate):
			return fmt.Sprintf("%s: its %s needs a command and a gate, an absolute path", m.Name, what)
		case seen[c.Gate]:
			return fmt.Sprintf("%s: another member has the gate %s", m.Name, c.Gate)
		case s.Role == Source && !filepath.IsAbs(string(c.Cgroup)):
			return fmt.Sprintf("%s: its cgroup, of the second version, is missing: all are stopped before the first is dumped", m.Name)
		case s.Role == Destination && (c.Hold == "" || !containerPattern.MatchString(c.Container)):
			return fmt.Sprintf("%s: its restore needs what stands in for CRIU, and the ID of the container: hold or container is missing or wrong", m.Name)
		}
		if s.Role == Destination && s.Policy.PlaceMemory {
			place := filepath.Dir(c.Log) // where its CRIU looks for the socket of the one that fills its memory
			if seen[place] {
				return fmt.Sprintf("%s: its memory is placed, and another member has its log in %s, too", m.Name, place)
			}
			seen[place] = true
		}
		for kind, path := range m.Joins {
			if !slices.Contains(joinable, kind) || !filepath.IsAbs(path) {
				return fmt.Sprintf("%s: joins %q at %q: the kind is one of %q, and the path is absolute", m.Name, kind, path, joinable)
			}
		}
		seen[m.Name], seen[c.Gate] = true, true
	}
	return ""
}
