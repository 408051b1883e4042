package blockprobe

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/tracker/blockdev"
)

const (
	// biosAtOnce is how many writes can be under way on the devices without a
	// request queue. An entry takes about 120 bytes.
	biosAtOnce = 1 << 16
	// slotsAtOnce is how many devices a load can have.
	slotsAtOnce = 1 << 10
	// largestSlot is how many words the marks of one device may take: 2 GiB.
	largestSlot = 1 << 28
)

// Collection is one set of programs with its maps. Devices come and go while it runs.
type Collection struct {
	k    *kernel // to build programs
	maps bpfMaps
	lost shared // maps.lost, in our memory

	progs []*ebpf.Program
	links []link.Link
	kinds map[string][]link.Link // the links, by the kind of device they are for
	// copies are the programs that can stand in for each other, by their task.
	copies [][]*ebpf.Program
	// submission is the program that marks writes to devices with a request queue
	// on their way there.
	submission *ebpf.Program
	// preemptible: tasks can be preempted inside a tracepoint, so copies may not
	// be enough.
	preemptible bool

	mu     sync.Mutex
	disks  map[uint64][]*Slot // by disk, in the order of their numbers
	fronts map[uint32]uint64  // whose front is in each place
}

// newCollection makes the maps that all programs share; the programs come with the
// devices that need them.
func newCollection(k *kernel) (_ *Collection, err error) {
	l := &Collection{k: k, preemptible: preemptibleTracepoints(), disks: map[uint64][]*Slot{}, fronts: map[uint32]uint64{}, kinds: map[string][]link.Link{}}
	defer func() {
		if err != nil {
			l.destroy()
		}
	}()
	l.maps.table, err = ebpf.NewMap(&ebpf.MapSpec{
		Name: "handover_slots", Type: ebpf.HashOfMaps, KeySize: 16, ValueSize: 4, MaxEntries: slotsAtOnce, InnerMap: slotSpec(slotMarks),
	})
	if err != nil {
		return nil, err
	}
	l.maps.front, err = ebpf.NewMap(&ebpf.MapSpec{
		Name: "handover_fronts", Type: ebpf.ArrayOfMaps, KeySize: 4, ValueSize: 4, MaxEntries: fronts, InnerMap: frontSpec(),
	})
	if err != nil {
		return nil, err
	}
	l.maps.lost, err = ebpf.NewMap(&ebpf.MapSpec{
		Name: "handover_lost", Type: ebpf.Array, KeySize: 4, ValueSize: lineWords * 8, MaxEntries: 1, Flags: unix.BPF_F_MMAPABLE,
	})
	if err != nil {
		return nil, err
	}
	if l.lost, err = mapMemory(l.maps.lost); err != nil {
		return nil, err
	}
	l.maps.turns, err = ebpf.NewMap(&ebpf.MapSpec{
		Name: "handover_turns", Type: ebpf.PerCPUArray, KeySize: 4, ValueSize: turns * 8, MaxEntries: 1,
	})
	return l, err
}

// add begins to track a device. first, if there is one, is done to the slot before
// the programs know it.
func (l *Collection) add(d *blockdev.Device, first func(*Slot) error) (s *Slot, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	slots := l.disks[d.DiskKey()]
	if len(slots) == slotsOfDisk {
		return nil, fmt.Errorf("%d parts of the disk %s are tracked already, which is the most that can be", slotsOfDisk, d.Name)
	}
	if s, err = newSlot(d); err != nil {
		return nil, err
	}
	if first != nil {
		err = first(s)
	}
	if err == nil {
		err = l.hideFront(s.disk) // before there are two
	}
	if err == nil {
		err = l.put(s, len(slots))
	}
	if err != nil {
		return nil, errors.Join(err, s.Close(), l.showFront(d.DiskKey()))
	}
	for _, other := range slots {
		atomic.OrUint64(&other.shared.words[slotShape], flagMore<<32)
	}
	l.disks[s.disk] = append(slots, s)
	if err := l.showFront(s.disk); err != nil {
		return nil, errors.Join(err, l.take(s))
	}
	if err := l.attachFor(d); err != nil {
		return nil, errors.Join(err, l.take(s))
	}
	return s, nil
}

// put gives a slot its place in the table. When it returns, every program that still
// saw the earlier entry has ended: the kernel waits for that.
func (l *Collection) put(s *Slot, number int) error {
	return l.maps.table.Put(tableKey{s.disk, uint64(number)}, s.array)
}

// showFront puts the front of a disk's only slot in use, if its place is free. The
// table has the slot already: a write that is not marked in the front is marked
// there. So a front that is not in use costs time and nothing else. A process that
// changes a disk's entry in the table takes the front out of use first, and can be
// killed at any time.
func (l *Collection) showFront(disk uint64) error {
	slots, place := l.disks[disk], frontOf(disk)
	if _, taken := l.fronts[place]; taken || len(slots) != 1 || slots[0].front == nil {
		return nil
	}
	if err := l.maps.front.Put(place, slots[0].front); err != nil {
		return err
	}
	l.fronts[place] = disk
	return nil
}

