package session

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/livefleet/handover/helper/internal/image"
	"github.com/livefleet/handover/helper/internal/session/protocol"
	"github.com/livefleet/handover/helper/internal/session/record"
	"github.com/livefleet/handover/helper/internal/tree"
)

// roots are the digests of all volumes, images first, then directories. look makes
// those of an image.
func roots(ctx context.Context, spec *record.Spec, look func(ctx context.Context, i int) (*image.Digests, error)) ([]image.Root, error) {
	all := make([]image.Root, len(spec.Volumes)+len(spec.Directories))
	g, gctx := errgroup.WithContext(ctx)
	for i := range spec.Volumes {
		g.Go(func() error {
			digests, err := look(gctx, i)
			if err == nil {
				all[i] = digests.Root()
			}
			return err
		})
	}
	for i, v := range spec.Directories {
		g.Go(func() error {
			sum, size, err := v.Digest(gctx)
			all[len(spec.Volumes)+i] = image.Root{Algorithm: tree.DigestAlgorithm, Size: size, Root: sum}
			return err
		})
	}
	return all, g.Wait()
}

// verify compares digests of the frozen source with those that the destination reads
// back. It is slow, in the pause, and only on request.
func (s *outgoing) verify(ctx context.Context) error {
	began := time.Now()
	digests := make([]*image.Digests, len(s.volumes))
	mine, err := roots(ctx, s.Spec, func(ctx context.Context, i int) (d *image.Digests, err error) {
		digests[i], err = s.volumes[i].Digest(ctx)
		return digests[i], err
	})
	if err != nil {
		return err
	}
	m, err := expect[*protocol.Verified](ctx, s.link, 10*time.Minute)
	if err != nil {
		return err
	}
	if len(m.Roots) != len(mine) {
		return fmt.Errorf("session: the destination sent %d digests for %d volumes", len(m.Roots), len(mine))
	}
	var names []string
	for _, v := range s.Spec.Volumes {
		names = append(names, v.Name)
	}
	for _, v := range s.Spec.Directories {
		names = append(names, v.Name)
	}
	here, there := map[string]string{}, map[string]string{}
	var differ error
	for i, name := range names {
		here[name], there[name] = mine[i].Root, m.Roots[i].Root
		if err := mine[i].Equal(m.Roots[i]); err != nil {
			where := ""
			if i < len(digests) {
				where = s.whereDiffers(ctx, i, digests[i])
			}
			differ = errors.Join(differ, fmt.Errorf("session: volume %s: the destination differs from the frozen source%s: %w", name, where, err))
		}
	}
	s.Update(false, func(st *record.Status) { st.SetVerify(here, there) })
	if differ != nil {
		// Of a folder it may be known who has made the difference.
		return errors.Join(s.undisturbed(), differ)
	}
	s.stage("verify", began, time.Now())
	return protocol.Send(s.conn, &protocol.Verified{})
}

// whereDiffers says where a volume begins to differ, as far as that can be found out:
// that it does is known.
func (s *outgoing) whereDiffers(ctx context.Context, i int, mine *image.Digests) string {
	if !s.reconnects { // it does not know the question
		return ""
	}
	if err := protocol.Send(s.conn, &protocol.Digests{Volume: i}); err != nil {
		return ""
	}
	sums, cluster, where := mine.Sums(), int64(s.volumes[i].Cluster), ""
	for next := int64(0); ; {
		m, err := expect[*protocol.Digests](ctx, s.link, 10*time.Minute)
		if err == nil && len(m.Sums) == 0 { // drain the stream: the peer must finish before it reads our error
			return where
		}
		if err != nil || m.Volume != i || m.Cluster != next || len(m.Sums)%image.DigestSize != 0 || len(m.Sums) > len(sums) {
			return ""
		}
		for at := 0; at < len(m.Sums); at += image.DigestSize {
			if where == "" && !bytes.Equal(m.Sums[at:at+image.DigestSize], sums[at:at+image.DigestSize]) {
				where = fmt.Sprintf(", from offset %d on", (next+int64(at/image.DigestSize))*cluster)
			}
		}
		next, sums = next+int64(len(m.Sums)/image.DigestSize), sums[len(m.Sums):]
	}
}

// digests tells how a volume lies here, after a comparison that found a difference.
func (d *incoming) digests(ctx context.Context, m *protocol.Digests) error {
	if m.Volume < 0 || m.Volume >= len(d.Spec.Volumes) {
		return fmt.Errorf("session: the source asks for digests of volume %d, and there are %d", m.Volume, len(d.Spec.Volumes))
	}
	if err := d.sendDigests(ctx, m.Volume, d.Spec.Volumes[m.Volume], nil); err != nil {
		return err
	}
	return protocol.Send(d.conn, &protocol.Digests{})
}

// reread are the digests of the received data, read back from the files and not
// remembered from the wire.
func (d *incoming) reread(ctx context.Context) ([]image.Root, error) {
	return roots(ctx, d.Spec, func(ctx context.Context, i int) (*image.Digests, error) {
		v := d.Spec.Volumes[i]
		src, err := image.OpenSource(v.Image)
		if err != nil {
			return nil, err
		}
		defer src.Close()
		return image.Digest(ctx, src, v.Size, v.Cluster)
	})
}
