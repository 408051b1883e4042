package session

import (
	"slices"
	"testing"

	"github.com/livefleet/handover/helper/internal/session/protocol"
	"github.com/livefleet/handover/helper/internal/session/record"
)

// The table says what a destination may hear, and for each of that there is a handler.
func TestTheDestinationHandlesAllThatItMayHear(t *testing.T) {
	handled := newDestination(&record.Session{Spec: &record.Spec{ID: "rig"}}, planted).handlers()
	heard := protocol.Heard(record.Destination)
	for _, kind := range heard {
		if handled[kind] == nil {
			t.Errorf("%q is allowed, and has no handler", kind)
		}
	}
	for kind := range handled {
		if !slices.Contains(heard, kind) {
			t.Errorf("%q has a handler, and is never allowed", kind)
		}
	}
}
