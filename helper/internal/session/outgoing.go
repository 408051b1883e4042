package session

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/livefleet/handover/helper/internal/passes"
	"github.com/livefleet/handover/helper/internal/pipeline"
	"github.com/livefleet/handover/helper/internal/session/record"
	"github.com/livefleet/handover/helper/internal/share"
	"github.com/livefleet/handover/helper/internal/tracker"
	"github.com/livefleet/handover/helper/internal/tree"
)

// outgoing is the traffic while the workload runs and in the pause, over the connections of a link: volumes,
// directories and trees.
type outgoing struct {
	*link
	*timeline
	volumes     []*passes.Volume
	copy        *passes.Copy
	directories []*directory
	trees       []*folder
	pass        int           // how many were begun
	collecting  time.Duration // how long the last collect took
	count       func(int64)   // of the pass that is under way
	pace        *pipeline.Pace
	share       *share.Member // of this host's limit; nil: it is not shared
}

// folder is one tree on its way.
type folder struct {
	record.Tree
	stream uint32
	mirror *tree.Mirror // nil before it was sent first
	round  int          // the one in which it was sent last, to its end
}

// comparing reports the cost of volumes that are compared and not tracked, and
// refuses if that would be a longer pause than was allowed.
func (s *outgoing) comparing(kinds map[string]string) error {
	var bytes int64
	var names, whys []string
	for _, v := range s.volumes {
		if kinds[v.Name] != tracker.Hash {
			continue
		}
		bytes += v.Source.Size()
		names = append(names, v.Name)
		if v.Comparing != "" && !slices.Contains(whys, v.Comparing) {
			whys = append(whys, v.Comparing)
		}
	}
	if len(names) == 0 {
		return nil
	}
	why := strings.Join(whys, "; ")
	if why == "" {
		why = "it was asked for"
	}
	text := fmt.Sprintf("volumes %s are compared by digest and not tracked (%s): %d bytes are read for each pass", strings.Join(names, ", "), why, bytes)
	if s.Spec.Mode == record.Copy {
		s.Log.Emit("warning", map[string]any{"text": text})
		return nil
	}
	if limit := s.Spec.Policy.HashLimit; limit > 0 && bytes > limit {
		return fmt.Errorf("session: %s, also in the pause, and hash_limit allows %d: allow more, or have them tracked", text, limit)
	}
	s.Log.Emit("warning", map[string]any{"text": text + ", also in the pause"})
	return nil
}

// thawVolumes may come before there is anything to thaw.
func (s *outgoing) thawVolumes() error {
	if s.copy == nil {
		return nil
	}
	return s.copy.Thaw()
}

// closeTrees lets go of the folders that were sent.
func (s *outgoing) closeTrees() error {
	var err error
	for _, t := range s.trees {
		if t.mirror != nil {
			err = errors.Join(err, t.mirror.Close())
			t.mirror = nil
		}
	}
	return err
}
