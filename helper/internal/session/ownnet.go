package session

import (
	"errors"
	"fmt"
	"time"

	"github.com/livefleet/handover/helper/internal/ownnet"
)

// canOwnNetwork is what a destination says that gives the workload's network namespace
// what the workload itself has made in it: see ownnet.
const canOwnNetwork = "own-network"

// readOwnNetwork reads it: while the workload runs, and again when it is frozen.
func (s *source) readOwnNetwork() error {
	own, err := ownnet.Read(s.settings.path)
	if err != nil {
		return fmt.Errorf("session: the workload's network: %w", err)
	}
	s.settings.own = &own
	return nil
}

// ownNetwork is what was read last; nil: there is nothing to carry.
func (s *source) ownNetwork() *ownnet.State {
	if s.settings == nil {
		return nil
	}
	return s.settings.own
}

// rehearseOwnNetwork tries it while the workload still runs on the source.
func (d *destination) rehearseOwnNetwork(m *message) error {
	if m.Own == nil {
		return errors.New("session: the source does not say what the workload has made in its network: install the same pcopy on both hosts")
	}
	if err := ownnet.Rehearse(*m.Own); err != nil {
		return fmt.Errorf("session: the workload's network: %w", err)
	}
	d.settings.own = m.Own
	return nil
}

// applyOwn gives it to the namespace, and is an error where that is not as the source's.
func (n *netSettings) applyOwn(b *base, namespace, when string) error {
	began := time.Now()
	changed, err := ownnet.Apply(namespace, *n.own, n.tables)
	if err != nil {
		return fmt.Errorf("session: the workload's network: %w", err)
	}
	n.tables = n.own.Tables
	b.log.Emit("own_network", map[string]any{"when": when, "made": changed, "took": map[string]float64{"network": ms(time.Since(began))}})
	return nil
}
