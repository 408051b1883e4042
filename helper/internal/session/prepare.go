package session

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/livefleet/handover/helper/internal/image"
	"github.com/livefleet/handover/helper/internal/loop"
	"github.com/livefleet/handover/helper/internal/passes"
	"github.com/livefleet/handover/helper/internal/pipeline"
	"github.com/livefleet/handover/helper/internal/session/engine"
	"github.com/livefleet/handover/helper/internal/session/protocol"
	"github.com/livefleet/handover/helper/internal/session/record"
	"github.com/livefleet/handover/helper/internal/share"
)

// prepare connects, opens the volumes and trees and starts the trackers. Again: for a
// session whose first process died.
func (s *source) prepare(ctx context.Context, again bool) error {
	raw := make([]byte, 16)
	if _, err := rand.Read(raw); err != nil {
		return err
	}
	s.token = hex.EncodeToString(raw)

	var err error
	if err = s.canBrake(); err != nil {
		return err
	}
	if s.freezer, err = s.prepareFreezer(); err != nil {
		return err
	}
	if s.way, err = s.Spec.Peer.Way(); err != nil {
		return err
	}
	opening := protocol.Opening{
		ID: s.Spec.ID, Workload: s.Spec.Workload, Mode: s.Spec.Mode, TokenHash: tokenHash(s.token), Verify: s.Spec.Policy.Verify,
		Can: understood(), Lines: s.Spec.Policy.Connections, Memory: s.worthAhead(), Lazy: s.Spec.Policy.LazyPages,
	}
	if err := errors.Join(s.open(&opening), engine.Leaves(s.Spec)); err != nil {
		return err
	}
	if again {
		err = s.connectAgain(ctx, s.patience(), &protocol.Afresh{Opening: opening})
	} else {
		err = s.connect(ctx, s.patience(), &protocol.Hello{Opening: opening})
	}
	if err != nil {
		return err
	}
	welcome, err := expect[*protocol.Welcome](ctx, s.link, s.patience())
	if err != nil {
		return err
	}
	if s.Spec.Policy.LazyPages && !slices.Contains(welcome.Can, canLazy) {
		return errors.New("session: the destination's pcopy does not know lazy pages: install the same pcopy on both hosts, or move the memory before")
	}
	if slices.ContainsFunc(s.Spec.Directories, func(d record.Directory) bool { return d.Ploop != "" }) && !slices.Contains(welcome.Can, canPatch) {
		return errors.New("session: the destination's pcopy does not take the changes of a ploop disk: install the same pcopy on both hosts")
	}
	if err := errors.Join(s.settings.Needed(welcome.Can), engine.FloatingNeeded(s.Spec, welcome.Can)); err != nil {
		return err
	}
	if err := s.track(ctx, welcome); err != nil {
		return err
	}
	if err := s.confineSource(); err != nil {
		return err
	}
	if again || welcome.Compare {
		if err := s.compare(ctx); err != nil {
			return err
		}
	}
	return s.startWatching()
}

// open opens the volumes and trees, and lists them in the first message.
func (s *source) open(hello *protocol.Opening) error {
	for i, v := range s.Spec.Volumes {
		src, err := image.OpenSource(v.Device)
		if err != nil {
			return err
		}
		s.volumes = append(s.volumes, &passes.Volume{
			Name: v.Name, Device: v.Device, Mountpoint: v.Mountpoint, Tracker: v.Tracker, Cluster: v.Cluster, Stream: uint32(i), Source: src,
			SkipFree: s.Spec.Policy.Free == record.FreeSkip,
		})
		if src.Size() != v.Size {
			return fmt.Errorf("session: volume %s: %s has %d bytes and the session was told %d: was it grown meanwhile? Start again", v.Name, v.Device, src.Size(), v.Size)
		}
		hello.Volumes = append(hello.Volumes, protocol.Volume{Name: v.Name, Size: v.Size, Cluster: v.Cluster})
	}
	if err := record.NoteVolumes(s.Dir, s.Spec); err != nil {
		return err
	}
	for _, d := range s.Spec.Directories {
		hello.Directories = append(hello.Directories, d.Name)
	}
	for i, t := range s.Spec.Trees {
		s.trees = append(s.trees, &folder{Tree: t, stream: uint32(i)})
		hello.Trees = append(hello.Trees, t.Name)
	}
	return nil
}

// track begins to send over all connections, and to track.
func (s *source) track(ctx context.Context, welcome *protocol.Welcome) error {
	// From here on nothing that is written is missed: the trackers run before
	// the first cluster is read.
	for _, v := range s.volumes {
		v.Empty = welcome.Empty
		s.Update(false, func(st *record.Status) { st.TotalBytes += v.Source.Size() })
	}
	s.expectStock(welcome)
	s.reconnects = s.can(welcome, canReconnect, "a connection that breaks ends the session")
	if s.can(welcome, canCompare, "what was sent and what was written are not compared in the end") {
		s.openLedgers()
	}
	if err := s.keepPace(); err != nil {
		return err
	}
	sender, err := s.newSender(ctx, welcome)
	if err != nil {
		return err
	}
	s.copy = passes.New(sender, s.volumes, passes.Options{Count: func(n int64) { s.count(n) }, Open: s.options.openTrackers, Begin: s.beginRound})
	s.confirms.Store(s.copy)
	kinds, err := s.copy.Track()
	for _, kind := range kinds {
		s.Update(false, func(st *record.Status) { st.Tracker = kind })
	}
	for _, v := range s.volumes {
		s.Log.Emit("survey", map[string]any{"volume": v.Name, "holes": v.Survey.Holes, "free": v.Survey.Free, "why": v.Survey.Why})
	}
	if err != nil {
		return err
	}
	return s.comparing(kinds)
}

// prepareFreezer puts a tmpfs where CRIU writes its dump, so that the dump costs
// no disk, and opens the gate there.
func (s *source) prepareFreezer() (engine.Freezer, error) {
	for _, t := range s.Spec.Trees {
		if t.Stage != record.StageDump {
			continue
		}
		if mounted, err := loop.Mounted(t.Path); err != nil {
			return nil, err
		} else if mounted {
			return nil, fmt.Errorf("session: something is mounted on %s, left by an earlier session? Unmount it", t.Path)
		}
		if err := loop.MountTmpfs(t.Path); err != nil {
			return nil, err
		}
		s.tmpfs = append(s.tmpfs, t.Path)
	}
	return engine.NewFreezer(s.Session)
}

// keepPace takes up the limits: the session's own, its part of the host's, and its
// turn among the copies. None holds in the pause.
func (s *source) keepPace() (err error) {
	policy := s.Spec.Policy
	if policy.Shared > 0 {
		if s.share, err = share.New(filepath.Join(s.RunDir, record.SharesDir), s.Spec.ID); err != nil {
			return err
		}
	}
	if policy.AtOnce > 0 {
		// In the order in which they began.
		if s.queue, err = share.New(filepath.Join(s.RunDir, record.TurnsDir), fmt.Sprintf("%020d-%s", time.Now().UnixNano(), s.Spec.ID)); err != nil {
			return err
		}
	}
	s.pace = pipeline.NewPace(func() int64 {
		own, part := policy.Limit, s.share.Part(policy.Shared)
		switch {
		case s.stopped.Load():
			return 0
		case own > 0 && (part == 0 || own < part):
			return own
		}
		return part
	})
	return nil
}
