package engine

import (
	"errors"
	"fmt"
	"time"

	"github.com/livefleet/handover/helper/internal/ownnet"
	"github.com/livefleet/handover/helper/internal/report"
)

// CanOwnNetwork is the word of a destination that gives the workload's network
// namespace the objects that the workload itself has made in it: see ownnet.
const CanOwnNetwork = "own-network"

// CanOwnLinks is the word of one that gives it the settings of its interfaces, too.
const CanOwnLinks = "own-links"

// readOwn reads it: while the workload runs, and again when it is frozen.
func (n *NetSettings) readOwn() error {
	own, err := ownnet.Read(n.path, n.Spec.Network.Only)
	if err != nil {
		return fmt.Errorf("session: the workload's network: %w", err)
	}
	n.own = &own
	return nil
}

// Own is the last reading of it; nil: there is nothing to carry.
func (n *NetSettings) Own() *ownnet.State { return n.own }

// rehearseOwn tries it while the workload still runs on the source.
func (n *madeSettings) rehearseOwn(own *ownnet.State) error {
	if own == nil {
		return errors.New("session: the source does not say what the workload has made in its network: install the same pcopy on both hosts")
	}
	if err := ownnet.Rehearse(*own); err != nil {
		return fmt.Errorf("session: the workload's network: %w", err)
	}
	n.own = own
	return nil
}

// applyOwn gives it to the namespace, and is an error where that is not as the source's.
func (n *madeSettings) applyOwn(log *report.Log, namespace, when string) error {
	began := time.Now()
	changed, err := ownnet.Apply(namespace, *n.own, n.tables)
	if err != nil {
		return fmt.Errorf("session: the workload's network: %w", err)
	}
	n.tables = n.own.Tables
	log.Emit("own_network", map[string]any{"when": when, "made": changed, "took": map[string]float64{"network": report.MS(time.Since(began))}})
	return nil
}
