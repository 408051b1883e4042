package tracker

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
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/blockmap"
)

// keepLayout is the layout of what is pinned: of the maps, and of what the
// programs do with them. It is a part of the names, so that programs of one
// layout and maps of another never meet.
const keepLayout = 2

// Keep is trackers that outlive the process that started them: one load of the
// programs whose maps and links are pinned in a BPF file system. No process has
// to live on, and none can die. They are gone after a restart of the host, which
// the boot id in Kept gives away, and after Stop.
//
// Whoever uses a Keep holds a lock meanwhile: two processes must not change the
// table at the same time.
type Keep struct {
	dir   string
	load  *load
	slots map[string]map[uint64]*slot // by id and generation
}

// Kept is what has to be remembered of one tracker from one process to the next.
type Kept struct {
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

	// What an ebpfTracker has in memory.
	Settled           bool       `json:"settled"`
	Untold            bool       `json:"untold"`
	Skipped           [][]uint64 `json:"skipped,omitempty"`
	Bios              uint64     `json:"bios"`
	Known             bool       `json:"known"`
	Distance          int64      `json:"distance"`
	Seen              int64      `json:"seen"` // of the slots that are gone
	SubmissionSkipped uint64     `json:"submission_skipped"`
	SubmissionSince   time.Time  `json:"submission_since"`
}

// Size is the length of the device in bytes.
func (s *Kept) Size() int64 { return s.Sectors * 512 }

// BootID is the kernel's name for this run of the host.
func BootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("tracker: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}

// Restarted is the error for a tracker that was on this host before its restart.
func Restarted(s *Kept) error {
	return lost("tracker: %s: the host was started anew since tracking began", s.Path)
}

const bpfMagic = 0xcafe4a11 // BPF_FS_MAGIC, linux/magic.h

// OpenKeep opens what is pinned below dir, a folder of a BPF file system. If
// nothing is, it is an empty one.
func OpenKeep(dir string) (_ *Keep, err error) {
	k := &Keep{dir: filepath.Join(dir, "v"+strconv.Itoa(keepLayout)), slots: map[string]map[uint64]*slot{}}
	var st unix.Statfs_t
	if err := unix.Statfs(filepath.Dir(dir), &st); err != nil || st.Type != bpfMagic {
		return nil, lost("tracker: %s is in no BPF file system", dir)
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
		k.load, err = newLoad(nil)
		return k, explainKeep(err)
	}
	return k, explainKeep(k.reopen())
}

func explainKeep(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, unix.EPERM) {
		return errors.New("tracker: the kernel lets nobody but root open pinned programs: run as root")
	}
	return fmt.Errorf("tracker: %w", err)
}

func (k *Keep) path(name string) string { return filepath.Join(k.dir, name) }

// Close lets go of what is open here. What is pinned stays.
func (k *Keep) Close() error {
	var errs []error
	for _, generations := range k.slots {
		for _, s := range generations {
			errs = append(errs, s.close())
		}
	}
	if k.load != nil {
		errs = append(errs, k.load.destroy())
	}
	return errors.Join(errs...)
}

// linksOfKind is how many programs each kind of device needs: the copies, and one.
const linksOfKind = copies + 1

// Start begins to track a device. The id is a new one, of letters and digits.
func (k *Keep) Start(dev Device, id string) (_ *Kept, err error) {
	d, err := lookDevice(dev)
	if err != nil {
		return nil, err
	}
	if k.load.k, err = lookKernel(); err != nil {
		return nil, fmt.Errorf("tracker: %s: %w", d.path, err)
	}
	if k.load.k.rwPage && d.takesPages() {
		return nil, fmt.Errorf("tracker: %s: on this kernel pages can be written to %s without a trace (kernels before 6.3): use a newer kernel", d.path, d.name)
	}
	boot, err := BootID()
	if err != nil {
		return nil, err
	}
	t, err := k.load.track(d, func(s *slot) error { return k.name(s, id, 0) })
	if err != nil {
		return nil, errors.Join(explain([]*device{d}, err), k.unname(id, 0))
	}
	s := &Kept{
		ID: id, Layout: keepLayout, Boot: boot, Path: d.path, Cluster: d.cluster, Disk: d.key(),
		Start: d.start, Sectors: d.sectors, Diskseq: d.diskseq, Began: t.opened, Taken: t.opened,
	}
	if err = settle([]Tracker{t}); err == nil {
		err = k.pin()
	}
	if err != nil {
		return nil, explainKeep(errors.Join(err, k.load.take(t.slot), k.unname(id, 0)))
	}
	k.slots[id] = map[uint64]*slot{0: t.slot}
	s.remember(t)
	return s, nil
}

