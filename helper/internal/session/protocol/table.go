package protocol

import (
	"fmt"
	"slices"
	"strings"

	"github.com/livefleet/handover/helper/internal/session/record"
)

// rule is a message that a side may hear.
type rule struct {
	by      record.Role    // of the side that hears it
	kind    Kind           //
	in      []record.State // the states of that side in which it may come
	next    []record.State // the states that it may reach by it; none: it stays
	further bool           // it comes on a further connection, and begins it
}

const (
	source      = record.Source
	destination = record.Destination
)

type states = []record.State

// rules are all that may be heard. Both sides ask them for each message that comes, and
// before they record a state that they reach by it. The states that a side reaches without
// a message (the source's freeze, its release, every way back) are in the table of package
// record alone.
var rules = []rule{
	// The destination hears:
	{destination, "hello", states{record.Prepare}, states{record.Presync}, false},
	{destination, "again", states{record.Presync}, nil, false},
	{destination, "afresh", states{record.Presync}, nil, false},
	{destination, "round", states{record.Presync}, nil, false},
	{destination, "barrier", states{record.Presync, record.Barrier}, states{record.Barrier}, false},
	{destination, "arm", states{record.Barrier, record.Frozen}, nil, false},
	{destination, "frozen", states{record.Barrier}, states{record.Frozen}, false},
	{destination, "dumped", states{record.Frozen}, nil, false},
	{destination, "flushed", states{record.Frozen}, states{record.Flushed, record.Prepared, record.Done}, false}, // done: mode copy
	{destination, "sum", states{record.Frozen}, nil, false},
	{destination, "digests", states{record.Flushed}, nil, false},
	{destination, "verified", states{record.Flushed}, states{record.Prepared, record.Done}, false},
	{destination, "run", states{record.Prepared}, states{record.Released, record.Resumed, record.InDoubt, record.Settled}, false},
	{destination, "end", states{record.Settled, record.Done}, states{record.Done}, false},
	{destination, "fail", states{record.Prepare, record.Presync, record.Barrier, record.Frozen, record.Flushed, record.Prepared}, nil, false},
	{destination, "join", states{record.Presync}, nil, true},
	{destination, "fetch", states{record.Barrier, record.Frozen, record.Flushed, record.Prepared, record.Released, record.Resumed, record.InDoubt, record.Settled}, nil, true},

	// The source hears:
	{source, "welcome", states{record.Prepare, record.Presync}, states{record.Presync}, false},
	{source, "came", states{record.Presync}, nil, false},
	{source, "round", states{record.Presync, record.Barrier}, nil, false},
	{source, "digests", states{record.Prepare, record.Presync}, states{record.Presync}, false},
	{source, "digests", states{record.Flushed}, nil, false},
	{source, "synced", states{record.Barrier}, nil, false},
	{source, "armed", states{record.Barrier}, nil, false},
	{source, "differs", states{record.Flushed}, nil, false},
	{source, "sum", states{record.Flushed}, nil, false},
	{source, "verified", states{record.Flushed}, nil, false},
	{source, "prepared", states{record.Flushed}, states{record.Prepared}, false},
	{source, "resumed", states{record.Released}, states{record.Resumed}, false},
	{source, "refused", states{record.Released}, states{record.Refused}, false},
	{source, "refused", states{record.Flushed, record.Prepared}, nil, false},
	{source, "doubt", states{record.Released, record.Resumed}, nil, false},
	{source, "settled", states{record.Resumed}, states{record.Settled}, false},
	{source, "settled", states{record.Flushed}, states{record.Done}, false}, // mode copy
	{source, "fail", states{record.Prepare, record.Presync, record.Barrier, record.Frozen, record.Flushed, record.Prepared}, nil, false},
	{source, "join", states{record.Prepare, record.Presync}, nil, true},
	{source, "fetch", states{record.Barrier, record.Frozen, record.Flushed, record.Prepared, record.Released, record.Resumed, record.InDoubt, record.Settled}, nil, true},
}

// Turn is a message that a side has heard: the states that it may reach by it.
type Turn struct {
	by   record.Role
	kind Kind
	in   record.State
	next []record.State
}

// Hear says whether a side may hear a message in its present state, and what it may reach
// by it. The session's first connection carries all messages but those that begin a further
// one.
func Hear(by record.Role, in record.State, m Message) (Turn, error) { return hear(by, in, m, false) }

// HearFirst is Hear for the message that begins a further connection.
func HearFirst(by record.Role, in record.State, m Message) error {
	_, err := hear(by, in, m, true)
	return err
}

func hear(by record.Role, in record.State, m Message, further bool) (Turn, error) {
	for _, r := range rules {
		if r.by == by && r.kind == m.Kind() && r.further == further && slices.Contains(r.in, in) {
			return Turn{by, r.kind, in, r.next}, nil
		}
	}
	text := fmt.Sprintf("session: the %s sent %q while the %s is %s, which takes only %s", other(by), m.Kind(), by, in, strings.Join(allowed(by, in, further), ", "))
	if r, ok := m.(interface{ Text() string }); ok {
		text += fmt.Sprintf(" (its reason: %s)", r.Text())
	}
	return Turn{}, fmt.Errorf("%s: install the same pcopy on both hosts", text)
}

// Leads says whether a state may be reached by the message.
func (t Turn) Leads(to record.State) error {
	if slices.Contains(t.next, to) {
		return nil
	}
	return fmt.Errorf("session: the %s heard %q while it was %s, and that does not make it %s", t.by, t.kind, t.in, to)
}

// Heard are the kinds that a side may hear, in some state, on the session's first connection.
func Heard(by record.Role) []Kind {
	var all []Kind
	for _, r := range rules {
		if r.by == by && !r.further && !slices.Contains(all, r.kind) {
			all = append(all, r.kind)
		}
	}
	return all
}

func allowed(by record.Role, in record.State, further bool) []string {
	var all []string
	for _, r := range rules {
		if r.by == by && r.further == further && slices.Contains(r.in, in) {
			all = append(all, string(r.kind))
		}
	}
	if all == nil {
		return []string{"no message"}
	}
	return all
}

func other(side record.Role) record.Role {
	if side == source {
		return destination
	}
	return source
}
