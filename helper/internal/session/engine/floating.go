package engine

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/livefleet/handover/helper/internal/floating"
	"github.com/livefleet/handover/helper/internal/network"
	"github.com/livefleet/handover/helper/internal/report"
	"github.com/livefleet/handover/helper/internal/session/record"
)

// CanFloat is the word of a destination that takes the addresses of published ports, and
// the connections through them.
const CanFloat = "floating"

// The addresses of published ports are where the workload may run:
//
//	source       until prepared                  here
//	             from just before the release    taken: a release that does not come
//	                                             about brings them back
//	destination  until the run token             not here, and nothing of the segment's
//	                                             comes to it
//	             from the run token on           here, before anything runs
//
// The connections' entries are on the destination before it says that it is prepared, and
// on the source until the session is over. So the source goes on with them at any time,
// and the destination has them before it has the address.

// FloatingNeeded ends a session whose destination would leave the addresses behind.
func FloatingNeeded(spec *record.Spec, can []string) error {
	if len(spec.Network.Floating) == 0 || slices.Contains(can, CanFloat) {
		return nil
	}
	return errors.New("session: the destination's pcopy does not carry the floating addresses of published ports: install the same pcopy on both hosts")
}

// BookOf is where this host notes the addresses that came here, by the folder of a session.
func BookOf(dir string) floating.Book { return BookBeside(filepath.Dir(dir)) }

// BookBeside is the same, by the folder of all sessions.
func BookBeside(root string) floating.Book {
	return floating.Book(filepath.Join(filepath.Dir(root), "addresses"))
}

// Leaves makes sure that the source has the addresses, and can do without them.
func Leaves(spec *record.Spec) error {
	if err := floating.Removable(spec.Network.Floating); err != nil {
		return fmt.Errorf("session: %w", err)
	}
	return nil
}

// ReadFlows are the connections through the addresses of a workload that is frozen.
func ReadFlows(spec *record.Spec) ([]floating.Flow, error) {
	if len(spec.Network.Floating) == 0 || spec.Network.Namespace == "" {
		return nil, nil
	}
	inner, err := network.Addresses(spec.Network.Namespace)
	if err != nil {
		return nil, fmt.Errorf("session: %w", err)
	}
	flows, err := floating.Read(spec.Network.Floating, func(a netip.Addr) bool { return inner[a] })
	if err != nil {
		return nil, fmt.Errorf("session: %w", err)
	}
	return flows, nil
}

// LetGo takes the addresses from the source. It comes before the release, while a failure
// can still be undone.
func LetGo(spec *record.Spec) error {
	if err := floating.Take(spec.Network.Floating); err != nil {
		return fmt.Errorf("session: %w", err)
	}
	return nil
}

// TakeBack brings them back to a source that goes on. The session has seen them here when
// it came to presync; before that it does not know that they are this host's.
func TakeBack(spec *record.Spec, j *record.Journal) error {
	if !mayHaveLetGo(j) {
		return nil
	}
	return bring(spec)
}

// GoOn is TakeBack by the session's own process.
func GoOn(b *record.Session) error {
	if !mayHaveLetGo(b.Journal) {
		return nil
	}
	return comeUp(b)
}

// mayHaveLetGo is also true of a journal that was lost: its only record is in_doubt.
func mayHaveLetGo(j *record.Journal) bool {
	return j.Reached(record.Presync) || j.Reached(record.InDoubt)
}

// Gone removes from the source the rest of a workload's addresses that runs on the
// destination.
func Gone(dir string, spec *record.Spec) error {
	if len(spec.Network.Floating) == 0 {
		return nil
	}
	return errors.Join(LetGo(spec), BookOf(dir).Strike(spec.Bundle), forget(spec))
}

// forget removes the entries of the connections. Only a live move has carried any: those of
// a workload that was stopped lead nowhere, and its kernel need not have the table at all.
func forget(spec *record.Spec) error {
	if spec.Mode != record.Live {
		return nil
	}
	if err := floating.Forget(spec.Network.Floating); err != nil {
		return fmt.Errorf("session: %w", err)
	}
	return nil
}

