package engine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/livefleet/handover/helper/internal/affinity"
	"github.com/livefleet/handover/helper/internal/floating"
	"github.com/livefleet/handover/helper/internal/hooks"
	"github.com/livefleet/handover/helper/internal/network"
	"github.com/livefleet/handover/helper/internal/ownnet"
	"github.com/livefleet/handover/helper/internal/report"
	"github.com/livefleet/handover/helper/internal/session/record"
	"github.com/livefleet/handover/helper/internal/settings"
	"github.com/livefleet/handover/helper/internal/tasks"
)

// CanSettings is the word of a destination that gives the workload's network
// namespace its settings.
const CanSettings = "settings"

// NeedsOfDump are the features that the destination of a workload has to have that is
// dumped.
func NeedsOfDump() []string { return []string{CanSettings, CanOwnNetwork, CanOwnLinks, CanSystem} }

// NetSettings are the settings of the workload's network namespace, which the source reads.
type NetSettings struct {
	Spec     *record.Spec
	read     *settings.Net     // before the freeze; nil: none are carried
	path     string            // the namespace
	Reset    map[string]string // those that have changed since, for the last look
	own      *ownnet.State     // the namespace's other objects
	Groups   ownnet.Groups     // memberships in multicast groups, when it is frozen
	compares bool              // the destination looks whether it has them
}

// Needed ends a session whose destination would leave the settings behind: can lists its features.
func (n *NetSettings) Needed(can []string) error {
	n.compares = slices.Contains(can, CanGroups)
	if f := n.Spec.Parts()[0].Freeze; !f.Given() || f.Gate == "" || !slices.ContainsFunc(NeedsOfDump(), func(word string) bool { return !slices.Contains(can, word) }) {
		return nil
	}
	namespace, err := n.namespace()
	if err != nil || namespace == "" {
		return err
	}
	return errors.New("session: the destination's pcopy does not carry the settings and routes of the workload's network: install the same pcopy on both hosts")
}

// Look reads those of the workload's network namespace while it runs; nil: it has
// none of its own, or is not dumped and starts again.
func (n *NetSettings) Look() (*settings.Net, error) {
	namespace, err := n.namespace()
	if err != nil || namespace == "" {
		return nil, err
	}
	read, err := settings.Read(namespace)
	if err != nil {
		return nil, fmt.Errorf("session: reading the workload's network settings: %w", err)
	}
	read.Keep(n.Spec.Network.Only)
	n.read, n.path = &read, namespace
	return &read, n.readOwn()
}

// LookAgain looks which of its own the workload has changed since they were read.
func (n *NetSettings) LookAgain() (err error) {
	if n.read == nil {
		return nil
	}
	if n.Reset, err = n.read.Again(n.path); err != nil {
		return fmt.Errorf("session: reading the workload's network settings again: %w", err)
	}
	return errors.Join(n.readOwn(), n.readGroups())
}

// namespace is the path of the workload's network namespace; empty: it has the host's.
func (n *NetSettings) namespace() (string, error) {
	if f := n.Spec.Parts()[0].Freeze; !f.Given() || f.Gate == "" {
		return "", nil
	}
	path := n.Spec.Network.Namespace
	if path == "" { // one without a network of podman's
		pid, err := anyProcess(string(n.Spec.Parts()[0].Freeze.Cgroup))
		if err != nil || pid == "" {
			return "", err
		}
		path = NamespaceOf(pid)
	}
	own, err := isOwn(path)
	if err != nil || own {
		return "", err
	}
	return path, nil
}

// isOwn says whether a network namespace is that of this process, the host's.
func isOwn(path string) (bool, error) {
	theirs, err := os.Stat(path)
	if err != nil {
		return false, fmt.Errorf("session: the workload's network namespace: %w", err)
	}
	// Not the process's: its first thread may be in a workload's at this moment.
	ours, err := os.Stat("/proc/thread-self/ns/net")
	if err != nil {
		return false, fmt.Errorf("session: this host's network namespace: %w", err)
	}
	return os.SameFile(theirs, ours), nil
}

