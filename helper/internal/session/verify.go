package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/livefleet/handover/helper/internal/image"
	"github.com/livefleet/handover/helper/internal/tree"
)

// roots are the digests of all volumes, images first, then directories. look makes
// those of an image.
func (b *base) roots(ctx context.Context, look func(ctx context.Context, i int) (*image.Digests, error)) ([]image.Root, error) {
	roots := make([]image.Root, len(b.spec.Volumes)+len(b.spec.Directories))
	g, gctx := errgroup.WithContext(ctx)
	for i := range b.spec.Volumes {
		g.Go(func() error {
			digests, err := look(gctx, i)
			if err == nil {
				roots[i] = digests.Root()
			}
			return err
		})
	}
	for i, v := range b.spec.Directories {
		g.Go(func() error {
			sum, size, err := tree.Digest(gctx, v.Path)
			roots[len(b.spec.Volumes)+i] = image.Root{Algorithm: tree.DigestAlgorithm, Size: size, Root: sum}
			return err
		})
	}
	return roots, g.Wait()
}

// verify compares digests of the frozen source with what the destination reads
// back. It is slow, in the pause, and for those who ask for it.
func (s *source) verify(ctx context.Context) error {
	began := time.Now()
	mine, err := s.roots(ctx, func(ctx context.Context, i int) (*image.Digests, error) { return s.volumes[i].Digest(ctx) })
	if err != nil {
		return err
	}
	m, err := s.expect(ctx, 10*time.Minute, msgVerified)
	if err != nil {
		return err
	}
	if len(m.Roots) != len(mine) {
		return fmt.Errorf("session: the destination sent %d digests for %d volumes", len(m.Roots), len(mine))
	}
	var names []string
	for _, v := range s.spec.Volumes {
		names = append(names, v.Name)
	}
	for _, v := range s.spec.Directories {
		names = append(names, v.Name)
	}
	here, there := map[string]string{}, map[string]string{}
	var differ error
	for i, name := range names {
		here[name], there[name] = mine[i].Root, m.Roots[i].Root
		if err := mine[i].Equal(m.Roots[i]); err != nil {
			differ = errors.Join(differ, fmt.Errorf("session: volume %s: the destination differs from the frozen source: %w", name, err))
		}
	}
	s.update(false, func(st *Status) { st.setVerify(here, there) })
	if differ != nil {
		return differ
	}
	s.stage("verify", began, time.Now())
	return send(s.conn, message{Kind: msgVerified})
}

// reread are the digests of what has arrived, read back from the files and not
// remembered from the wire.
func (d *destination) reread(ctx context.Context) ([]image.Root, error) {
	return d.roots(ctx, func(ctx context.Context, i int) (*image.Digests, error) {
		v := d.spec.Volumes[i]
		src, err := image.OpenSource(v.Image)
		if err != nil {
			return nil, err
		}
		defer src.Close()
		return image.Digest(ctx, src, v.Size, v.Cluster)
	})
}
