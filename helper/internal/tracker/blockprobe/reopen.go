package blockprobe

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/livefleet/handover/helper/internal/tracker/blockdev"
)

// For the package pinned: a collection that another process left in the kernel, taken
// apart into maps and links and put together again.

// NewCollection makes the maps of a collection. The programs come with the devices.
func NewCollection() (*Collection, error) { return newCollection(nil) }

// Track adds a device. name is called with its slot before the programs know it.
func (l *Collection) Track(d *blockdev.Device, name func(*Slot) error) (_ *Tracker, err error) {
	if l.k, err = lookKernel(); err != nil {
		return nil, fmt.Errorf("tracker: %s: %w", d.Path, err)
	}
	defer l.k.letGo()
	if err := l.k.sees(d); err != nil {
		return nil, err
	}
	t, err := l.track(d, name)
	if err != nil {
		return nil, explain([]*blockdev.Device{d}, err)
	}
	if err := settle([]*Tracker{t}); err != nil {
		return nil, errors.Join(err, l.Untrack(t.slot))
	}
	return t, nil
}

// Untrack takes a slot out of the table and closes it.
func (l *Collection) Untrack(s *Slot) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.take(s)
}

// Empty reports whether no device is tracked any more.
func (l *Collection) Empty() bool { return len(l.disks) == 0 }

// Live reports whether the programs mark in a slot.
func (l *Collection) Live(s *Slot) bool { return slices.Contains(l.disks[s.disk], s) }

// Close lets go of the maps and the programs. They stay in the kernel as far as they
// are pinned.
func (l *Collection) Close() error { return l.destroy() }

// MapNames are the names of the maps that devices share. The table is the last one:
// a collection without it counts for nothing.
var MapNames = []string{"lost", "turns", "bios", "front", mapTable}

const (
	mapTable = "table"
	mapBios  = "bios" // only there if a device needs it
)

// IsOptional reports whether a collection can be without the map of this name.
func IsOptional(name string) bool { return name == mapBios }

func (l *Collection) sharedMaps() map[string]**ebpf.Map {
	m := &l.maps
	return map[string]**ebpf.Map{"lost": &m.lost, "turns": &m.turns, mapBios: &m.bios, "front": &m.front, mapTable: &m.table}
}

// Map is the shared map of a name, or nil.
func (l *Collection) Map(name string) *ebpf.Map { return *l.sharedMaps()[name] }

// LinkKinds are the kinds of devices that need programs of their own.
var LinkKinds = []string{kindQueue, kindHandOn, kindBios}

// LinksOfKind is how many programs each kind needs: the copies, and one.
const LinksOfKind = copies + 1

// Links are the links that are attached, by kind.
func (l *Collection) Links() map[string][]link.Link { return l.kinds }

// Reopen puts a collection together of its maps by name, its slots, and its links by
// kind, all LinksOfKind of them in their order. The maps and the links are the
// collection's from now on, also after an error; the slots stay the caller's.
func Reopen(maps map[string]*ebpf.Map, slots []*Slot, links map[string][]link.Link) (l *Collection, err error) {
	l = &Collection{preemptible: preemptibleTracepoints(), disks: map[uint64][]*Slot{}, fronts: map[uint32]uint64{}, kinds: map[string][]link.Link{}}
	for name, at := range l.sharedMaps() {
		*at = maps[name]
	}
	for _, of := range links {
		l.links = append(l.links, of...)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.destroy())
			l = nil
		}
	}()
	if l.lost, err = mapMemory(l.maps.lost); err != nil {
		return l, err
	}
	if err := l.readFronts(); err != nil {
		return l, err
	}
	byMap := map[ebpf.MapID]*Slot{}
	for _, s := range slots {
		byMap[s.id] = s
	}
	if err := l.readTable(byMap); err != nil {
		return l, err
	}
	for kind, of := range links {
		if err := l.adopt(kind, of); err != nil {
			return l, err
		}
	}
	return l, nil
}

