package engine

import (
	"errors"
	"fmt"
	"strings"

	"github.com/livefleet/handover/helper/internal/ownnet"
)

// CRIU restores sockets without their memberships in multicast groups. The check looks for some
// while the workload runs, and a program may join one afterwards: so those of the frozen workload
// are compared with those of the restored one.

// CanGroups is the word of a destination that compares them.
const CanGroups = "groups"

// Joined takes the source's memberships.
func (c *Carried) Joined(groups ownnet.Groups) { c.groups = groups }

// readGroups reads them when the workload is frozen.
func (n *NetSettings) readGroups() (err error) {
	if n.Groups, err = ownnet.ReadGroups(n.path, n.Spec.Network.Only); err != nil {
		return fmt.Errorf("session: the workload's network: %w", err)
	}
	if len(n.Groups) > 0 && !n.compares && !n.Spec.Policy.IgnoreMulticast {
		return errors.New("session: the destination's pcopy does not look whether the workload is in its multicast groups there: install the same pcopy on both hosts")
	}
	return nil
}

// hasGroups is an error where the restored workload is not in all of its multicast groups, or a
// warning where that counts for nothing.
func hasGroups(r *criuRestore) error {
	if len(r.groups) == 0 {
		return nil
	}
	here, err := ownnet.ReadGroups(NamespaceOf(r.gate.Root()), r.Spec.Network.Only)
	if err != nil {
		return fmt.Errorf("session: the workload's network: %w", err)
	}
	lost := r.groups.Lost(here)
	if len(lost) == 0 {
		return nil
	}
	text := strings.Join(lost, ", ")
	if r.Spec.Policy.IgnoreMulticast {
		r.Log.Emit("warning", map[string]any{"text": "the workload has left its multicast groups until its program joins them again: " + text})
		return nil
	}
	return fmt.Errorf("session: the workload was in multicast groups, and CRIU restores no membership: %s: move it offline, or list the check 'multicast' in handover_ignore_checks if its program joins again", text)
}
