// Package pinned keeps the eBPF programs of blockprobe, and their marks, in the
// kernel after the process that started them has ended. The package changes stands on
// it: `pcopy track`.
//
// The maps and links of one collection, and the slots of each tracker, have names in
// a BPF file system (names.go). No process has to live on, and none can die. They
// are gone after a restart of the host, which the boot id in State gives away, and
// after Stop.
//
// Swap can be interrupted at any moment. First the programs are turned to a new slot
// with a name of its own, and the old one stays as it is; it goes when the caller
// calls Done, after the marks and the State are on the disk. A process that finds
// several slots of a tracker reads all of them.
package pinned

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/blockmap"
	"github.com/livefleet/handover/helper/internal/tracker/blockdev"
	"github.com/livefleet/handover/helper/internal/tracker/blockprobe"
)

// layout is the version of the pinned layout: of the maps, and of the programs' use
// of them. It is a part of the names, so that programs of one layout and maps of
// another never meet.
const layout = 2

// Trackers are all that is pinned in one folder: one collection.
//
// Their user holds a lock: two processes must not change the table at the same time.
type Trackers struct {
	dir   string
	coll  *blockprobe.Collection
	slots map[string]map[uint64]*blockprobe.Slot // by id and generation
}

// State is the record of one tracker from one process to the next.
type State struct {
	ID         string    `json:"id"`
	Layout     int       `json:"layout"`
	Boot       string    `json:"boot_id"` // of the host, when tracking began
	Path       string    `json:"path"`
	Cluster    int       `json:"cluster"`
	Disk       uint64    `json:"disk"`
	Start      int64     `json:"start"`
	Sectors    int64     `json:"sectors"`
	Diskseq    string    `json:"diskseq"`
	Began      time.Time `json:"began"`
	Generation uint64    `json:"generation"` // how often the marks were taken
	Taken      time.Time `json:"taken"`      // when they last were

	blockprobe.Memory
}

// Size is the length of the device in bytes.
func (s *State) Size() int64 { return s.Sectors * 512 }

// BootID is the kernel's name for this run of the host.
func BootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("tracker: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}

// Restarted is the error for a tracker that was on this host before its restart.
func Restarted(s *State) error {
	return blockdev.Lost("tracker: %s: the host was restarted since tracking began", s.Path)
}

const bpfMagic = 0xcafe4a11 // BPF_FS_MAGIC, linux/magic.h

// Open opens the collection pinned below dir, a folder of a BPF file system. If there
// is none, the result is an empty collection, with no name yet.
func Open(dir string) (_ *Trackers, err error) {
	k := &Trackers{dir: filepath.Join(dir, "v"+strconv.Itoa(layout)), slots: map[string]map[uint64]*blockprobe.Slot{}}
	var st unix.Statfs_t
	if err := unix.Statfs(filepath.Dir(dir), &st); err != nil || st.Type != bpfMagic {
		return nil, blockdev.Lost("tracker: %s is in no BPF file system", dir)
	}
	if err := os.MkdirAll(k.dir, 0o700); err != nil {
		return nil, fmt.Errorf("tracker: %w", err)
	}
	defer func() {
		if err != nil {
			k.Close()
		}
	}()
	if _, err := os.Stat(k.path("table")); errors.Is(err, fs.ErrNotExist) {
		k.coll, err = blockprobe.NewCollection()
		return k, explain(err)
	}
	return k, explain(k.reopen())
}

func explain(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, unix.EPERM) {
		return errors.New("tracker: the kernel lets only root open pinned programs: run as root")
	}
	return fmt.Errorf("tracker: %w", err)
}

// Close closes the open files here. The pinned collection stays.
func (k *Trackers) Close() error {
	var errs []error
	for _, generations := range k.slots {
		for _, s := range generations {
			errs = append(errs, s.Close())
		}
	}
	if k.coll != nil {
		errs = append(errs, k.coll.Close())
	}
	return errors.Join(errs...)
}

// Start begins to track a device. The id is a new one, of letters and digits.
func (k *Trackers) Start(path string, cluster int, id string) (*State, error) {
	d, err := blockdev.FindTraceable(path, cluster)
	if err != nil {
		return nil, err
	}
	boot, err := BootID()
	if err != nil {
		return nil, err
	}
	t, err := k.coll.Track(d, func(s *blockprobe.Slot) error { return k.name(s, id, 0) })
	if err != nil {
		return nil, errors.Join(err, k.unname(id, 0))
	}
	if err := k.pin(); err != nil {
		return nil, explain(errors.Join(err, k.coll.Untrack(t.Slot()), k.unname(id, 0)))
	}
	k.slots[id] = map[uint64]*blockprobe.Slot{0: t.Slot()}
	return &State{
		ID: id, Layout: layout, Boot: boot, Path: d.Path, Cluster: d.Cluster, Disk: d.DiskKey(),
		Start: d.Start, Sectors: d.Sectors, Diskseq: d.Diskseq, Began: t.Opened(), Taken: t.Opened(), Memory: t.Memory(),
	}, nil
}

