// Package changes knows the writes to block devices since a backup: any block device
// on a stock kernel, and no process runs in between.
//
// Start begins to track a device. Swap takes the marks since Start or since the last
// Swap, as a bitmap file (bitmap.go has the format), and then starts over. Export
// copies the marks and leaves them. Stop ends it. A backup is Start, then a whole
// copy; an increment is Swap, then a copy of the clusters that are marked, in this
// order. Writes during that copy are marked for the next increment.
//
// The programs and the marks are pinned in the kernel (package tracker/pinned), and the
// other records are in a folder for each tracker:
//
//	state.json        the tracker, and its position: generation N
//	last-N.bitmap     the result of the last Swap, for --again
//	doubt-N.bitmap    the part of it that the next Swap may have to return once more
//
// A crash in the middle of a Swap loses nothing. First the programs are turned to
// a new array of marks, and the old one stays in the kernel as it is; then the
// bitmap is written and synced, then the state; only then the old array goes. A
// Swap that finds more than one array gives all of them.
//
// Marks that are lost are never passed over: a restart of the host, another medium in
// the device, a device that was resized, an array that was removed, a write that
// could not be tracked. The first call that notices it writes it down, and from then
// on Swap and Export say so and do nothing else.
package changes

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/blockmap"
	"github.com/livefleet/handover/helper/internal/tracker/blockdev"
	"github.com/livefleet/handover/helper/internal/tracker/pinned"
)

// Where things are.
const (
	Root = "/var/lib/handover/track"

	stateFile = "state.json"
	lastFile  = "last-%d.bitmap"
	doubtFile = "doubt-%d.bitmap"
	lockFile  = ".lock"
)

// DefaultCluster is the size of a cluster where none is named.
const DefaultCluster = 64 << 10

// state is the record on the disk.
type state struct {
	Version int          `json:"version"`
	Pins    string       `json:"pins"`
	Kept    pinned.State `json:"kept"`
	Lost    string       `json:"lost,omitempty"` // why nothing is known any more
}

const stateVersion = 1

// Info is how a tracker stands.
type Info struct {
	Name       string    `json:"name"`
	Device     string    `json:"device"`
	ID         string    `json:"id"`
	Size       int64     `json:"size"`
	Cluster    int       `json:"cluster"`
	Generation uint64    `json:"generation"`
	Began      time.Time `json:"began"`
	Taken      time.Time `json:"taken"` // when the marks were last taken
	Marked     int64     `json:"marked_bytes"`
	Lost       bool      `json:"lost"`
	Why        string    `json:"why,omitempty"` // the written clusters are not known
}

// Store is the trackers of this host.
type Store struct {
	root string
	pins string // where new ones are pinned
	lock *os.File
	keep *pinned.Trackers
}

var namePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]*$`)

func isName(s string) bool { return len(s) <= 64 && namePattern.MatchString(s) }

// Open takes hold of the trackers whose folders are below root, until Close. pins
// is where new ones are pinned, in a BPF file system; if it is empty, the host's
// own is taken, or one is mounted.
func Open(root, pins string) (_ *Store, err error) {
	if err := os.MkdirAll(root, 0o700); err != nil {
		return nil, fmt.Errorf("changes: %w", err)
	}
	s := &Store{root: root, pins: pins}
	if s.lock, err = os.OpenFile(filepath.Join(root, lockFile), os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC, 0o600); err != nil {
		return nil, fmt.Errorf("changes: %w", err)
	}
	for { // each holds it for moments
		if err = unix.Flock(int(s.lock.Fd()), unix.LOCK_EX); err != unix.EINTR {
			break
		}
	}
	if err != nil {
		s.lock.Close()
		return nil, fmt.Errorf("changes: locking %s: %w", s.lock.Name(), err)
	}
	return s, nil
}

// Close lets go.
func (s *Store) Close() (err error) {
	if s.keep != nil {
		err = s.keep.Close()
	}
	return errors.Join(err, s.lock.Close())
}

// kept opens the pinned trackers. All trackers of a host are pinned in one place.
func (s *Store) kept(pins string) (*pinned.Trackers, error) {
	var err error
	if s.keep == nil {
		s.keep, err = pinned.Open(pins)
	}
	return s.keep, err
}

func (s *Store) file(name, file string) string { return filepath.Join(s.root, name, file) }

func (s *Store) load(name string) (*state, error) {
	if !isName(name) {
		return nil, fmt.Errorf("changes: %q is no name of a tracker", name)
	}
	data, err := os.ReadFile(s.file(name, stateFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("changes: nothing is tracked under the name %s: `pcopy track list` shows what is", name)
	}
	var st state
	if err == nil {
		err = json.Unmarshal(data, &st)
	}
	if err == nil && st.Version != stateVersion {
		err = fmt.Errorf("version %d, and this pcopy understands %d", st.Version, stateVersion)
	}
	if err != nil {
		return nil, fmt.Errorf("changes: %s: %w", s.file(name, stateFile), err)
	}
	return &st, nil
}

func (s *Store) save(name string, st *state) error {
	return replaceJSON(s.file(name, stateFile), st)
}

// names are the trackers, by name.
func (s *Store) names() ([]string, error) {
	entries, err := os.ReadDir(s.root)
	if err != nil {
		return nil, fmt.Errorf("changes: %w", err)
	}
	var names []string
	for _, e := range entries {
		if _, err := os.Stat(s.file(e.Name(), stateFile)); err == nil {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// Start begins to track a device under a name.
func (s *Store) Start(device, name string, cluster int) (*Info, error) {
	device, err := filepath.Abs(device)
	if err != nil {
		return nil, fmt.Errorf("changes: %w", err)
	}
	if name == "" {
		name = filepath.Base(device)
	}
	if !isName(name) {
		return nil, fmt.Errorf("changes: %q cannot be a name: letters, digits, dots, dashes and underscores, at most 64: pass --name", name)
	}
	if _, err := os.Stat(s.file(name, stateFile)); err == nil {
		return nil, fmt.Errorf("changes: %s is tracked already: `pcopy track stop %s` ends it, or choose another name", name, name)
	}
	pins, err := s.place()
	if err != nil {
		return nil, err
	}
	keep, err := s.sweep(pins)
	if err != nil {
		return nil, err
	}
	id := make([]byte, 16)
	if _, err := rand.Read(id); err != nil {
		return nil, fmt.Errorf("changes: %w", err)
	}
	kept, err := keep.Start(device, cluster, hex.EncodeToString(id))
	if err != nil {
		return nil, err
	}
	st := &state{Version: stateVersion, Pins: pins, Kept: *kept}
	err = os.MkdirAll(filepath.Join(s.root, name), 0o700)
	if err == nil {
		err = s.save(name, st)
	}
	if err == nil {
		err = syncDir(s.root)
	}
	if err != nil {
		return nil, errors.Join(err, keep.Stop(kept.ID), os.RemoveAll(filepath.Join(s.root, name)))
	}
	return s.info(name, st), nil
}

// sweep opens the pinned trackers, and takes those without a record out of the
// kernel: a killed Start left them, or their folder was removed by hand.
func (s *Store) sweep(pins string) (*pinned.Trackers, error) {
	names, err := s.names()
	if err != nil {
		return nil, err
	}
	var known []string
	for _, name := range names {
		st, err := s.load(name)
		if err != nil {
			return nil, err
		}
		known = append(known, st.Kept.ID)
	}
	keep, err := s.kept(pins)
	if err != nil {
		return nil, err
	}
	unknown := slices.DeleteFunc(keep.IDs(), func(id string) bool { return slices.Contains(known, id) })
	if len(unknown) == 0 {
		return keep, nil
	}
	for _, id := range unknown {
		if err := keep.Stop(id); err != nil {
			return nil, err
		}
	}
	s.keep = nil // with the last tracker everything in it goes
	if err := keep.Close(); err != nil {
		return nil, err
	}
	return s.kept(pins)
}

// whole opens a tracker of which everything is known.
func (s *Store) whole(name string) (*state, *pinned.Trackers, error) {
	st, err := s.load(name)
	if err != nil {
		return nil, nil, err
	}
	if st.Lost != "" {
		return nil, nil, errors.New(st.Lost)
	}
	// After a restart there is nothing that could be opened.
	if boot, err := pinned.BootID(); err != nil {
		return nil, nil, err
	} else if boot != st.Kept.Boot {
		return nil, nil, s.lose(name, st, pinned.Restarted(&st.Kept))
	}
	keep, err := s.kept(st.Pins)
	if err != nil {
		return nil, nil, s.lose(name, st, err)
	}
	return st, keep, nil
}

// lose writes down that marks are lost, if the error says so.
func (s *Store) lose(name string, st *state, err error) error {
	var lost *blockdev.LostError
	if !errors.As(err, &lost) {
		return err
	}
	st.Lost = fmt.Sprintf("%v: what was written to it is not known any more: `pcopy track stop %s`, start again, and make a whole copy", err, name)
	return errors.Join(errors.New(st.Lost), s.save(name, st))
}

// Swap takes the marks since the last time into a new file. With again the file holds
// the marks of the last Swap, too: the increment from them failed.
func (s *Store) Swap(name, file string, again bool) (*Header, error) {
	if _, err := os.Lstat(file); err == nil {
		return nil, fmt.Errorf("changes: %s: exists already, and a bitmap never replaces a file: choose another name", file)
	}
	st, keep, err := s.whole(name)
	if err != nil {
		return nil, err
	}
	doubt, _, err := s.bitmap(name, doubtFile, st)
	if err != nil {
		return nil, err
	}
	last, lastFrom, err := s.bitmap(name, lastFile, st)
	if err != nil {
		return nil, err
	}
	taken, err := keep.Swap(&st.Kept, doubt)
	if err != nil {
		return nil, s.lose(name, st, err)
	}
	b := &Bitmap{Header: Header{ID: st.Kept.ID, Boot: st.Kept.Boot, From: st.Kept.Generation, To: taken.State.Generation, Taken: taken.State.Taken}, Map: taken.Marks}
	if again && last != nil {
		b.From = lastFrom
		if err := b.Map.Merge(last); err != nil {
			return nil, err
		}
	}
	if err := WriteBitmap(file, b); err != nil {
		return nil, err
	}
	// The two of ours before the state, which says whether they count.
	if err := s.keepBitmap(name, lastFile, b, b.Map); err != nil {
		return nil, err
	}
	if err := s.keepBitmap(name, doubtFile, b, taken.Doubt); err != nil {
		return nil, err
	}
	before := st.Kept.Generation
	st.Kept = taken.State
	if err := s.save(name, st); err != nil {
		return nil, err
	}
	for _, pattern := range []string{lastFile, doubtFile} {
		if err := os.Remove(s.file(name, fmt.Sprintf(pattern, before))); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("changes: %w", err)
		}
	}
	return b.header(), taken.Done()
}

func (b *Bitmap) header() *Header {
	h := b.Header
	h.Size, h.Cluster, h.Marked = b.Map.Size(), b.Map.Cluster(), b.Map.Bytes()
	return &h
}

// bitmap reads one of a tracker's own bitmaps, if there is one.
func (s *Store) bitmap(name, pattern string, st *state) (*blockmap.Map, uint64, error) {
	path := s.file(name, fmt.Sprintf(pattern, st.Kept.Generation))
	b, err := ReadBitmap(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, nil
	}
	if err == nil && (b.ID != st.Kept.ID || b.Size != st.Kept.Size() || b.Cluster != st.Kept.Cluster) {
		err = fmt.Errorf("changes: %s is of another tracker", path)
	}
	if err != nil {
		return nil, 0, err
	}
	return b.Map, b.From, nil
}

// keepBitmap keeps marks as one of a tracker's own bitmaps, if there are any.
func (s *Store) keepBitmap(name, pattern string, b *Bitmap, marks *blockmap.Map) error {
	if marks == nil {
		return nil
	}
	own := *b
	own.Map = marks
	data, err := own.Bytes()
	if err != nil {
		return err
	}
	path := s.file(name, fmt.Sprintf(pattern, b.To))
	return newFile(path, data, func(tmp string) error { return os.Rename(tmp, path) })
}

// Export copies the marks since the last Swap into a new file, and leaves them where
// they are.
func (s *Store) Export(name, file string) (*Header, error) {
	st, keep, err := s.whole(name)
	if err != nil {
		return nil, err
	}
	m, err := keep.Peek(&st.Kept)
	if err != nil {
		return nil, s.lose(name, st, err)
	}
	b := &Bitmap{Header: Header{ID: st.Kept.ID, Boot: st.Kept.Boot, From: st.Kept.Generation, To: st.Kept.Generation + 1, Open: true, Taken: time.Now()}, Map: m}
	return b.header(), WriteBitmap(file, b)
}

// List says how all trackers stand.
func (s *Store) List() ([]*Info, error) {
	names, err := s.names()
	if err != nil {
		return nil, err
	}
	all := []*Info{}
	for _, name := range names {
		st, err := s.load(name)
		if err != nil {
			return nil, err
		}
		all = append(all, s.info(name, st))
	}
	return all, nil
}

func (s *Store) info(name string, st *state) *Info {
	i := &Info{
		Name: name, Device: st.Kept.Path, ID: st.Kept.ID, Size: st.Kept.Size(), Cluster: st.Kept.Cluster,
		Generation: st.Kept.Generation, Began: st.Kept.Began.UTC(), Taken: st.Kept.Taken.UTC(),
	}
	st, keep, err := s.whole(name)
	if err == nil {
		var m *blockmap.Map
		if m, err = keep.Peek(&st.Kept); err == nil {
			i.Marked = m.Bytes()
			return i
		}
		err = s.lose(name, st, err)
	}
	i.Why = err.Error()
	if st, err = s.load(name); err == nil {
		i.Lost = st.Lost != ""
	}
	return i
}

// Stop ends the tracking under a name and forgets it.
func (s *Store) Stop(name string) error {
	st, err := s.load(name)
	if err != nil {
		return err
	}
	// After a restart nothing of it is in the kernel; the place may not even be there.
	if boot, err := pinned.BootID(); err != nil {
		return err
	} else if boot == st.Kept.Boot {
		keep, err := s.kept(st.Pins)
		var lost *blockdev.LostError
		switch {
		case errors.As(err, &lost): // nor here
		case err != nil:
			return err
		default:
			s.keep = nil // with the last tracker everything in it goes
			if err := errors.Join(keep.Stop(st.Kept.ID), keep.Close(), leave(st.Pins)); err != nil {
				return err
			}
		}
	}
	// The state first: a folder without one is none.
	err = errors.Join(os.Remove(s.file(name, stateFile)), os.RemoveAll(filepath.Join(s.root, name)))
	if err != nil {
		return fmt.Errorf("changes: %w", err)
	}
	return syncDir(s.root)
}
