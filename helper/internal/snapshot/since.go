package snapshot

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/livefleet/handover/helper/internal/blockmap"
	"github.com/livefleet/handover/helper/internal/changes"
	"github.com/livefleet/handover/helper/internal/store"
	"github.com/livefleet/handover/helper/internal/tracker"
)

// trackerName is the name of the tracker that stays in the kernel for a volume of a
// store.
func trackerName(id, volume string) string {
	return fmt.Sprintf("snapshot-%.8s-%.4x", id, sha256.Sum256([]byte(volume)))
}

// since finds the clusters that were written since the parent, and has only these read.
// The session's own tracker runs already: it has all that is written from now on.
func (j *job) since(v *volume, kind string) error {
	var k *kept
	why := ""
	switch {
	case v.device == "":
		why = "nothing uses the disk, and nothing tracks it"
	case !j.Track:
		why = "no tracker was to stay between two snapshots"
	case kind == tracker.Hash:
		why = v.pass.Comparing
	default:
		var err error
		if k, err = j.swap(v.part.store.Index().ID, v); err != nil {
			return err
		}
		why = k.why
	}
	base := v.part.take.Base(v.Name)
	var mark *store.Mark
	if k != nil {
		mark = k.mark
	}
	v.mark = mark
	switch {
	case v.writing.Full():
		v.writing.Found(store.Full, "", mark)
		return nil
	case why == "" && !k.reaches(base.Mark):
		why = "the tracker's marks do not go back to the snapshot before"
	case why == "" && k.unread == nil:
		// One snapshot that reads all knows them again. By marks they would stay unknown, and each rollback would compare all.
		why = "it was not kept which clusters the snapshot before left out, such as by an earlier version"
	}
	if why != "" {
		v.writing.Found(store.Digests, why, mark)
		return nil
	}
	v.writing.Found(store.Marks, "", mark)
	v.byMarks, v.unread = true, k.unread
	return j.copy.Only(v.Path, k.marks)
}

// kept is what a tracker in the kernel has kept.
type kept struct {
	marks  *blockmap.Map
	from   uint64
	mark   *store.Mark   // where it stands from now on; nil: there is none
	unread *blockmap.Map // the clusters that the snapshot before did not read; nil: nothing is known of them
	why    string        // it has no marks
}

// reaches reports whether the marks have all that was written since a point's.
func (k *kept) reaches(m *store.Mark) bool {
	return m != nil && k.mark != nil && k.marks != nil && m.Tracker == k.mark.Tracker && k.from <= m.Generation && m.Generation <= k.mark.Generation
}

// swap takes the marks of the tracker that stays, or begins one.
func (j *job) swap(id string, v *volume) (_ *kept, err error) {
	s, err := changes.Open(j.TrackRoot, j.TrackPins)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	name := trackerName(id, v.Name)
	info, why, err := tracked(s, name, v.device, v.source.Size())
	if err != nil {
		return nil, err
	}
	if why == "" {
		return marks(s, info, v.part.take.Base(v.Name))
	}
	if info != nil {
		if err := s.Stop(name); err != nil {
			return nil, err
		}
	}
	started, err := s.Start(v.device, name, cluster)
	if err != nil {
		// The snapshot itself needs no tracker that stays.
		return &kept{why: err.Error()}, nil
	}
	return &kept{why: why, mark: &store.Mark{Tracker: started.ID, Generation: started.Generation}}, nil
}

// tracked finds the tracker of a volume; why is there if its marks cannot be used.
func tracked(s *changes.Store, name, device string, size int64) (info *changes.Info, why string, err error) {
	all, err := s.List()
	if err != nil {
		return nil, "", err
	}
	for _, i := range all {
		if i.Name == name {
			info = i
		}
	}
	switch {
	case info == nil:
		why = "nothing has tracked the disk since the snapshot before"
	case info.Why != "":
		why = info.Why
	case info.Device != device || info.Size != size || info.Cluster != cluster:
		why = fmt.Sprintf("the tracker %s is of %s", name, info.Device)
	}
	return info, why, nil
}

// marks takes the marks, with those of a snapshot that came to nothing.
func marks(s *changes.Store, info *changes.Info, base *store.Volume) (*kept, error) {
	dir, err := os.MkdirTemp("", "pcopy-")
	if err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "marks")
	again := base != nil && base.Mark != nil && base.Mark.Generation != info.Generation
	h, err := s.Swap(info.Name, file, again)
	if err != nil {
		return &kept{why: err.Error()}, nil // the next one begins with a new tracker
	}
	b, err := changes.ReadBitmap(file)
	if err != nil {
		return nil, err
	}
	k := &kept{marks: b.Map, from: h.From, mark: &store.Mark{Tracker: h.ID, Generation: h.To}}
	if base != nil && base.Mark != nil && base.Mark.Tracker == h.ID {
		k.unread, err = s.Unread(info.Name, base.Mark.Generation)
	}
	return k, err
}

// Forget ends the trackers of a store's volumes.
func Forget(x *store.Index, root, pins string) (err error) {
	s, err := changes.Open(root, pins)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	all, err := s.List()
	if err != nil {
		return err
	}
	names := map[string]bool{}
	for _, l := range x.Layers {
		names[trackerName(x.ID, l.Volume)] = true
	}
	for _, i := range all {
		if names[i.Name] {
			err = errors.Join(err, s.Stop(i.Name))
		}
	}
	return err
}
