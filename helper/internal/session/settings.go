package session

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/livefleet/handover/helper/internal/hooks"
	"github.com/livefleet/handover/helper/internal/ownnet"
	"github.com/livefleet/handover/helper/internal/settings"
)

// canSettings is what a destination says that gives the workload's network namespace
// its settings.
const canSettings = "settings"

// settingsNeeded ends a session whose destination would leave the settings behind.
func (s *source) settingsNeeded(welcome *message) error {
	if f := s.spec.Hooks.Freeze; !f.Given() || f.Gate == "" || slices.Contains(welcome.Can, canSettings) && slices.Contains(welcome.Can, canOwnNetwork) {
		return nil
	}
	namespace, err := s.namespace()
	if err != nil || namespace == "" {
		return err
	}
	return errors.New("session: the destination's pcopy does not carry the settings and routes of the workload's network: install the same pcopy on both hosts")
}

// netSettings are the settings of the workload's network namespace.
type netSettings struct {
	read   *settings.Net     // before the freeze
	path   string            // source: the namespace
	reset  map[string]string // those that have changed since, for the last look
	wanted map[string]string // destination: those that it looks at
	own    *ownnet.State     // what else the namespace has
	tables []ownnet.Table    // destination: of that, what was given to it before
}

// networkSettings reads those of the workload's network namespace while it runs; nil: it
// has none of its own, or is not dumped and starts anew.
func (s *source) networkSettings() (*settings.Net, error) {
	namespace, err := s.namespace()
	if err != nil || namespace == "" {
		return nil, err
	}
	n, err := settings.Read(namespace)
	if err != nil {
		return nil, fmt.Errorf("session: reading the workload's network settings: %w", err)
	}
	s.settings = &netSettings{read: &n, path: namespace}
	return &n, s.readOwnNetwork()
}

// settingsAgain looks which of its own the workload has changed since they were read.
func (s *source) settingsAgain() (err error) {
	if s.settings == nil {
		return nil
	}
	if s.settings.reset, err = s.settings.read.Again(s.settings.path); err != nil {
		return fmt.Errorf("session: reading the workload's network settings again: %w", err)
	}
	return s.readOwnNetwork()
}

// reset are those, when it is frozen.
func (s *source) reset() map[string]string {
	if s.settings == nil {
		return nil
	}
	return s.settings.reset
}

// namespace is the path of the workload's network namespace; empty: it has the host's.
func (s *source) namespace() (string, error) {
	if f := s.spec.Hooks.Freeze; !f.Given() || f.Gate == "" {
		return "", nil
	}
	path := s.spec.Network.Namespace
	if path == "" { // one without a network of podman's
		pid, err := anyProcess(string(s.spec.Hooks.Freeze.Cgroup))
		if err != nil || pid == "" {
			return "", err
		}
		path = namespaceOf(pid)
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
	err = filepath.WalkDir(cgroup, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return err
		}
		b, err := os.ReadFile(filepath.Join(path, "cgroup.procs"))
		if found := strings.Fields(string(b)); len(found) > 0 {
			pid = found[0]
			return filepath.SkipAll
		}
		return err
	})
	if err != nil {
		return "", fmt.Errorf("session: the workload's cgroup: %w", err)
	}
	return pid, nil
}

// rehearse tries the workload's own settings while it still runs on the source.
func (d *destination) rehearse(m *message) error {
	if m.Settings == nil {
		return nil
	}
	wanted, err := m.Settings.Rehearse()
	if err != nil {
		return fmt.Errorf("session: the workload's network settings: %w", err)
	}
	d.settings = &netSettings{read: m.Settings, wanted: wanted}
	return d.rehearseOwnNetwork(m)
}

// settleEarly gives the settings to the namespace that the engine has made, before there
// is a socket in it.
func (r *criuRestore) settleEarly() error {
	namespace := r.gate.Network()
	if r.settings == nil || namespace == "" {
		return nil
	}
	if err := r.settings.read.Meet(namespace, r.settings.wanted); err != nil {
		return fmt.Errorf("session: the workload's network settings: %w", err)
	}
	return r.settings.apply(r.base, namespace, "made")
}

// settleAtStart does so for a restore that was not armed: CRIU has made nothing yet.
func (r *criuRestore) settleAtStart(ctx context.Context) error {
	if r.settings == nil {
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
	return r.settings.apply(r.base, namespaceOf(r.gate.Root()), "restored")
}

func (n *netSettings) apply(b *base, namespace, when string) error {
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
	b.log.Emit("settings", map[string]any{"when": when, "looked": len(n.wanted), "set": changed, "took": map[string]float64{"settings": ms(time.Since(began))}})
	return n.applyOwn(b, namespace, when)
}