// adopt opens the programs of links that were reopened.
func (l *Collection) adopt(kind string, links []link.Link) error {
	var programs []*ebpf.Program
	for _, at := range links {
		info, err := at.Info()
		if err != nil {
			return err
		}
		p, err := ebpf.NewProgramFromID(info.Program)
		if err != nil {
			return err
		}
		programs = append(programs, p)
		l.progs = append(l.progs, p)
	}
	l.kinds[kind] = links
	l.copies = append(l.copies, programs[:copies])
	if kind == kindQueue {
		l.submission = programs[copies]
	}
	return nil
}

// ReopenSlot makes a slot of its array, which is the slot's from now on.
func ReopenSlot(array *ebpf.Map) (_ *Slot, err error) {
	s := &Slot{array: array}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	info, err := array.Info()
	if err != nil {
		return nil, err
	}
	s.id, _ = info.ID()
	if s.shared, err = mapMemory(array); err != nil {
		return nil, err
	}
	w := s.shared.words
	if len(w) < slotMarks {
		return nil, errors.New("this is no array of marks")
	}
	s.disk = w[slotDisk]
	for level := range levels {
		s.base[level] = uint32(w[slotBases+level/2] >> (32 * (level % 2)))
	}
	sectors := int64(w[slotEnd] - w[slotStart])
	for level, n := range levelWords(sectors*512, 512<<(w[slotShape]&31)) {
		s.length[level] = uint32(n)
		if uint64(s.base[level])+n > uint64(len(w)) {
			return nil, errors.New("this is no array of marks")
		}
	}
	return s, nil
}

// HasFront reports whether the slot has a front: a device without a request queue
// has none.
func (s *Slot) HasFront() bool { return s.shared.words[slotShape]>>32&flagBio == 0 }

// ReopenFront gives a reopened slot its front, which is the slot's from now on.
func (s *Slot) ReopenFront(front *ebpf.Map) (err error) {
	if s.front = front; front.ValueSize() != frontWords*8 {
		return errors.New("this is no front of a slot")
	}
	s.ahead, err = mapMemory(front)
	return err
}

// Maps are the slot's array and its front, which is nil if it has none.
func (s *Slot) Maps() (array, front *ebpf.Map) { return s.array, s.front }

// readFronts finds out whose fronts are in use.
func (l *Collection) readFronts() error {
	for place := range uint32(fronts) {
		var at uint32
		err := l.maps.front.Lookup(place, &at)
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		disk, err := diskOfFront(ebpf.MapID(at))
		if err != nil {
			return err
		}
		l.fronts[place] = disk
	}
	return nil
}

func diskOfFront(at ebpf.MapID) (uint64, error) {
	m, err := ebpf.NewMapFromID(at)
	if err != nil {
		return 0, err
	}
	defer m.Close()
	memory, err := mapMemory(m)
	if err != nil {
		return 0, err
	}
	disk := memory.words[frontDisk]
	return disk, memory.unmap()
}

// readTable puts the slots in the order that they have in the table. A slot that is
// not pinned, because its name was removed, belongs to no tracker and goes. If a
// process was killed while it took one out, the one that moved into its place is
// there twice, and loses the later place.
func (l *Collection) readTable(byMap map[ebpf.MapID]*Slot) error {
	numbers := map[uint64]uint64{} // by disk, how many
	var key tableKey
	var at uint32
	entries := l.maps.table.Iterate()
	for entries.Next(&key, &at) {
		numbers[key.Disk] = max(numbers[key.Disk], key.Number+1)
	}
	if err := entries.Err(); err != nil {
		return err
	}
	var nobodys []*Slot
	for disk, n := range numbers {
		for number := range n {
			key := tableKey{disk, number}
			if err := l.maps.table.Lookup(key, &at); err != nil {
				return err
			}
			s := byMap[ebpf.MapID(at)]
			if s == nil {
				array, err := ebpf.NewMapFromID(ebpf.MapID(at))
				if err != nil {
					return err
				}
				if s, err = ReopenSlot(array); err != nil {
					return err
				}
				nobodys = append(nobodys, s)
			}
			if l.Live(s) {
				if err := l.maps.table.Delete(key); err != nil {
					return err
				}
				continue
			}
			l.disks[disk] = append(l.disks[disk], s)
		}
	}
	for _, s := range nobodys {
		if err := l.take(s); err != nil {
			return err
		}
	}
	return nil
}
