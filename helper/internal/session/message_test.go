package session

import (
	"testing"

	"github.com/livefleet/handover/helper/internal/wire"
)

func FuzzMessage(f *testing.F) {
	f.Add([]byte(`{"kind":"hello","volumes":[{"name":"x","size":1}]}`))
	f.Fuzz(func(_ *testing.T, data []byte) {
		_, _ = parseMessage(&wire.Frame{Type: wire.Control, Payload: data})
	})
}
