package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/livefleet/handover/helper/internal/pipeline"
	"github.com/livefleet/handover/helper/internal/session/protocol"
	"github.com/livefleet/handover/helper/internal/session/record"
	"github.com/livefleet/handover/helper/internal/wire"
)

// message handles one message of the source. Every frame before it has been
// written by now.
func (d *destination) message(ctx context.Context, f *wire.Frame) error {
	m, err := protocol.Parse(f, record.Source)
	if err != nil {
		return err
	}
	d.said, d.heard = m.SentAt(), time.Now().UnixNano()
	if err := d.hear(m); err != nil {
		return err
	}
	return d.handlers()[m.Kind()](ctx, m)
}

// handler handles a message of any kind that the table allows.
type handler func(context.Context, protocol.Message) error

// on is the handler of one kind.
func on[M protocol.Message](handle func(context.Context, M) error) (protocol.Kind, handler) {
	var none M
	return none.Kind(), func(ctx context.Context, m protocol.Message) error { return handle(ctx, m.(M)) }
}

// handlers are one for each kind that the table lets a destination hear.
func (d *destination) handlers() map[protocol.Kind]handler {
	all := map[protocol.Kind]handler{}
	add := func(kind protocol.Kind, h handler) { all[kind] = h }
	add(on(d.hello))
	add(on(d.again))
	add(on(d.afresh))
	add(on(d.round))
	add(on(d.barrier))
	add(on(d.frozen))
	add(on(d.arm))
	add(on(d.dumped))
	add(on(d.flushed))
	add(on(d.sum))
	add(on(d.digests))
	add(on(d.verified))
	add(on(d.resume))
	add(on(d.end))
	add(on(d.failed))
	return all
}

// frozen: later data are the last.
func (d *destination) frozen(context.Context, *protocol.Frozen) error {
	return d.reach(record.Frozen, "")
}

// failed: the source gives up.
func (d *destination) failed(_ context.Context, m *protocol.Fail) error {
	return fmt.Errorf("session: on the source: %s", m.Why)
}

// verified: the source's digests are the same.
func (d *destination) verified(ctx context.Context, _ *protocol.Verified) error {
	return d.prepareWorkload(ctx)
}

// end: the source has let go.
func (d *destination) end(context.Context, *protocol.End) error {
	if err := d.turn.Leads(record.Done); err != nil {
		return err
	}
	return errors.Join(d.finish(), pipeline.ErrStop)
}
