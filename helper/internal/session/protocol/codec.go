package protocol

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/livefleet/handover/helper/internal/session/record"
	"github.com/livefleet/handover/helper/internal/wire"
)

// empty makes a message of each kind.
var empty = func() map[Kind]func() Message {
	all := map[Kind]func() Message{}
	for _, each := range []func() Message{
		func() Message { return &Hello{} },
		func() Message { return &Afresh{} },
		func() Message { return &Again{} },
		func() Message { return &Barrier{} },
		func() Message { return &Frozen{} },
		func() Message { return &Arm{} },
		func() Message { return &Dumped{} },
		func() Message { return &Flushed{} },
		func() Message { return &Run{} },
		func() Message { return &End{} },
		func() Message { return &Welcome{} },
		func() Message { return &Came{} },
		func() Message { return &Synced{} },
		func() Message { return &Armed{} },
		func() Message { return &Differs{} },
		func() Message { return &Prepared{} },
		func() Message { return &Resumed{} },
		func() Message { return &Refused{} },
		func() Message { return &Doubt{} },
		func() Message { return &Settled{} },
		func() Message { return &Join{} },
		func() Message { return &Fetch{} },
		func() Message { return &Round{} },
		func() Message { return &Digests{} },
		func() Message { return &Sum{} },
		func() Message { return &Verified{} },
		func() Message { return &Fail{} },
	} {
		all[each().Kind()] = each
	}
	return all
}()

// Frame is a message as it travels.
func Frame(m Message) (*wire.Frame, error) {
	fields, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("session: %w", err)
	}
	kind, err := json.Marshal(m.Kind())
	if err != nil {
		return nil, fmt.Errorf("session: %w", err)
	}
	b := append([]byte(`{"kind":`), kind...)
	if len(fields) > len("{}") {
		b = append(b, ',')
	}
	return &wire.Frame{Type: wire.Control, Payload: append(b, fields[1:]...)}, nil
}

// Parse reads a message that a side has sent.
func Parse(f *wire.Frame, by record.Role) (Message, error) {
	var head struct {
		Kind Kind `json:"kind"`
	}
	if err := json.Unmarshal(f.Payload, &head); err != nil {
		return nil, fmt.Errorf("session: the %s sent a message that is none: %w", by, err)
	}
	make, ok := empty[head.Kind]
	if !ok {
		return nil, fmt.Errorf("session: the %s sent the unknown message %q: install the same pcopy on both hosts", by, head.Kind)
	}
	m := make()
	if err := json.Unmarshal(f.Payload, m); err != nil {
		return nil, fmt.Errorf("session: the %s sent a message %q that is none: %w", by, head.Kind, err)
	}
	return m, nil
}

// Send sends a message, with the time.
func Send(c *wire.Conn, m Message) error {
	m.stamp(time.Now().UnixNano())
	f, err := Frame(m)
	if err != nil {
		return err
	}
	return c.Write(f)
}
