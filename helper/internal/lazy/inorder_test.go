package lazy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/lazy/lazytest"
	"github.com/livefleet/handover/helper/internal/precopy"
)

// memoryOf is a task's memory that a test makes up.
type memoryOf func(b []byte, at int64) (int, error)

func (m memoryOf) ReadAt(b []byte, at int64) (int, error) { return m(b, at) }

// withReaders sets the number of threads.
func withReaders(t *testing.T, n int) {
	t.Helper()
	before := readers
	readers = func() int { return n }
	t.Cleanup(func() { readers = before })
}

// comesTrue waits for a channel that is closed.
func comesTrue(t *testing.T, c <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(10 * time.Second):
		t.Errorf("it has not come to this: %s", what)
	}
}

// only is the memory of one task.
func only(from io.ReaderAt, pieces int) lister {
	return func(_ context.Context, add func(uint32, io.ReaderAt, uint64, int) error) error {
		return add(1, from, 0, pieces*readSize)
	}
}

// The pieces of several tasks come in the order in which their memory was listed, whole, and
// one at a time, and several threads read.
func TestPiecesComeInTheirOrder(t *testing.T) {
	withReaders(t, 3)
	random := rand.New(rand.NewSource(1))
	content := make([]byte, 40*readSize+3*PageSize)
	random.Read(content)
	known := precopy.NewKnown(1)
	second := make(chan struct{})
	read := memoryOf(func(b []byte, at int64) (int, error) {
		switch at {
		case 0: // the first is done last of these
			comesTrue(t, second, "another thread reads the second range")
		case readSize:
			close(second)
		}
		return copy(b, content[at:]), nil
	})
	var got []byte
	var at, tasks []uint64
	var busy atomic.Int32
	stock, err := precopy.NewStock()
	if err != nil {
		t.Fatal(err)
	}
	defer stock.Close()
	p := packer{pack: forPlan(known), whole: true, give: func(x Piece) error {
		if busy.Add(1) != 1 {
			t.Error("two pieces are given at once")
		}
		defer busy.Add(-1)
		pages, off, err := stock.Decode(nil, x.Packed)
		if err != nil || uint64(off) != x.At || len(pages) != x.Size || x.Literals != x.Size {
			t.Errorf("%d bytes at %d: %v", len(pages), off, err)
		}
		got = append(got, pages...)
		at, tasks = append(at, x.At), append(tasks, uint64(x.Task))
		return nil
	}}
	err = p.all(t.Context(), func(ctx context.Context, add func(uint32, io.ReaderAt, uint64, int) error) error {
		for task, x := range []span{{0, 15 * readSize, 0}, {15 * readSize, 15*readSize + PageSize, 0}, {15*readSize + PageSize, uint64(len(content)), 0}} {
			if err := add(uint32(task), read, x.start, int(x.size())); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil || !bytes.Equal(got, content) || !slices.IsSorted(at) || !slices.IsSorted(tasks) || tasks[len(tasks)-1] != 2 {
		t.Errorf("%v: %d bytes of %d, %v", err, len(got), len(content), at)
	}
}

// Of several errors the first in the order of the memory is told, all before it was given,
// and nothing behind it.
func TestTheFirstErrorEndsIt(t *testing.T) {
	for name, c := range map[string]struct {
		list  error
		wrong []int // pieces that cannot be read; the first of them is read last
		full  int   // the piece that cannot be given; -1: none
		given int
		says  string
	}{
		"two that cannot be read":      {nil, []int{2, 3}, -1, 2, "piece 2 is wrong"},
		"one that cannot be given":     {nil, nil, 3, 3, "no more of it"},
		"the list ends with an error":  {errors.New("no list"), nil, -1, 6, "no list"},
		"one before the list's error":  {errors.New("no list"), []int{5}, -1, 5, "piece 5 is wrong"},
		"one behind that is not given": {nil, []int{4}, 1, 1, "no more of it"},
	} {
		t.Run(name, func(t *testing.T) {
			withReaders(t, 3)
			last := make(chan struct{})
			read := memoryOf(func(b []byte, at int64) (int, error) {
				time.Sleep(5 * time.Millisecond)
				i := slices.Index(c.wrong, int(at/readSize))
				switch {
				case i < 0:
					return len(b), nil
				case i == 0 && len(c.wrong) > 1:
					comesTrue(t, last, "the later one fails first")
					time.Sleep(20 * time.Millisecond)
				case i == len(c.wrong)-1 && i > 0:
					close(last)
				}
				return 0, fmt.Errorf("piece %d is wrong", at/readSize)
			})
			given := 0
			p := packer{pack: forPlan(precopy.NewKnown(1)), whole: true, give: func(x Piece) error {
				if int(x.At/readSize) == c.full {
					return errors.New("no more of it")
				}
				given++
				return nil
			}}
			err := p.all(t.Context(), func(ctx context.Context, add func(uint32, io.ReaderAt, uint64, int) error) error {
				return errors.Join(only(read, 6)(ctx, add), c.list)
			})
			if err == nil || !strings.Contains(err.Error(), c.says) || given != c.given {
				t.Errorf("%v, when %d were given", err, given)
			}
		})
	}
}

// When it is given up, for a reason, no piece is given any more.
func TestPiecesThatAreGivenUp(t *testing.T) {
	withReaders(t, 3)
	why := errors.New("it is undone")
	ctx, cancel := context.WithCancelCause(t.Context())
	given := 0
	p := packer{pack: forPlan(precopy.NewKnown(1)), give: func(Piece) error {
		if given++; given == 2 {
			cancel(why)
		}
		return nil
	}}
	read := memoryOf(func(b []byte, _ int64) (int, error) { return len(b), nil })
	if err := p.all(ctx, only(read, 1<<20)); !errors.Is(err, why) || given != 2 {
		t.Errorf("%v, when %d were given", err, given)
	}
}

// A link that takes nothing bounds the memory that is read: each thread has one piece.
func TestNoMoreIsReadThanThreadsHold(t *testing.T) {
	withReaders(t, 3)
	var reads atomic.Int32
	takes := make(chan struct{})
	p := packer{pack: forPlan(precopy.NewKnown(1)), give: func(Piece) error { <-takes; return nil }}
	read := memoryOf(func(b []byte, _ int64) (int, error) { reads.Add(1); return len(b), nil })
	done := make(chan error, 1)
	go func() { done <- p.all(t.Context(), only(read, 50)) }()
	for until := time.Now().Add(10 * time.Second); reads.Load() < 3 && time.Now().Before(until); {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(100 * time.Millisecond) // a further one would be read at once
	if n := reads.Load(); n != 3 {
		t.Errorf("%d pieces were read", n)
	}
	close(takes)
	if err := <-done; err != nil || reads.Load() != 50 {
		t.Error(err, reads.Load())
	}
}

// Of a range that cannot all be read, the whole pages before that are given beside a dump.
// Behind it that is an error.
func TestARangeThatCannotAllBeRead(t *testing.T) {
	const readable = 3*PageSize + 17
	read := memoryOf(func(b []byte, at int64) (int, error) {
		if at > 0 {
			return 0, unix.EIO
		}
		return readable, unix.EIO
	})
	var got []int
	p := packer{pack: forPlan(precopy.NewKnown(1)), give: func(x Piece) error { got = append(got, x.Size); return nil }}
	if err := p.all(t.Context(), only(read, 2)); err != nil || !slices.Equal(got, []int{3 * PageSize}) {
		t.Error(got, err)
	}
	p.whole, got = true, nil
	if err := p.all(t.Context(), only(read, 2)); !errors.Is(err, unix.EIO) || got != nil {
		t.Error(got, err)
	}
}

// A dump may say that it has left pages which the task does not have. That is seen before anything
// is released.
func TestADumpThatLeavesWhatIsNotThere(t *testing.T) {
	task, _, _ := start(t, actFrozen)
	pid := task.Process.Pid
	images := t.TempDir()
	if err := os.WriteFile(filepath.Join(images, fmt.Sprintf("pagemap-%d.img", pid)), lazytest.Pagemap(), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := OpenFrozen(precopy.NewKnown(3), func(do func(string) error) error { return do(fmt.Sprintf("/proc/%d", pid)) })
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	_ = task.Process.Kill()
	_ = task.Wait() // its memory is gone then
	none := func(x Piece) error { return fmt.Errorf("%d bytes at %#x are given", x.Size, x.At) }
	if _, err := f.Rest(t.Context(), images, none); err == nil || !strings.Contains(err.Error(), "of the frozen task") {
		t.Error(err)
	}
	if err := os.Rename(filepath.Join(images, fmt.Sprintf("pagemap-%d.img", pid)), filepath.Join(images, "pagemap-4711.img")); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Rest(t.Context(), images, none); err == nil || !strings.Contains(err.Error(), "leaves memory in task 4711, and there is none") {
		t.Error(err)
	}
}

// The pages that a dump has left in a task that stands still are given once: beside the dump, or
// behind it.
func TestAFrozenTaskIsGivenOnce(t *testing.T) {
	for name, hide := range map[string]span{
		"beside the dump": {},
		"in both ways":    {base + 100*PageSize, base + 400*PageSize, 0}, // as if it could not be read beside
	} {
		t.Run(name, func(t *testing.T) {
			task, _, _ := start(t, actFrozen)
			pid := task.Process.Pid
			if err := task.Process.Signal(unix.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			images := t.TempDir()
			if err := os.WriteFile(filepath.Join(images, fmt.Sprintf("pagemap-%d.img", pid)), lazytest.Pagemap(), 0o600); err != nil {
				t.Fatal(err)
			}
			f, err := OpenFrozen(precopy.NewKnown(3), func(do func(string) error) error { return do(fmt.Sprintf("/proc/%d", pid)) })
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			stock, err := precopy.NewStock()
			if err != nil {
				t.Fatal(err)
			}
			defer stock.Close()
			plan := NewPlan(stock)
			if err := f.Beside(t.Context(), func(x Piece) error { return plan.Add(x.Task, x.Packed) }); err != nil {
				t.Fatal(err)
			}
			if hide.size() > 0 {
				given := f.given[uint32(pid)]
				(&given).cut(hide.start, hide.end)
				f.given[uint32(pid)] = given
				var kept []segment
				for _, s := range plan.tasks[uint32(pid)] {
					for _, x := range []segment{s.part(s.start, max(s.start, min(s.end(), hide.start))), s.part(min(s.end(), max(s.start, hide.end)), s.end())} {
						if x.size > 0 {
							kept = append(kept, x)
						}
					}
				}
				plan.tasks[uint32(pid)] = kept
			}
			behind := 0
			left, err := f.Rest(t.Context(), images, func(x Piece) error { behind += x.Size; return plan.Add(x.Task, x.Packed) })
			if err != nil || behind < int(hide.size())*9/10 || hide.size() == 0 && behind > 0 {
				t.Fatal(behind, err)
			}
			dumped, err := pagemaps(images)
			if err != nil || dumped[uint32(pid)].bytes() != left {
				t.Fatal(left, err)
			}
			if err := plan.arrange(); err != nil { // a page that came twice is an error
				t.Fatal(err)
			}
			jobs, err := plan.cover(uint32(pid), dumped[uint32(pid)])
			if err != nil {
				t.Fatal(err)
			}
			for _, x := range jobs {
				for at := x.start; at < x.end(); at += PageSize {
					if page := x.part(at, at+PageSize).data; page[0] != want(int(at-base)/PageSize) || page[PageSize-1] != page[0] {
						t.Fatalf("the page at %#x is another", at)
					}
				}
			}
		})
	}
}

// So many questions are under way that their answers fill the way there and back, whatever their size.
func TestSmallAnswersAreAskedForInGreaterNumber(t *testing.T) {
	f := &Fetcher{size: pieceSize}
	for _, c := range []struct{ size, most int }{{2 * pieceSize, 16}, {pieceSize, 16}, {pieceSize / 4, 64}, {100, 256}, {0, 256}} {
		if f.size = c.size; f.most() != c.most {
			t.Errorf("%d of %d bytes, and not %d", f.most(), c.size, c.most)
		}
	}
}
