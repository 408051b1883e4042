package lazy

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/livefleet/handover/helper/internal/precopy"
	"github.com/livefleet/handover/helper/internal/tasks"
)

// Frozen is the memory of tasks which stand still and which CRIU dumps with lazy pages:
// each of these pages is given once.
//
// Beside the dump most of it is read (Beside): what no part of CRIU touches. CRIU writes
// an instruction into a task's code for a moment, and waits for I/O that the kernel has
// under way. So memory with code in it, and that of tasks with such I/O, is left to the
// end. Then the dump says which pages it has left in the tasks, and those that were not
// given yet are (Rest).
type Frozen struct {
	*Memory
	known *precopy.Known
	given map[uint32]spans
}

// OpenFrozen opens the memory of all tasks which each goes through, by their folders in
// /proc. Known is what has gone ahead; nothing is added to it any more.
func OpenFrozen(known *precopy.Known, each func(func(proc string) error) error) (*Frozen, error) {
	m, err := OpenMemory(each)
	if err != nil {
		return nil, err
	}
	return &Frozen{Memory: m, known: known, given: map[uint32]spans{}}, nil
}

// Beside gives what can be read while CRIU dumps.
func (f *Frozen) Beside(ctx context.Context, give Give) error {
	p := packer{pack: forPlan(f.known), give: func(x Piece) error {
		f.note(x)
		return give(x)
	}}
	return p.all(ctx, func(_ context.Context, add func(uint32, io.ReaderAt, uint64, int) error) error {
		scan := precopy.NewScan()
		for _, pid := range f.pids() {
			file := f.files[pid]
			proc := filepath.Dir(file.Name())
			calm, err := calm(proc)
			if tasks.Gone(err) { // whether it has left memory behind, the dump tells
				continue
			} else if err != nil {
				return fmt.Errorf("lazy: the frozen task %d: %w", pid, err)
			}
			if !calm {
				continue
			}
			if err := scan.Own(proc, func(at uint64, size int) error { return add(pid, file, at, size) }); err != nil {
				return err
			}
		}
		return nil
	})
}

// note keeps in mind that a piece was given. A task's pieces come in ascending order.
func (f *Frozen) note(x Piece) {
	end, given := x.At+uint64(x.Size), f.given[x.Task]
	if n := len(given); n > 0 && given[n-1].end == x.At {
		given[n-1].end = end
		return
	}
	f.given[x.Task] = append(given, span{x.At, end, x.At})
}

// calm says of a task that only CRIU may touch its memory: the kernel has no I/O of its
// own to do there. Locked memory is dumped by CRIU itself, and a task that locks some
// mostly locks all.
func calm(proc string) (bool, error) {
	maps, err := os.ReadFile(filepath.Join(proc, "maps"))
	if err != nil {
		return false, err
	}
	status, err := os.ReadFile(filepath.Join(proc, "status"))
	if err != nil {
		return false, err
	}
	locked := true
	for line := range strings.Lines(string(status)) {
		if size, ok := strings.CutPrefix(line, "VmLck:"); ok {
			locked = strings.TrimSpace(size) != "0 kB"
		}
	}
	return !locked && !bytes.Contains(maps, []byte("/[aio]")), nil
}

// Rest gives the pages that a complete dump has left in the tasks, and that were not
// given yet. It says how many bytes the dump has left there.
func (f *Frozen) Rest(ctx context.Context, images string, give Give) (left uint64, err error) {
	dumped, err := pagemaps(images)
	if err != nil {
		return 0, err
	}
	for _, own := range dumped {
		left += own.bytes()
	}
	p := packer{pack: forPlan(f.known), whole: true, give: give}
	return left, p.all(ctx, func(_ context.Context, add func(uint32, io.ReaderAt, uint64, int) error) error {
		for _, pid := range slices.Sorted(maps.Keys(dumped)) {
			missing := dumped[pid].without(f.given[pid])
			file := f.files[pid]
			if file == nil && len(missing) > 0 {
				return fmt.Errorf("lazy: the dump leaves memory in task %d, and there is none", pid)
			}
			for _, x := range missing {
				if err := add(pid, file, x.start, int(x.size())); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

func (m *Memory) pids() []uint32 {
	var all []uint32
	for pid := range m.files {
		all = append(all, pid)
	}
	slices.Sort(all)
	return all
}

// pagemaps reads from a dump the pages that it left in the tasks, by their IDs. A task of
// which it left none is not among them.
func pagemaps(images string) (map[uint32]spans, error) {
	entries, err := os.ReadDir(images)
	if err != nil {
		return nil, fmt.Errorf("lazy: the dump: %w", err)
	}
	all := map[uint32]spans{}
	for _, e := range entries {
		name, ok := strings.CutPrefix(e.Name(), "pagemap-")
		if !ok {
			continue
		}
		name, ok = strings.CutSuffix(name, ".img")
		id, err := strconv.ParseUint(name, 10, 32)
		if !ok || err != nil { // of shared memory, which has a name of its own
			continue
		}
		left, err := readPagemap(images, uint32(id))
		if err != nil {
			return nil, err
		}
		if len(left) > 0 {
			all[uint32(id)] = left
		}
	}
	return all, nil
}

// without is the part of spans that others do not have. Both are in ascending order.
func (s spans) without(others spans) (rest spans) {
	for _, x := range s {
		for len(others) > 0 && others[0].end <= x.start {
			others = others[1:]
		}
		for i := 0; i < len(others) && others[i].start < x.end; i++ {
			if before, some := x.part(x.start, others[i].start); some {
				rest = append(rest, before)
			}
			x, _ = x.part(others[i].end, x.end)
		}
		if x.start < x.end {
			rest = append(rest, x)
		}
	}
	return rest
}