// open finds the slots of a tracker, and makes sure that they are unchanged. next is
// the generation that a new slot gets.
func (k *Trackers) open(s *State) (t *blockprobe.Tracker, next uint64, err error) {
	boot, err := BootID()
	if err != nil {
		return nil, 0, err
	}
	if boot != s.Boot {
		return nil, 0, Restarted(s)
	}
	generations := k.slots[s.ID]
	var slots []*blockprobe.Slot
	for _, g := range slices.Sorted(maps.Keys(generations)) {
		if g >= s.Generation {
			slots = append(slots, generations[g])
		}
	}
	if s.Layout != layout || len(slots) == 0 || generations[s.Generation] == nil {
		return nil, 0, blockdev.Lost("tracker: %s: its marks are gone from the kernel (removed by hand, or by another version of pcopy)", s.Path)
	}
	d, err := blockdev.FindTraceable(s.Path, s.Cluster)
	if err != nil {
		return nil, 0, err
	}
	if d.DiskKey() != s.Disk {
		return nil, 0, blockdev.Lost("tracker: %s: this is another disk (%d:%d) than when tracking began (%d:%d)", s.Path, d.DiskMajor, d.DiskMinor, s.Disk>>32, uint32(s.Disk))
	}
	// As it was, so that a change is seen by the same rule as in a session.
	d.Geometry = blockdev.Geometry{Start: s.Start, Sectors: s.Sectors, Diskseq: s.Diskseq}
	if err := d.CheckUnchanged(); err != nil {
		return nil, 0, err
	}
	t, err = k.coll.Resume(d, slots, s.Began, s.Memory)
	return t, s.Generation + uint64(len(slots)), err
}

// Peek returns the marks since they were last taken, and leaves them where they are.
func (k *Trackers) Peek(s *State) (*blockmap.Map, error) {
	t, _, err := k.open(s)
	if err != nil {
		return nil, err
	}
	return t.Peek()
}

// Taken is the result of Trackers.Swap.
type Taken struct {
	Marks *blockmap.Map
	// Doubt is the input of the next Swap, or nil: writes that were under way while
	// the marks were taken, and may complete unseen.
	Doubt *blockmap.Map
	// State has to be written down. It counts from then on, and until then the same
	// marks can be taken again.
	State State
	done  func() error
}

// Done forgets the taken marks. It is called when they and the State are on the disk.
func (t *Taken) Done() error { return t.done() }

// Swap takes the marks: from now on the programs mark in a new slot. doubt is the
// Doubt of the last Swap.
func (k *Trackers) Swap(s *State, doubt *blockmap.Map) (*Taken, error) {
	t, newest, err := k.open(s)
	if err != nil {
		return nil, err
	}
	fresh, err := t.Turn(func(fresh *blockprobe.Slot) error { return k.name(fresh, s.ID, newest) })
	if err != nil {
		var lost *blockdev.LostError
		if errors.As(err, &lost) { // nothing was named
			return nil, err
		}
		if fresh == nil {
			err = errors.Join(err, k.unname(s.ID, newest))
		}
		return nil, explain(err)
	}
	k.slots[s.ID][newest] = fresh

	taken := &Taken{State: *s}
	if taken.Marks, taken.Doubt, err = t.ReadOlder(doubt, s.Taken); err != nil {
		return nil, err
	}
	taken.State.Memory = t.Memory()
	taken.State.Generation, taken.State.Taken = newest, time.Now()
	taken.done = func() error {
		for g, at := range k.slots[s.ID] {
			if g < newest {
				delete(k.slots[s.ID], g)
				if err := errors.Join(k.unname(s.ID, g), at.Close()); err != nil {
					return explain(err)
				}
			}
		}
		return nil
	}
	return taken, nil
}

// Stop ends the tracking of a device, and takes everything out of the kernel with the
// last. It needs no more than the id, and no device, which may be gone.
func (k *Trackers) Stop(id string) (err error) {
	for g, s := range k.slots[id] {
		// Out of the table first: every slot in it has a name.
		if k.coll.Live(s) {
			err = errors.Join(err, k.coll.Untrack(s))
		} else {
			err = errors.Join(err, s.Close())
		}
		err = errors.Join(err, k.unname(id, g))
	}
	delete(k.slots, id)
	if k.coll.Empty() {
		err = errors.Join(err, k.unpinAll())
	}
	return explain(err)
}

// IDs are the trackers that there are slots of.
func (k *Trackers) IDs() []string { return slices.Sorted(maps.Keys(k.slots)) }
