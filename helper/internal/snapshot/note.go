package snapshot

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/blockmap"
	"github.com/livefleet/handover/helper/internal/changes"
	"github.com/livefleet/handover/helper/internal/loop"
	"github.com/livefleet/handover/helper/internal/store"
	"github.com/livefleet/handover/helper/internal/tracker/blockdev"
	"github.com/livefleet/handover/helper/internal/tracker/pinned"
)

// A rollback writes image files that nothing uses, and a tracker's marks go with the loop
// device. So they are taken in between: when the file system is unmounted, and
// the device still there. They are kept beside the tracker together with the stamp of the
// file (rest.go). The rollback uses them if the file has the same stamp: nothing has
// written it since.
//
// No write is missed in between:
//
//   - the device is held such that no file system is on it, in no namespace;
//   - the stamp is taken, and then no write is under way. A write before that was given to
//     the file and completed, and is marked. One after it gives the file another stamp;
//   - the marks are taken last, and the file has to have the stamp still.

const (
	letGo      = time.Second
	letGoEvery = 5 * time.Millisecond
)

// whileNoted is called when the marks are taken; a test writes there.
var whileNoted = func() {}

// Noting is a request to note the clusters written to volumes since the current snapshot.
type Noting struct {
	Store     string
	Volumes   []Place
	TrackRoot string
	TrackPins string
}

// Noted is the answer about one volume.
type Noted struct {
	Volume string `json:"volume"`
	Path   string `json:"path"`
	Bytes  int64  `json:"bytes"`         // of the disk, that a rollback will compare
	Why    string `json:"why,omitempty"` // it will compare all
}

// note stands beside a tracker.
type note struct {
	Boot   string     `json:"boot_id"`
	Mark   store.Mark `json:"mark"`   // of the snapshot since which everything is known
	File   stamp      `json:"file"`   // as it was when its last write was known
	Bitmap []byte     `json:"bitmap"` // the clusters that may not be as in that snapshot
	Why    string     `json:"why"`    // there is none
}

// Note notes the clusters that a rollback has to compare, of volumes that are unmounted and
// still attached.
func Note(n Noting) (all []*Noted, err error) {
	if len(n.Volumes) == 0 {
		return nil, errors.New("snapshot: there is no volume to note: name each with --volume NAME=PATH")
	}
	x, err := store.Peek(n.Store)
	if err != nil {
		return nil, err
	}
	for _, p := range n.Volumes {
		if p.Path, err = filepath.Abs(p.Path); err != nil {
			return nil, fmt.Errorf("snapshot: %w", err)
		}
		done, err := n.one(x, p)
		if err != nil {
			return nil, err
		}
		all = append(all, done)
	}
	return all, nil
}

// one notes a volume. The reason why nothing can be known is noted, too.
func (n Noting) one(x *store.Index, p Place) (done *Noted, err error) {
	done = &Noted{Volume: p.Name, Path: p.Path}
	base, why := baseOf(x, p.Name)
	if why != "" {
		done.Why = why
		return done, nil
	}
	s, err := changes.Open(n.TrackRoot, n.TrackPins)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	written := note{Mark: *base.Mark}
	if written.Boot, err = pinned.BootID(); err != nil {
		return nil, err
	}
	m, why, err := written.take(s, trackerName(x.ID, p.Name), p.Path, base)
	switch {
	case err != nil:
		return nil, err
	case why != "":
		done.Why, written.Why = why, why
	default:
		b := &changes.Bitmap{Header: changes.Header{ID: base.Mark.Tracker, Boot: written.Boot, From: base.Mark.Generation, To: base.Mark.Generation, Open: true}, Map: m}
		if written.Bitmap, err = b.Bytes(); err != nil {
			return nil, err
		}
		done.Bytes = m.Bytes()
	}
	if err := s.SetNote(trackerName(x.ID, p.Name), written); err != nil && why == "" {
		return nil, err // without a tracker there is no place for the reason, nor a need
	}
	return done, nil
}

// baseOf is a volume of the current snapshot, if a tracker was begun with it.
func baseOf(x *store.Index, name string) (_ *store.Volume, why string) {
	now := x.Now()
	if x.Restoring != "" {
		return nil, "a rollback was begun before, and has not ended"
	}
	if now == nil {
		return nil, "the store has no current snapshot"
	}
	v, err := now.Volume(name)
	if err != nil {
		return nil, "the volume is not in the current snapshot " + now.ID
	}
	if v.Mark == nil {
		return nil, "no tracker was left in the kernel by the current snapshot " + now.ID
	}
	return v, ""
}