// anyProcess is one process of a cgroup, or of one below it; empty: there is none.
func anyProcess(cgroup string) (pid string, err error) {
	if cgroup == "" {
		return "", nil
	}
	err = tasks.InCgroup(cgroup, func(proc string) error {
		pid = filepath.Base(proc)
		return fs.SkipAll
	})
	if err != nil {
		return "", fmt.Errorf("session: the workload's cgroup: %w", err)
	}
	return pid, nil
}

// Carried is the source's word about the workload's surroundings, for the restore.
type Carried struct {
	waiting  []network.Connection // connections whose peers wait for this side's word
	threads  affinity.Threads     // that are bound to processors
	settings *madeSettings        // of the workload's network namespace; nil: none are carried
	flows    []floating.Flow      // connections through floating addresses
	groups   ownnet.Groups        // of the workload's network
}

// Lead takes the source's connections through floating addresses.
func (c *Carried) Lead(flows []floating.Flow) { c.flows = flows }

// madeSettings are the settings that the network namespace here is to have.
type madeSettings struct {
	read   *settings.Net     // on the source, before the freeze
	reset  map[string]string // those that have changed since
	wanted map[string]string // those that are looked at
	own    *ownnet.State     // the namespace's other objects on the source
	tables []ownnet.Table    // of those, the ones given to it before
}

// Rehearse tries the workload's own settings while it still runs on the source.
func (c *Carried) Rehearse(read *settings.Net, own *ownnet.State) error {
	if read == nil {
		return nil
	}
	wanted, err := read.Rehearse()
	if err != nil {
		return fmt.Errorf("session: the workload's network settings: %w", err)
	}
	c.settings = &madeSettings{read: read, wanted: wanted}
	return c.settings.rehearseOwn(own)
}

// Last takes the source's word from when the workload stood still.
func (c *Carried) Last(waiting []network.Connection, threads affinity.Threads, reset map[string]string, own *ownnet.State) {
	c.waiting, c.threads = waiting, threads
	if c.settings != nil {
		c.settings.reset = reset
		if own != nil {
			c.settings.own = own
		}
	}
}

// settleEarly gives the settings to the namespace that the engine has made, before there
// is a socket in it.
func (r *criuRestore) settleEarly() error {
	namespace := r.gate.Network()
	if r.part.Name != "" { // it is there before the first member is restored
		namespace = r.Spec.Network.Namespace
	}
	if r.settings == nil || namespace == "" {
		return nil
	}
	if err := r.settings.read.Meet(namespace, r.settings.wanted); err != nil {
		return fmt.Errorf("session: the workload's network settings: %w", err)
	}
	return r.settings.apply(r.Log, namespace, "made")
}

// settleAtStart does so for a restore that was not armed: CRIU has made nothing yet.
func (r *criuRestore) settleAtStart(ctx context.Context) error {
	if r.settings == nil || r.part.Name != "" {
		return nil
	}
	if err := r.await(ctx, hooks.PreRestore); err != nil {
		return err
	}
	return r.settleEarly()
}

// settleLast does so when all is restored and nothing has run yet.
func (r *criuRestore) settleLast() error {
	if r.settings == nil {
		return nil
	}
	maps.Copy(r.settings.wanted, r.settings.reset)
	return r.settings.apply(r.Log, NamespaceOf(r.gate.Root()), "restored")
}

func (n *madeSettings) apply(log *report.Log, namespace, when string) error {
	began := time.Now()
	if own, err := isOwn(namespace); err != nil {
		return err
	} else if own {
		return errors.New("session: the workload has a network namespace on the source and the host's here: the container here was not made as the source's was")
	}
	changed, err := settings.Apply(namespace, n.wanted)
	if err != nil {
		return fmt.Errorf("session: the workload's network settings: %w", err)
	}
	log.Emit("settings", map[string]any{"when": when, "looked": len(n.wanted), "set": changed, "took": map[string]float64{"settings": report.MS(time.Since(began))}})
	return n.applyOwn(log, namespace, when)
}