// remember notes what a tracker has in memory.
func (s *Kept) remember(t *ebpfTracker) {
	s.Settled, s.Untold, s.Skipped, s.Bios, s.Seen = t.settled, t.untold, t.skipped, t.all, t.before
	s.Known, s.Distance, s.SubmissionSkipped, s.SubmissionSince = t.unseen.known, t.unseen.distance, t.unseen.skipped, t.unseen.since
}

// open finds the slots of a tracker, oldest first, and makes sure that they are
// what they were. There are several if somebody was killed while he took marks.
func (k *Keep) open(s *Kept) (*ebpfTracker, []*slot, error) {
	boot, err := BootID()
	if err != nil {
		return nil, nil, err
	}
	if boot != s.Boot {
		return nil, nil, Restarted(s)
	}
	generations := k.slots[s.ID]
	var slots []*slot
	for _, g := range slices.Sorted(maps.Keys(generations)) {
		if g >= s.Generation {
			slots = append(slots, generations[g])
		}
	}
	if s.Layout != keepLayout || len(slots) == 0 || generations[s.Generation] == nil {
		return nil, nil, lost("tracker: %s: its marks are gone from the kernel (removed by somebody, or by another version of pcopy)", s.Path)
	}
	d, err := lookDevice(Device{Path: s.Path, Cluster: s.Cluster})
	if err != nil {
		return nil, nil, err
	}
	if d.key() != s.Disk {
		return nil, nil, lost("tracker: %s: this is another disk (%d:%d) than when tracking began (%d:%d)", s.Path, d.diskMajor, d.diskMinor, s.Disk>>32, uint32(s.Disk))
	}
	// As it was, so that a change is seen by the same rule as in a session.
	d.start, d.sectors, d.diskseq = s.Start, s.Sectors, s.Diskseq
	if err := d.unchanged(); err != nil {
		return nil, nil, err
	}
	t := &ebpfTracker{dev: d, load: k.load, opened: s.Began, settled: s.Settled, untold: s.Untold, skipped: s.Skipped, all: s.Bios, before: s.Seen}
	t.unseen = unseen{known: s.Known, distance: s.Distance, skipped: s.SubmissionSkipped, since: s.SubmissionSince}
	for i, at := range slots {
		if i < len(slots)-1 {
			t.before += at.seen()
		}
		if err := t.reason(atomic.LoadUint64(&at.shared.words[slotStatus]) | atomic.LoadUint64(&k.load.lost.words[lostStatus])); err != nil {
			return nil, nil, err
		}
	}
	t.slot = slots[len(slots)-1]
	return t, slots, nil
}

// live reports whether the programs mark in a slot.
func (l *load) live(s *slot) bool { return slices.Contains(l.disks[s.disk], s) }

// Look returns what was written since the marks were last taken, and leaves the
// marks where they are.
func (k *Keep) Look(s *Kept) (*blockmap.Map, error) {
	t, slots, err := k.open(s)
	if err != nil {
		return nil, err
	}
	m := blockmap.New(s.Size(), s.Cluster)
	for _, at := range slots {
		at.look(m)
		if atomic.LoadUint64(&at.shared.words[slotStatus])&statusAll != 0 {
			m.MarkAll()
		}
	}
	if skipped, err := t.allSkipped(); err != nil {
		return nil, err
	} else if skipped || t.untold && !t.settled {
		m.MarkAll()
	}
	return m, nil
}

// Taken is what Keep.Swap took.
type Taken struct {
	Marks *blockmap.Map
	// Doubt is what the next Swap has to be given, or nil: writes that were under
	// way while the marks were taken, and may complete unseen; see unseen.go.
	Doubt *blockmap.Map
	// Kept is what has to be remembered from now on. It counts when it is written
	// down, and until then what was taken can be taken again.
	Kept Kept
	done func() error
}