// take takes the stamp and the clusters that may not be as in the snapshot, in an order
// in which nothing is missed.
func (w *note) take(s *changes.Store, name, path string, base *store.Volume) (_ *blockmap.Map, why string, err error) {
	devices, err := loop.DevicesOf(path)
	if err != nil {
		return nil, "", err
	}
	if len(devices) != 1 {
		return nil, fmt.Sprintf("%s is attached to %d loop devices, and one is needed when it is noted", path, len(devices)), nil
	}
	held, err := alone(devices[0])
	if errors.Is(err, unix.EBUSY) {
		return nil, fmt.Sprintf("%s is still mounted, be it in another namespace", devices[0]), nil
	} else if err != nil {
		return nil, "", fmt.Errorf("snapshot: %w", err)
	}
	defer held.Close()
	if err := held.Sync(); err != nil { // writes that a program left in the device's own cache
		return nil, "", fmt.Errorf("snapshot: %w", err)
	}
	if w.File, why, err = stampOf(path); err != nil || why != "" {
		return nil, why, err
	}
	if w.File.Size != base.Size {
		return nil, fmt.Sprintf("%s has %d bytes, and had %d in the current snapshot", path, w.File.Size, base.Size), nil
	}
	info, why, err := tracked(s, name, devices[0], base.Size)
	if err != nil || why != "" {
		return nil, why, err
	}
	if why, err := still(devices[0]); err != nil || why != "" {
		return nil, why, err
	}
	k, err := marks(s, info, base)
	switch {
	case err != nil:
		return nil, "", err
	case k.why != "":
		return nil, k.why, nil
	case !k.reaches(base.Mark):
		return nil, "the tracker's marks do not go back to the current snapshot", nil
	case k.unread == nil:
		return nil, "it was not kept which clusters the current snapshot left out, such as by an earlier version", nil
	}
	whileNoted()
	after, err := stampNow(path)
	if err == nil && after != w.File {
		why = path + " was written while it was noted"
	}
	return k.marks, why, errors.Join(err, k.marks.Merge(k.unread))
}

// alone opens a device such that no file system is on it. One that was unmounted may still
// be there for a moment: a task that ends has it in its namespace until then.
func alone(device string) (held *os.File, err error) {
	for end := time.Now().Add(letGo); ; time.Sleep(letGoEvery) {
		held, err = os.OpenFile(device, os.O_RDONLY|unix.O_EXCL|unix.O_CLOEXEC, 0)
		if !errors.Is(err, unix.EBUSY) || time.Now().After(end) {
			return held, err
		}
	}
}

// still demands that no write to a device is under way.
func still(device string) (why string, err error) {
	d, err := blockdev.Find(device, cluster)
	if err != nil {
		return "", err
	}
	if accounted, err := d.Accounted(); err != nil {
		return "", err
	} else if !accounted {
		return d.NotAccounted().Error(), nil
	}
	under, err := d.DiskInFlight()
	if err == nil && under > 0 {
		why = fmt.Sprintf("%d writes to %s are under way although it is unmounted", under, device)
	}
	return why, err
}

// written are the clusters of a file that may not be as in the current snapshot, if it
// is sure that these are all. why is there if it is not.
func (r Return) written(x *store.Index, p Place) (_ *blockmap.Map, why string) {
	base, why := baseOf(x, p.Name)
	if why != "" {
		return nil, why
	}
	var w note
	there, err := changes.Note(r.TrackRoot, trackerName(x.ID, p.Name), &w)
	if err != nil {
		return nil, err.Error()
	}
	if !there {
		return nil, "the marks were not noted before the disk was detached (pcopy snapshot note), or went with the tracker"
	}
	boot, err := pinned.BootID()
	if err != nil {
		return nil, err.Error()
	}
	file, err := stampNow(p.Path)
	if err != nil {
		return nil, err.Error()
	}
	switch {
	case w.Boot != boot:
		return nil, "the host was restarted since the marks were noted"
	case w.Mark != *base.Mark:
		return nil, "the marks were noted for another snapshot than the current one"
	case w.Why != "":
		return nil, w.Why
	case w.File.Dev != file.Dev || w.File.Ino != file.Ino:
		return nil, p.Path + " is another file than when the marks were noted"
	case w.File != file:
		return nil, p.Path + " was changed since the marks were noted"
	}
	b, err := changes.ParseBitmap(w.Bitmap)
	if err != nil {
		return nil, "the note of the marks is damaged: " + err.Error()
	}
	if b.ID != base.Mark.Tracker || b.Size != base.Size || b.Cluster != cluster {
		return nil, "the note of the marks is of another disk"
	}
	return b.Map, ""
}
