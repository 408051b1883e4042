package pinned

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/livefleet/handover/helper/internal/tracker/blockprobe"
)

// The names below the folder:
//
//	lost turns bios front table   the maps that all devices share
//	KIND-N                        the links of a kind of device, N from 0
//	marks-ID-GENERATION           the array of a slot
//	front-ID-GENERATION           its front, if it has one
//
// An order makes each step safe to be killed in. The table gets its name last and
// loses it first, and nothing counts without it. A slot's array gets its name after
// its front, so a slot with a name is complete.

func (k *Trackers) path(name string) string { return filepath.Join(k.dir, name) }

func nameOfLink(kind string, n int) string { return fmt.Sprintf("%s-%d", kind, n) }

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

// reopen finds everything that is pinned.
func (k *Trackers) reopen() (err error) {
	shared, links := map[string]*ebpf.Map{}, map[string][]link.Link{}
	defer func() {
		if k.coll != nil || err == nil {
			return
		}
		for _, m := range shared {
			err = errors.Join(err, m.Close())
		}
		for _, of := range links {
			for _, at := range of {
				err = errors.Join(err, at.Close())
			}
		}
	}()
	for _, name := range blockprobe.MapNames {
		m, err := ebpf.LoadPinnedMap(k.path(name), nil)
		if errors.Is(err, fs.ErrNotExist) && blockprobe.IsOptional(name) {
			continue
		}
		if err != nil {
			return fmt.Errorf("%s: %w", k.path(name), err)
		}
		shared[name] = m
	}
	var slots []*blockprobe.Slot
	if slots, err = k.reopenSlots(); err != nil {
		return err
	}
	for _, kind := range blockprobe.LinkKinds {
		of, err := k.reopenLinks(kind)
		if err != nil {
			return err
		}
		if of != nil {
			links[kind] = of
		}
	}
	coll, err := blockprobe.Reopen(shared, slots, links)
	if err != nil {
		clear(shared) // closed by now
		clear(links)
		return err
	}
	k.coll = coll
	return nil
}

// reopenSlots opens the slots that have a name.
func (k *Trackers) reopenSlots() (slots []*blockprobe.Slot, err error) {
	entries, err := os.ReadDir(k.dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		id, generation, ok := slotOfName(e.Name())
		if !ok {
			continue
		}
		s, err := k.reopenSlot(id, generation)
		if err != nil {
			return nil, err
		}
		if s == nil {
			continue
		}
		slots = append(slots, s)
		if k.slots[id] == nil {
			k.slots[id] = map[uint64]*blockprobe.Slot{}
		}
		k.slots[id][generation] = s
	}
	return slots, nil
}

// reopenSlot opens one slot. A slot that lacks its front, because the front's name
// was removed, is not whole, and counts as none: there may be marks in the front that
// cannot be read.
func (k *Trackers) reopenSlot(id string, generation uint64) (*blockprobe.Slot, error) {
	path, frontPath := k.path(nameOfSlot(id, generation)), k.path(nameOfFront(id, generation))
	array, err := ebpf.LoadPinnedMap(path, nil)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	s, err := blockprobe.ReopenSlot(array)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if !s.HasFront() {
		return s, nil
	}
	front, err := ebpf.LoadPinnedMap(frontPath, nil)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, s.Close()
	}
	if err == nil {
		err = s.ReopenFront(front)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", frontPath, errors.Join(err, s.Close()))
	}
	return s, nil
}

// reopenLinks opens the pinned links of one kind. If some are missing, a process
// was killed while they were pinned, and no device depends on them yet.
func (k *Trackers) reopenLinks(kind string) ([]link.Link, error) {
	var links []link.Link
	var failed error
	for i := range blockprobe.LinksOfKind {
		at, err := link.LoadPinnedLink(k.path(nameOfLink(kind, i)), nil)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			failed = err
			break
		}
		links = append(links, at)
	}
	if failed == nil && len(links) == blockprobe.LinksOfKind {
		return links, nil
	}
	for _, at := range links {
		if failed == nil {
			failed = at.Unpin()
		}
		failed = errors.Join(failed, at.Close())
	}
	return nil, failed
}

// pin gives a name to every part that has none yet.
func (k *Trackers) pin() error {
	for kind, links := range k.coll.Links() {
		for i, at := range links {
			if err := at.Pin(k.path(nameOfLink(kind, i))); err != nil {
				return err
			}
		}
	}
	for _, name := range blockprobe.MapNames {
		if m := k.coll.Map(name); m != nil && !m.IsPinned() {
			if err := m.Pin(k.path(name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// name pins a slot.
func (k *Trackers) name(s *blockprobe.Slot, id string, generation uint64) error {
	array, front := s.Maps()
	if front != nil {
		if err := front.Pin(k.path(nameOfFront(id, generation))); err != nil {
			return err
		}
	}
	return array.Pin(k.path(nameOfSlot(id, generation)))
}

// unname takes the name of a slot away. That it has none is no error.
func (k *Trackers) unname(id string, generation uint64) (err error) {
	for _, name := range []string{nameOfSlot(id, generation), nameOfFront(id, generation)} {
		if e := os.Remove(k.path(name)); !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	return err
}

// unpinAll takes all names away, the table's first.
func (k *Trackers) unpinAll() error {
	for i := range blockprobe.MapNames {
		name := blockprobe.MapNames[len(blockprobe.MapNames)-1-i]
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