// Done forgets what was taken. It is called when the marks and Kept are on the
// disk.
func (t *Taken) Done() error { return t.done() }

// Swap takes the marks: from now on the programs mark in a new slot. doubt is
// what the last Swap returned as such.
func (k *Keep) Swap(s *Kept, doubt *blockmap.Map) (*Taken, error) {
	t, slots, err := k.open(s)
	if err != nil {
		return nil, err
	}
	last := slots[len(slots)-1]
	if !k.load.live(last) && len(slots) > 1 {
		// Somebody was killed before the programs were turned to it.
		last = slots[len(slots)-2]
		t.before -= last.seen()
	}
	if !k.load.live(last) {
		return nil, lost("tracker: %s: the programs do not mark for it any more", s.Path)
	}
	newest := s.Generation + uint64(len(slots))
	fresh, err := k.turn(t.dev, last, s.ID, newest)
	if err != nil {
		return nil, explainKeep(err)
	}
	k.slots[s.ID][newest] = fresh

	// A moment in which nothing is under way spares the doubt.
	for end := time.Now().Add(settleWait); !t.dev.bio && !t.idle() && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	taken := &Taken{Marks: blockmap.New(s.Size(), s.Cluster), Kept: *s}
	all := false
	for _, at := range slots {
		at.look(taken.Marks)
		all = all || atomic.LoadUint64(&at.shared.words[slotStatus])&statusAll != 0
	}
	if all {
		taken.Marks.MarkAll()
	}
	if doubt != nil {
		t.unseen.recent = []generation{{s.Taken, s.Taken, doubt}}
	}
	t.before += last.seen()
	t.slot = fresh
	if err := t.complete(taken.Marks); err != nil {
		return nil, err
	}
	for _, g := range t.unseen.recent {
		if taken.Doubt == nil {
			taken.Doubt = blockmap.New(s.Size(), s.Cluster)
		}
		if err := taken.Doubt.Merge(g.marks); err != nil {
			return nil, err
		}
	}
	taken.Kept.remember(t)
	taken.Kept.Generation, taken.Kept.Taken = newest, time.Now()
	taken.done = func() error {
		for g, at := range k.slots[s.ID] {
			if g < newest {
				delete(k.slots[s.ID], g)
				if err := errors.Join(k.unname(s.ID, g), at.close()); err != nil {
					return explainKeep(err)
				}
			}
		}
		return nil
	}
	return taken, nil
}

// turn has the programs mark in a new slot, pinned under a name, instead of the
// one that they mark in now. When it returns that one does not change any more.
func (k *Keep) turn(d *device, old *slot, id string, generation uint64) (*slot, error) {
	fresh, err := newSlot(k.load, d)
	if err != nil {
		return nil, err
	}
	fresh.shared.words[slotShape] |= old.shared.words[slotShape] & (flagMore << 32)
	if err := k.name(fresh, id, generation); err != nil {
		return nil, errors.Join(err, k.unname(id, generation), fresh.close())
	}
	slots := k.load.disks[old.disk]
	number := slices.Index(slots, old)
	err = k.load.hideFront(old.disk)
	if err == nil {
		err = k.load.put(fresh, number)
	}
	if err != nil {
		return nil, errors.Join(err, k.unname(id, generation), fresh.close())
	}
	slots[number] = fresh
	return fresh, k.load.showFront(fresh.disk)
}

// Stop ends the tracking of a device, and takes everything out of the kernel with
// the last. It needs no more than the id, and no device: what is gone is gone.
func (k *Keep) Stop(id string) (err error) {
	for g, s := range k.slots[id] {
		// Out of the table first: what is in it has a name.
		if k.load.live(s) {
			err = errors.Join(err, k.load.take(s))
		} else {
			err = errors.Join(err, s.close())
		}
		err = errors.Join(err, k.unname(id, g))
	}
	delete(k.slots, id)
	if len(k.load.disks) == 0 {
		err = errors.Join(err, k.unpinAll())
	}
	return explainKeep(err)
}

// IDs are the trackers that there are slots of.
func (k *Keep) IDs() []string { return slices.Sorted(maps.Keys(k.slots)) }