// hideFront takes the front of a disk out of use. When the table has been changed,
// too, every program that still saw it has ended.
func (l *Collection) hideFront(disk uint64) error {
	place := frontOf(disk)
	if of, taken := l.fronts[place]; !taken || of != disk {
		return nil
	}
	if err := l.maps.front.Delete(place); err != nil {
		return err
	}
	delete(l.fronts, place)
	return nil
}

// remove ends the tracking of a device, and takes everything out of the kernel
// with the last.
func (l *Collection) remove(s *Slot) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.take(s)
	if len(l.disks) == 0 {
		err = errors.Join(err, l.destroy())
	}
	return err
}

// take takes a slot out of the table. The last one of the disk moves into its
// place first; for a moment it is there twice, never not at all.
func (l *Collection) take(s *Slot) error {
	if err := l.hideFront(s.disk); err != nil {
		return err
	}
	slots := l.disks[s.disk]
	at, end := slices.Index(slots, s), len(slots)-1
	if at < end {
		last := slots[end]
		atomic.OrUint64(&last.shared.words[slotShape], flagMore<<32)
		if err := l.put(last, at); err != nil {
			return err
		}
		slots[at] = last
	}
	if err := l.maps.table.Delete(tableKey{s.disk, uint64(end)}); err != nil {
		return err
	}
	if slots = slots[:end]; len(slots) == 0 {
		delete(l.disks, s.disk)
	} else {
		atomic.AndUint64(&slots[end-1].shared.words[slotShape], ^uint64(flagMore<<32))
		l.disks[s.disk] = slots
	}
	return errors.Join(s.Close(), l.showFront(s.disk))
}

// The kinds of devices, by the programs that they need.
const (
	kindQueue  = "queue"  // with a request queue
	kindBios   = "bios"   // without one
	kindHandOn = "handon" // without one, and bios may be given to another device as they are
)

// attachFor attaches the programs that a device needs and that are not there yet.
//
// For devices without a request queue completion comes first: a bio that is queued
// before block_bio_queue is attached is then an unknown one, which marks all, and not
// an unseen one.
func (l *Collection) attachFor(d *blockdev.Device) error {
	if !d.BioBased {
		return l.once(kindQueue, func() error {
			err := l.attachCopies("request_complete", "request_complete")
			if err == nil {
				l.submission, err = l.attach("bio_submitted")
			}
			return err
		})
	}
	if d.HandsOnBios() {
		if err := l.once(kindHandOn, func() error {
			err := l.bios()
			if err == nil {
				err = l.attachCopies("request_remapped", "request_remapped_last")
			}
			if err == nil {
				_, err = l.attach("bio_remapped")
			}
			return err
		}); err != nil {
			return err
		}
	}
	return l.once(kindBios, func() error {
		err := l.bios()
		if err == nil {
			err = l.attachCopies("bio_complete", "bio_complete_last")
		}
		if err == nil {
			_, err = l.attach("bio_queued")
		}
		return err
	})
}

// once attaches the programs of a kind of device, the first time.
func (l *Collection) once(kind string, attach func() error) error {
	if l.kinds[kind] != nil {
		return nil
	}
	before := len(l.links)
	if err := attach(); err != nil {
		return err
	}
	l.kinds[kind] = l.links[before:len(l.links):len(l.links)]
	return nil
}

// bios makes the hash of bios.
func (l *Collection) bios() (err error) {
	if l.maps.bios == nil {
		l.maps.bios, err = ebpf.NewMap(&ebpf.MapSpec{
			Name: "handover_bios", Type: ebpf.Hash, KeySize: 8, ValueSize: knownSize, MaxEntries: biosAtOnce,
		})
	}
	return err
}

// destroy takes everything out of the kernel again.
func (l *Collection) destroy() error {
	var errs []error
	for _, at := range l.links {
		errs = append(errs, at.Close())
	}
	for _, p := range l.progs {
		errs = append(errs, p.Close())
	}
	for _, m := range []*ebpf.Map{l.maps.table, l.maps.front, l.maps.lost, l.maps.turns, l.maps.bios} {
		if m != nil {
			errs = append(errs, m.Close())
		}
	}
	return errors.Join(append(errs, l.lost.unmap())...)
}

// underWay returns what the hash of bios knows of a disk: the writes that were
// not seen to complete. sectors is -1 for one without a range.
func (l *Collection) underWay(disk uint64) (list []knownBio, err error) {
	if l.maps.bios == nil {
		return nil, nil
	}
	const batch = 256
	keys, values := make([]uint64, batch), make([]knownValue, batch)
	var cursor ebpf.MapBatchCursor
	for {
		n, err := l.maps.bios.BatchLookup(&cursor, keys, values, nil)
		for i := range n {
			for _, o := range values[i] {
				if o.Disk == disk {
					list = append(list, knownBio{keys[i], o})
				}
			}
		}
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return list, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// knownValue is a value in the hash of bios.
type knownValue [ownersOfBio]owner

// owner is a device that a bio was seen on, and its range there.
type owner struct {
	Disk, Sector uint64
	Sectors      int64
}

// knownBio is one write that is under way, as far as was seen.
type knownBio struct {
	bio uint64
	owner
}

// preemptibleTracepoints says whether this kernel may let tasks be preempted in
// a program on a tracepoint; kernels up to 6.18 do not.
func preemptibleTracepoints() bool {
	major, minor := blockdev.KernelVersion()
	return major == 0 || major > 6 || major == 6 && minor > 18
}
