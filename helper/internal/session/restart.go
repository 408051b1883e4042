package session

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/livefleet/handover/helper/internal/blockmap"
	"github.com/livefleet/handover/helper/internal/codec"
	"github.com/livefleet/handover/helper/internal/image"
	"github.com/livefleet/handover/helper/internal/ledger"
	"github.com/livefleet/handover/helper/internal/report"
	"github.com/livefleet/handover/helper/internal/session/protocol"
	"github.com/livefleet/handover/helper/internal/session/record"
)

// A source whose process died in presync can be started again, for as long as the
// destination waits for it (policy.reconnect_timeout). With the process its marks are
// gone: the writes since are unknown, and so is the sent part of the last pass. So
// nothing is trusted. The new process tracks from now on, and then both sides read
// everything and compare digests, a stretch at a time; the differences are sent.
//
// Folders are sent once more, whole: entries on the destination that are no longer
// here are removed.

// clustersAtOnce is how many clusters one message has digests of.
const clustersAtOnce = 4096

// connectAgain is connect for a process that was started again: the destination
// may be busy noticing that the first one is gone.
func (s *link) connectAgain(ctx context.Context, limit time.Duration, first protocol.Message) error {
	until := time.Now().Add(time.Duration(s.Spec.Policy.ReconnectTimeout) * time.Second)
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		err := s.connect(ctx, limit, first)
		if err == nil || ctx.Err() != nil || time.Now().Add(pause).After(until) {
			return err
		}
		if err := s.pause(ctx, pause); err != nil {
			return err
		}
	}
}

// compare reads everything and takes the clusters that the destination already holds
// off those to send. The trackers run: later writes are marked.
func (s *outgoing) compare(ctx context.Context) error {
	began := time.Now()
	var same int64
	maps, next := make([]*blockmap.Map, len(s.volumes)), make([]int64, len(s.volumes)) // the digests of each come in order
	for i, v := range s.volumes {
		maps[i] = blockmap.New(v.Source.Size(), v.Cluster)
	}
	if !s.reconnects {
		return errors.New("session: the process that began this session died, and the destination's pcopy cannot go on with another: start a new session")
	}
	for {
		m, err := expect[*protocol.Digests](ctx, s.link, 10*time.Minute)
		if err != nil {
			return err
		}
		if len(m.Sums) == 0 {
			break
		}
		if m.Volume < 0 || m.Volume >= len(s.volumes) {
			return fmt.Errorf("session: the destination has a digest of volume %d, and there are %d", m.Volume, len(s.volumes))
		}
		v := s.volumes[m.Volume]
		n := int64(len(m.Sums) / image.DigestSize)
		if len(m.Sums)%image.DigestSize != 0 || m.Cluster != next[m.Volume] || n > clustersAtOnce || m.Cluster > maps[m.Volume].Clusters()-n {
			return fmt.Errorf("session: volume %s: the destination has %d bytes of digests from cluster %d on, which cannot be", v.Name, len(m.Sums), m.Cluster)
		}
		next[m.Volume] += n
		mine, err := digests(ctx, v.Source, m.Cluster, n, v.Cluster, v.Ledger)
		if err != nil {
			return err
		}
		for i := range n {
			at := i * image.DigestSize
			if bytes.Equal(mine[at:at+image.DigestSize], m.Sums[at:at+image.DigestSize]) {
				maps[m.Volume].MarkRange((m.Cluster+i)*int64(v.Cluster), 1)
			}
		}
	}
	for i, v := range s.volumes {
		same += maps[i].Bytes()
		if err := s.copy.Spare(v.Stream, maps[i]); err != nil {
			return err
		}
	}
	s.Log.Emit("compared", map[string]any{"same": same, "differ": s.copy.Dirty(), "ms": report.MS(time.Since(began))})
	return nil
}

// digests are those of a stretch of clusters. Their content is noted in l, if that is
// not nil.
func digests(ctx context.Context, src *image.Source, first, n int64, cluster int, l *ledger.Ledger) ([]byte, error) {
	off := first * int64(cluster)
	size := min(n*int64(cluster), src.Size()-off)
	d, err := image.Digest(ctx, stretch{src, off, size, cluster, l}, size, cluster)
	if err != nil {
		return nil, err
	}
	return d.Sums(), nil
}

// stretch is a part of a source.
type stretch struct {
	src     *image.Source
	off, in int64
	cluster int
	ledger  *ledger.Ledger
}

// ReadAt is asked for whole clusters, each of them once.
func (s stretch) ReadAt(p []byte, off int64) (int, error) {
	n, err := s.src.ReadAt(p, s.off+off)
	if s.ledger == nil || n < len(p) {
		return n, err
	}
	for at := 0; at < n; at += s.cluster {
		part, place := p[at:min(at+s.cluster, n)], s.off+off+int64(at)
		note := func() error { return s.ledger.Note(place, part) }
		if codec.IsZero(part) {
			note = func() error { return s.ledger.NoteZero(place, int64(len(part))) }
		}
		if err := note(); err != nil {
			return 0, err
		}
	}
	return n, err
}

func (s stretch) NextData(off int64) (start, end int64, err error) {
	start, end, err = s.src.NextData(s.off + off)
	if err == nil && start >= s.off+s.in {
		err = io.EOF
	}
	return min(start-s.off, s.in), min(end-s.off, s.in), err
}

// afresh: the source's process died, and this is another one. The received data lie
// here; of those on their way nothing is known.
func (d *incoming) afresh(ctx context.Context, m *protocol.Afresh) error {
	if err := d.agree(&m.Opening); err != nil {
		return err
	}
	d.empty, d.compares = false, true
	d.expectAll()
	d.openVolumes()
	if err := d.welcome(0); err != nil {
		return err
	}
	return d.sendAllDigests(ctx, nil)
}

func (d *incoming) sendDigests(ctx context.Context, number int, v record.Vol, l *ledger.Ledger) (err error) {
	src, err := image.OpenSource(v.Image)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	all := blockmap.New(v.Size, v.Cluster).Clusters()
	for first := int64(0); first < all; first += clustersAtOnce {
		sums, err := digests(ctx, src, first, min(clustersAtOnce, all-first), v.Cluster, l)
		if err != nil {
			return err
		}
		if err := protocol.Send(d.conn, &protocol.Digests{Volume: number, Cluster: first, Sums: sums}); err != nil {
			return err
		}
	}
	return nil
}
