package tracker

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// sharedMaps are the maps of the load, by the names under which they are pinned.
func (k *Keep) sharedMaps() map[string]**ebpf.Map {
	m := &k.load.maps
	return map[string]**ebpf.Map{"lost": &m.lost, "turns": &m.turns, "bios": &m.bios, "front": &m.front, "table": &m.table}
}

// reopen finds everything that is pinned.
func (k *Keep) reopen() (err error) {
	l := &load{preemptible: preemptibleTracepoints(), disks: map[uint64][]*slot{}, fronts: map[uint32]uint64{}, kinds: map[string][]link.Link{}}
	k.load = l
	for name, m := range k.sharedMaps() {
		*m, err = ebpf.LoadPinnedMap(k.path(name), nil)
		if err != nil && !(name == "bios" && errors.Is(err, fs.ErrNotExist)) {
			return fmt.Errorf("%s: %w", k.path(name), err)
		}
	}
	if l.lost, err = mapMemory(l.maps.lost); err != nil {
		return err
	}
	entries, err := os.ReadDir(k.dir)
	if err != nil {
		return err
	}
	byMap := map[ebpf.MapID]*slot{}
	for _, e := range entries {
		id, generation, ok := slotOfName(e.Name())
		if !ok {
			continue
		}
		array, err := ebpf.LoadPinnedMap(k.path(e.Name()), nil)
		if err != nil {
			return fmt.Errorf("%s: %w", k.path(e.Name()), err)
		}
		s, at, err := reopenSlot(l, array)
		if err != nil {
			return fmt.Errorf("%s: %w", k.path(e.Name()), err)
		}
		if whole, err := s.reopenFront(k.path(nameOfFront(id, generation))); err != nil || !whole {
			if err = errors.Join(err, s.close()); err != nil {
				return err
			}
			continue
		}
		byMap[at] = s
		if k.slots[id] == nil {
			k.slots[id] = map[uint64]*slot{}
		}
		k.slots[id][generation] = s
	}
	if err := l.readFronts(); err != nil {
		return err
	}
	if err := k.readTable(byMap); err != nil {
		return err
	}
	for _, kind := range []string{kindQueue, kindHandOn, kindBios} {
		if err := k.reopenLinks(kind); err != nil {
			return err
		}
	}
	return nil
}

func nameOfSlot(id string, generation uint64) string {
	return fmt.Sprintf("marks-%s-%d", id, generation)
}

func nameOfFront(id string, generation uint64) string {
	return fmt.Sprintf("front-%s-%d", id, generation)
}

func slotOfName(name string) (id string, generation uint64, ok bool) {
	parts := strings.Split(name, "-")
	if len(parts) != 3 || parts[0] != "marks" {
		return "", 0, false
	}
	generation, err := strconv.ParseUint(parts[2], 10, 64)
	return parts[1], generation, err == nil
}

// reopenSlot makes a slot of its array.
func reopenSlot(l *load, array *ebpf.Map) (_ *slot, at ebpf.MapID, err error) {
	s := &slot{load: l, array: array}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	info, err := array.Info()
	if err != nil {
		return nil, 0, err
	}
	at, _ = info.ID()
	if s.shared, err = mapMemory(array); err != nil {
		return nil, 0, err
	}
	w := s.shared.words
	s.disk = w[slotDisk]
	for level := range levels {
		s.base[level] = uint32(w[slotBases+level/2] >> (32 * (level % 2)))
	}
	sectors := int64(w[slotEnd] - w[slotStart])
	for level, n := range levelWords(sectors*512, 512<<(w[slotShape]&31)) {
		s.length[level] = uint32(n)
		if uint64(s.base[level])+n > uint64(len(w)) {
			return nil, 0, errors.New("this is no array of marks")
		}
	}
	return s, at, nil
}

// reopenFront opens the front of a slot. A slot that lacks it, because somebody
// removed its name, is not whole: there may be marks in it that nobody can read.
func (s *slot) reopenFront(path string) (whole bool, err error) {
	if s.shared.words[slotShape]>>32&flagBio != 0 {
		return true, nil
	}
	s.front, err = ebpf.LoadPinnedMap(path, nil)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err == nil && s.front.ValueSize() != frontWords*8 {
		err = errors.New("this is no front of a slot")
	}
	if err == nil {
		s.ahead, err = mapMemory(s.front)
	}
	if err != nil {
		return false, fmt.Errorf("%s: %w", path, err)
	}
	return true, nil
}

// readFronts finds out whose fronts are in use.
func (l *load) readFronts() error {
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

// readTable puts the slots in the order that they have in the table. A slot that
// is not pinned, because somebody removed its name, is nobody's and goes; and if
// somebody was killed while he took one out, the one that moved into its place is
// there twice, and loses the later place.
func (k *Keep) readTable(byMap map[ebpf.MapID]*slot) error {
	l := k.load
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
	var nobodys []*slot
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
				if s, _, err = reopenSlot(l, array); err != nil {
					return err
				}
				nobodys = append(nobodys, s)
			}
			if l.live(s) {
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

// reopenLinks opens the pinned links of one kind. If some are missing, somebody
// was killed while they were pinned, and no device depends on them yet.
func (k *Keep) reopenLinks(kind string) error {
	l := k.load
	var links []link.Link
	for i := range linksOfKind {
		at, err := link.LoadPinnedLink(k.path(fmt.Sprintf("%s-%d", kind, i)), nil)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		links = append(links, at)
	}
	l.links = append(l.links, links...)
	if len(links) < linksOfKind {
		for _, at := range links {
			if err := at.Unpin(); err != nil {
				return err
			}
		}
		return nil
	}
	l.kinds[kind] = links
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
	}
	l.progs = append(l.progs, programs...)
	l.copies = append(l.copies, programs[:copies])
	if kind == kindQueue {
		l.submission = programs[copies]
	}
	return nil
}

// pin pins what is not pinned yet. The table comes last: where there is none,
// nothing counts.
func (k *Keep) pin() error {
	for kind, links := range k.load.kinds {
		for i, at := range links {
			if err := at.Pin(k.path(fmt.Sprintf("%s-%d", kind, i))); err != nil {
				return err
			}
		}
	}
	shared := k.sharedMaps()
	for _, name := range []string{"lost", "turns", "bios", "front", "table"} {
		if m := *shared[name]; m != nil && !m.IsPinned() {
			if err := m.Pin(k.path(name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// name pins a slot, the front first: what has a name has all of it.
func (k *Keep) name(s *slot, id string, generation uint64) error {
	if s.front != nil {
		if err := s.front.Pin(k.path(nameOfFront(id, generation))); err != nil {
			return err
		}
	}
	return s.array.Pin(k.path(nameOfSlot(id, generation)))
}

// unname takes the name of a slot away. That it has none is no error.
func (k *Keep) unname(id string, generation uint64) (err error) {
	for _, name := range []string{nameOfSlot(id, generation), nameOfFront(id, generation)} {
		if e := os.Remove(k.path(name)); !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	return err
}

// unpinAll removes the table first: where there is none, nothing counts.
func (k *Keep) unpinAll() error {
	for _, name := range []string{"table", "front", "lost", "turns", "bios"} {
		if err := os.Remove(k.path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	entries, err := os.ReadDir(k.dir)
	for _, e := range entries {
		err = errors.Join(err, os.Remove(k.path(e.Name())))
	}
	if err == nil {
		_ = os.Remove(k.dir) // another process may just have made it again
	}
	return err
}