// Expect makes sure that the destination can take the addresses, and notes them for the
// starts after a boot: those are let through only when the workload is at home here.
func Expect(dir string, spec *record.Spec) error {
	if len(spec.Network.Floating) == 0 {
		return nil
	}
	err := floating.Free(spec.Network.Floating)
	if err == nil {
		err = BookOf(dir).Note(spec.Bundle, layersOf(spec), spec.Network.Floating)
	}
	if err != nil {
		return fmt.Errorf("session: %w", err)
	}
	return nil
}

// layersOf are the folders of a workload that its engine removes with it.
func layersOf(spec *record.Spec) (paths []string) {
	for _, t := range spec.Trees {
		if t.Name == "layer" {
			paths = append(paths, t.Path)
		}
	}
	return paths
}

// Withdraw removes them from a destination that does not run the workload, before the
// source hears of that. Before the session had put them here they are not its own.
func Withdraw(dir string, spec *record.Spec, j *record.Journal) (err error) {
	if len(spec.Network.Floating) == 0 {
		return nil
	}
	lost := j.Reached(record.InDoubt) // also of a journal that was lost
	if j.Reached(record.Released) || lost {
		err = LetGo(spec)
	}
	if j.Reached(record.Flushed) || lost {
		err = errors.Join(err, forget(spec))
	}
	return errors.Join(err, BookOf(dir).Strike(spec.Bundle))
}

// ComeUp brings them to the destination that was told to run the workload.
func ComeUp(spec *record.Spec) error { return bring(spec) }

func bring(spec *record.Spec) error {
	if err := floating.Bring(spec.Network.Floating); err != nil {
		return fmt.Errorf("session: %w", err)
	}
	Announce(spec.Network.Floating)
	return nil
}

// Announce tells the segment. A neighbour that does not hear it asks in time: a frame that
// is lost keeps no workload from running.
func Announce(all []floating.Address) {
	if err := floating.Announce(all); err != nil {
		fmt.Fprintln(os.Stderr, "pcopy: announcing an address:", err)
	}
}

// lead gives this host the entries of the connections, before it has the addresses.
func (r *criuRestore) lead() error {
	if len(r.flows) == 0 {
		return nil
	}
	began := time.Now()
	inner, err := network.Addresses(NamespaceOf(r.gate.Root()))
	if err == nil {
		err = floating.Check(r.flows, r.Spec.Network.Floating, func(a netip.Addr) bool { return inner[a] })
	}
	var others []floating.Flow
	if err == nil {
		others, err = floating.FromOthers(r.flows)
	}
	if err == nil {
		err = floating.Write(others)
	}
	if err != nil {
		return fmt.Errorf("session: %w", err)
	}
	if own := len(r.flows) - len(others); own > 0 {
		r.Log.Emit("warning", map[string]any{"text": fmt.Sprintf("%d connections of clients on this host to the workload's addresses end", own)})
	}
	r.Log.Emit("flows", map[string]any{"made": len(others), "took": map[string]float64{"flows": report.MS(time.Since(began))}})
	return nil
}

// meetAgain has this host let the packets of the workload's connections pass that it knows
// from before. Where it cannot, they may stand still, which is no reason to end the move. It
// is told.
func meetAgain(r *criuRestore) {
	if !floating.Tracks() {
		return
	}
	began := time.Now()
	var found int
	all, err := network.Connected(NamespaceOf(r.gate.Root()))
	if err == nil {
		found, err = floating.Loosen(all)
	}
	if err != nil {
		r.Log.Emit("warning", map[string]any{"text": "connections that have been on this host before may stand still: " + err.Error()})
	}
	if found > 0 {
		r.Log.Emit("loosened", map[string]any{"connections": found, "took": map[string]float64{"loosened": report.MS(time.Since(began))}})
	}
}

// comeUp is ComeUp by the session's own process, which announces them more than once.
func comeUp(b *record.Session) error {
	if len(b.Spec.Network.Floating) == 0 {
		return nil
	}
	if err := floating.Bring(b.Spec.Network.Floating); err != nil {
		return fmt.Errorf("session: %w", err)
	}
	repeat(b.Log, announcements, func() error { return floating.Announce(b.Spec.Network.Floating) })
	return nil
}
