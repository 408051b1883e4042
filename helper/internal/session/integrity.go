package session

import (
	"context"
	"errors"
	"fmt"

	"github.com/livefleet/handover/helper/internal/ledger"
	"github.com/livefleet/handover/helper/internal/session/protocol"
	"github.com/livefleet/handover/helper/internal/session/record"
)

// Both sides keep a ledger of each volume: the source of the data it has read and
// sent, the destination of the data it has unpacked and written. When everything has
// been sent the source tells the sums of its ledgers, which are ready, and the
// destination compares them with its own. If they are not the same, the source asks
// for sums of ever smaller parts until it knows the first cluster that differs. This
// goes on in the pause and costs one message if all is well.

// openLedgers begins the source's ledgers.
func (s *outgoing) openLedgers() {
	for _, v := range s.volumes {
		v.Ledger = ledger.New(v.Source.Size(), v.Cluster, s.Dir, 0)
	}
}

// openLedgers begins the destination's.
func (d *incoming) openLedgers() {
	for i, t := range d.targets {
		d.ledgers = append(d.ledgers, ledger.New(t.Size(), d.Spec.Volumes[i].Cluster, d.Dir, 0))
	}
}

// openVolumes tells the receiver its volumes.
func (d *incoming) openVolumes() {
	for i, t := range d.targets {
		var l *ledger.Ledger
		if d.ledgers != nil {
			l = d.ledgers[i]
		}
		d.receiver.Add(uint32(i), t, l)
	}
}

// totals are the sums of the source's sent data.
func (s *outgoing) totals() []string {
	var totals []string
	for _, v := range s.volumes {
		if v.Ledger != nil {
			totals = append(totals, v.Ledger.Total().String())
		}
	}
	s.Update(false, func(st *record.Status) { st.Totals = totals })
	return totals
}

// compare compares the source's sums with the written data. If they differ, the
// source is told where, and asks on.
func (d *incoming) compare(m *protocol.Flushed) (differs bool, err error) {
	if len(m.Totals) != len(d.ledgers) {
		return false, fmt.Errorf("session: the source tells the sums of %d volumes, and there are %d ledgers", len(m.Totals), len(d.ledgers))
	}
	var totals []string
	for i, l := range d.ledgers {
		total := l.Total().String()
		totals = append(totals, total)
		if total != m.Totals[i] {
			return true, protocol.Send(d.conn, &protocol.Differs{Range: &protocol.Clusters{Volume: i, End: l.Clusters()}})
		}
	}
	d.Update(false, func(st *record.Status) { st.Totals = totals })
	return false, nil
}

// sum answers the source's questions when sums differ.
func (d *incoming) sum(_ context.Context, m *protocol.Sum) error {
	if m.Range == nil || m.Range.Volume < 0 || m.Range.Volume >= len(d.ledgers) {
		return errors.New("session: the source asks for the sum of clusters of a volume that there is not")
	}
	s, err := d.ledgers[m.Range.Volume].Sum(m.Range.First, m.Range.End)
	if err != nil {
		return err
	}
	return protocol.Send(d.conn, &protocol.Sum{Range: m.Range, Sum: s.String()})
}

// nameDifference finds the first cluster of a volume in which the written data differ
// from the sent ones, and names it.
func (s *outgoing) nameDifference(ctx context.Context, m *protocol.Differs) error {
	if m.Range == nil || m.Range.Volume < 0 || m.Range.Volume >= len(s.volumes) || s.volumes[m.Range.Volume].Ledger == nil {
		return errors.New("session: the destination says that something differs, and not where")
	}
	v := s.volumes[m.Range.Volume]
	// All clusters before first are the same; between first and end one differs.
	first, end := int64(0), v.Ledger.Clusters()
	for end-first > 1 {
		half := protocol.Clusters{Volume: m.Range.Volume, First: first, End: (first + end) / 2}
		mine, err := v.Ledger.Sum(half.First, half.End)
		if err != nil {
			return err
		}
		if err := protocol.Send(s.conn, &protocol.Sum{Range: &half}); err != nil {
			return err
		}
		answer, err := expect[*protocol.Sum](ctx, s.link, s.patience())
		if err != nil {
			return err
		}
		if answer.Sum == mine.String() {
			first = half.End
		} else {
			end = half.End
		}
	}
	return fmt.Errorf("session: volume %s: the cluster at offset %d is on the destination not what was sent: it was damaged in memory, or left out, between reading it here and writing it there: nothing has moved; if it happens again, check the memory of both hosts",
		v.Name, v.Ledger.Offset(first))
}
