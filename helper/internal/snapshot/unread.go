package snapshot

import (
	"errors"

	"github.com/livefleet/handover/helper/internal/blockmap"
	"github.com/livefleet/handover/helper/internal/changes"
	"github.com/livefleet/handover/helper/internal/wire"
)

// A snapshot does not read clusters that the file system does not use: they are zeroes in
// the store, and rubbish on the disk. The next snapshot does not care, as a
// cluster that is used again has been written, and is marked. A rollback does (note.go): of
// these clusters neither the marks nor the store tell the content. Therefore they
// are kept beside the tracker:
//
//   - a snapshot that reads all has those that the passes left out;
//   - one by marks has those of the snapshot before, without the ones that it reads.
//
// More clusters may be among them than hold rubbish, never fewer.

// saw takes clusters off that a snapshot by marks has read.
func (v *volume) saw(f *wire.Frame) {
	if v.unread == nil {
		return
	}
	end := f.Pos + f.Length
	for at := (f.Pos + cluster - 1) / cluster * cluster; at+cluster <= end || at < end && end == v.unread.Size(); at += cluster {
		v.unread.Clear(at)
	}
}

// left are the clusters that are unread in the end; nil: it is not known.
func (v *volume) left() *blockmap.Map {
	if v.byMarks {
		return v.unread
	}
	if left := v.pass.LeftOut(); left != nil {
		return left
	}
	return blockmap.New(v.source.Size(), cluster)
}

// keepUnread keeps those of a part. They are no part of the snapshot: without them a
// rollback reads all, and says so.
func (j *job) keepUnread(p *part) {
	for _, v := range p.volumes {
		if left := v.left(); v.mark != nil && left != nil {
			_ = j.keepUnreadOf(v, trackerName(p.store.Index().ID, v.Name), left)
		}
	}
}

func (j *job) keepUnreadOf(v *volume, name string, left *blockmap.Map) (err error) {
	s, err := changes.Open(j.TrackRoot, j.TrackPins)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	// This snapshot may still come to nothing: those of the one before are good until then.
	before := v.mark.Generation
	if base := v.part.take.Base(v.Name); base != nil && base.Mark != nil {
		before = base.Mark.Generation
	}
	return s.KeepUnread(name, v.mark.Generation, before, left)
}
