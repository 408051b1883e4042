package lazy

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/livefleet/handover/helper/internal/precopy"
)

// frozenTask is a task on the source: its pages, some of which the dump left there.
type frozenTask struct {
	pid  uint32
	base uint64
	was  []byte // all pages
	left spans  // by the dump
}

// restoredTask is that task on the destination, in this process.
type restoredTask struct {
	*frozenTask
	now  []byte
	uffd int
}

func (f *frozenTask) writePagemap(t *testing.T, dir string) {
	t.Helper()
	b := binary.LittleEndian.AppendUint32(nil, magicCommon)
	b = binary.LittleEndian.AppendUint32(b, magicPagemap)
	put := func(entry []byte) { b = append(binary.LittleEndian.AppendUint32(b, uint32(len(entry))), entry...) }
	put([]byte{8, 1})
	for _, x := range f.left {
		var e []byte
		for field, value := range map[protowire.Number]uint64{fieldAddress: x.start, fieldPages: x.size() / PageSize, fieldFlags: flagLazy} {
			e = protowire.AppendVarint(protowire.AppendTag(e, field, protowire.VarintType), value)
		}
		put(e)
	}
	if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("pagemap-%d.img", f.pid)), b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// stage is everything around a Placer.
type stage struct {
	t      *testing.T
	work   string
	images string
	known  *precopy.Known
	stock  *precopy.Stock
	plan   *Plan
	placer *Placer
	conn   *net.UnixConn
}

func newStage(t *testing.T) *stage {
	t.Helper()
	s := &stage{t: t, work: t.TempDir(), images: t.TempDir(), known: precopy.NewKnown(5)}
	var err error
	if s.stock, err = precopy.NewStock(); err != nil {
		t.Fatal(err)
	}
	s.plan = NewPlan(s.stock)
	if s.placer, err = ListenPlacer(s.work, s.images); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(s.placer.Close(), s.stock.Close()); err != nil {
			t.Error(err)
		}
		if s.conn != nil {
			s.conn.Close()
		}
	})
	return s
}

// ahead sends pages ahead.
func (s *stage) ahead(pages []byte) {
	s.t.Helper()
	for ; len(pages) > 0; pages = pages[PageSize:] {
		if pos, fresh := s.known.Add(pages[:PageSize]); fresh {
			if err := s.stock.Put(pages[:PageSize], pos, 1<<30); err != nil {
				s.t.Fatal(err)
			}
		}
	}
}

// bring brings the content of a range over, when the task is frozen.
func (s *stage) bring(f *frozenTask, x span) {
	s.t.Helper()
	for x.size() > 0 {
		n := min(x.size(), precopy.PieceSize)
		piece, _ := s.known.Encode(nil, f.was[x.start-f.base:][:n], int64(x.start))
		if err := s.plan.Add(f.pid, piece); err != nil {
			s.t.Fatal(err)
		}
		x.start += n
	}
}

// restore hands a task over as CRIU does; each of the given sizes is a mapping of its own.
func (s *stage) restore(f *frozenTask, late time.Duration) *restoredTask {
	s.t.Helper()
	if s.conn == nil {
		var err error
		if s.conn, err = net.DialUnix("unix", nil, &net.UnixAddr{Name: filepath.Join(s.work, SocketName), Net: "unix"}); err != nil {
			s.t.Fatal(err)
		}
	}
	m := unsafe.Slice(*(**byte)(unsafe.Pointer(&f.base)), len(f.was))
	uffd, _, errno := unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC|unix.O_NONBLOCK, 0, 0)
	if errno != 0 {
		s.t.Fatal(errno)
	}
	api := [3]uint64{0xaa, 1<<1 | 1<<2 | 1<<3 | 1<<6, 0}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uffd, 0xc018aa3f, uintptr(unsafe.Pointer(&api))); errno != 0 {
		s.t.Fatal(errno)
	}
	if _, err := s.conn.Write(binary.NativeEndian.AppendUint32(nil, f.pid)); err != nil {
		s.t.Fatal(err)
	}
	if _, _, err := s.conn.WriteMsgUnix([]byte{0}, unix.UnixRights(int(uffd)), nil); err != nil {
		s.t.Fatal(err)
	}
	time.Sleep(late)
	register := [4]uint64{f.base, uint64(len(f.was)), 1, 0}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uffd, 0xc020aa00, uintptr(unsafe.Pointer(&register))); errno != 0 {
		s.t.Fatal(errno)
	}
	if err := unix.Close(int(uffd)); err != nil { // as CRIU's task does
		s.t.Fatal(err)
	}
	return &restoredTask{f, m, int(uffd)}
}

// room is where a task is to have its memory, here and, by the test, there.
func room(t *testing.T, pages int) uint64 {
	t.Helper()
	m, err := unix.Mmap(-1, 0, pages*PageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(m) })
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(m))))
}

func (s *stage) placed() (Placement, error) {
	ctx, cancel := context.WithTimeoutCause(context.Background(), 20*time.Second, errors.New("it took too long"))
	defer cancel()
	return s.placer.Placed(ctx)
}

// as says whether it has what it is to have: zeroes where the dump left nothing.
func (r *restoredTask) as(t *testing.T) {
	t.Helper()
	want := make([]byte, len(r.was))
	for _, x := range r.left {
		copy(want[x.start-r.base:x.end-r.base], r.was[x.start-r.base:])
	}
	for at := 0; at < len(want); at += PageSize {
		if !bytes.Equal(want[at:at+PageSize], r.now[at:at+PageSize]) {
			t.Fatalf("task %d: page %d is not as it was", r.pid, at/PageSize)
		}
	}
}

// frozen makes a task of random pages: empty ones, some that are alike, and some that the
// dump does not leave there, in runs of any length.
func frozen(t *testing.T, random *rand.Rand, pid uint32, pages int) *frozenTask {
	t.Helper()
	f := &frozenTask{pid: pid, base: room(t, pages), was: make([]byte, pages*PageSize)}
	for at := 0; at < pages; {
		run := min(1+random.Intn(1<<random.Intn(10)), pages-at)
		kind := random.Intn(5)
		for n := at; n < at+run; n++ {
			switch page := f.was[n*PageSize : (n+1)*PageSize]; kind {
			case 0: // empty
			case 1:
				copy(page, bytes.Repeat([]byte{7}, PageSize))
			default:
				random.Read(page)
			}
		}
		if kind != 4 {
			start := f.base + uint64(at*PageSize)
			f.left = append(f.left, span{start, start + uint64(run*PageSize), start})
		}
		at += run
	}
	return f
}

// Whatever a task's memory is, it is the same in the end, before any task may run: that
// which went ahead, that which has changed since, that which never went ahead.
func TestMemoryIsPlacedAsItWas(t *testing.T) {
	for seed := range int64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			random := rand.New(rand.NewSource(seed))
			s := newStage(t)
			var tasks []*frozenTask
			var total uint64
			for pid := range uint32(1 + random.Intn(4)) {
				f := frozen(t, random, pid+1, 1+random.Intn(3000))
				f.writePagemap(t, s.images)
				tasks = append(tasks, f)
				total += f.left.bytes()
				s.ahead(f.was)
				for range random.Intn(50) { // written since
					f.was[random.Intn(len(f.was))]++
				}
			}
			for _, f := range tasks {
				half := f.base + uint64(random.Intn(len(f.was)/PageSize+1)*PageSize)
				s.bring(f, span{half, f.base + uint64(len(f.was)), half}) // with pages that the dump has itself
				s.bring(f, span{f.base, half, f.base})
			}
			if err := s.placer.Begin(s.plan); err != nil {
				t.Fatal(err)
			}
			var restored []*restoredTask
			for _, f := range tasks {
				if random.Intn(2) == 0 && len(f.was) > 4*PageSize { // more mappings than one
					at := int(random.Intn(len(f.was)/PageSize)) * PageSize
					m := unsafe.Slice(*(**byte)(unsafe.Pointer(&f.base)), len(f.was))
					if err := unix.Mprotect(m[at:at+PageSize], unix.PROT_READ); err != nil {
						t.Fatal(err)
					}
				}
				restored = append(restored, s.restore(f, time.Duration(random.Intn(3))*time.Millisecond))
			}
			wait := make(chan struct{})
			go func() { // what CRIU itself has to read first
				defer close(wait)
				for range 20 {
					r := restored[random.Intn(len(restored))]
					_ = r.now[random.Intn(len(r.now))]
				}
			}()
			<-wait
			got, err := s.placed()
			if err != nil || got.Bytes != total {
				t.Fatalf("%+v of %d bytes: %v", got, total, err)
			}
			for _, r := range restored {
				r.as(t)
			}
		})
	}
}

// A task that needs a page before its turn gets it, and nothing is counted twice.
func TestAPageThatIsNeededComesFirst(t *testing.T) {
	s := newStage(t)
	f := frozen(t, rand.New(rand.NewSource(3)), 9, 2000)
	f.left = spans{{f.base, f.base + uint64(len(f.was)), f.base}}
	f.writePagemap(t, s.images)
	s.bring(f, f.left[0])
	if err := s.placer.Begin(s.plan); err != nil {
		t.Fatal(err)
	}
	r := s.restore(f, 0)
	for _, page := range []int{1999, 0, 1000, 1500} {
		if r.now[page*PageSize+17] != f.was[page*PageSize+17] {
			t.Errorf("page %d", page)
		}
	}
	if got, err := s.placed(); err != nil || got.Bytes != uint64(len(f.was)) {
		t.Fatalf("%+v, %v", got, err)
	}
	r.as(t)
}

// Nothing is said to be placed that is not: each of these has to be refused.
func TestMemoryThatIsNotAllThereIsRefused(t *testing.T) {
	const pages = 300
	for name, c := range map[string]struct {
		says string
		play func(s *stage, f *frozenTask) error
	}{
		"a page that has not come": {"its content has not come", func(s *stage, f *frozenTask) error {
			s.bring(f, span{f.base, f.base + (pages-1)*PageSize, f.base})
			return s.placer.Begin(s.plan)
		}},
		"a page that has come twice": {"come twice", func(s *stage, f *frozenTask) error {
			s.bring(f, f.left[0])
			s.bring(f, span{f.base, f.base + PageSize, f.base})
			return s.placer.Begin(s.plan)
		}},
		"nothing has come at all": {"none has come", func(s *stage, _ *frozenTask) error {
			_, err := s.placed()
			return err
		}},
		"a task that CRIU did not hand over": {"not handed over the memory of task 9", func(s *stage, f *frozenTask) error {
			s.bring(f, f.left[0])
			if err := s.placer.Begin(s.plan); err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
			defer cancel()
			_, err := s.placer.Placed(ctx)
			return err
		}},
		"a task that was handed over twice": {"handed it over twice", func(s *stage, f *frozenTask) error {
			s.bring(f, f.left[0])
			if err := s.placer.Begin(s.plan); err != nil {
				return err
			}
			s.restore(f, 0)
			other := *f
			other.base = room(s.t, pages)
			s.restore(&other, 0)
			for range 1000 { // which of the two is seen first does not matter, in the end both are
				if _, err := s.placed(); err != nil {
					return err
				}
				time.Sleep(time.Millisecond)
			}
			return nil
		}},
		"memory that CRIU did not register": {"could be filled", func(s *stage, f *frozenTask) error {
			s.bring(f, f.left[0])
			other := *f
			other.was = f.was[:100*PageSize]
			if err := s.placer.Begin(s.plan); err != nil {
				return err
			}
			s.restore(&other, 0)
			_, err := s.placed()
			return err
		}},
		"a page that was there before": {"came from nowhere", func(s *stage, f *frozenTask) error {
			s.bring(f, f.left[0])
			if err := s.placer.Begin(s.plan); err != nil {
				return err
			}
			unsafe.Slice(*(**byte)(unsafe.Pointer(&f.base)), len(f.was))[50*PageSize] = 1
			s.restore(f, 0)
			_, err := s.placed()
			return err
		}},
		"memory that was given up meanwhile": {"given up", func(s *stage, f *frozenTask) error {
			s.bring(f, f.left[0])
			if err := s.placer.Begin(s.plan); err != nil {
				return err
			}
			if err := s.placer.Abandon(); err != nil {
				return err
			}
			_, err := s.placed()
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			f := frozen(t, rand.New(rand.NewSource(1)), 9, pages)
			f.left = spans{{f.base, f.base + pages*PageSize, f.base}}
			f.writePagemap(t, s.images)
			if err := c.play(s, f); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v", err)
			}
		})
	}
}

// A CRIU that waits for a page, of a restore that is given up, comes on: or it could not
// be refused.
func TestARestoreThatIsGivenUpGoesOn(t *testing.T) {
	s := newStage(t)
	f := frozen(t, rand.New(rand.NewSource(1)), 9, 10)
	f.left = spans{{f.base, f.base + 10*PageSize, f.base}}
	f.writePagemap(t, s.images)
	if err := s.placer.Abandon(); err != nil {
		t.Fatal(err)
	}
	r := s.restore(f, 0)
	read := make(chan byte, 1)
	go func() { read <- r.now[3*PageSize] }()
	select {
	case <-read:
	case <-time.After(10 * time.Second):
		t.Fatal("it waits still")
	}
}

// CRIU's last word comes when the workload was told to run. It gets through even if the
// process that listened is gone, or CRIU gives the workload up.
func TestCRIUsLastWordFindsAReader(t *testing.T) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours, err := net.FileConn(os.NewFile(uintptr(pair[1]), "ours"))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(pin(ours.(*net.UnixConn)), ours.Close()); err != nil {
		t.Fatal(err)
	}
	// CRIU keeps its end in a queue, too, and takes it out when it needs it.
	store, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(store[0])
	defer unix.Close(store[1])
	if err := errors.Join(unix.Sendmsg(store[0], []byte{0}, unix.UnixRights(pair[0]), nil, 0), unix.Close(pair[0])); err != nil {
		t.Fatal(err)
	}
	for range 100 { // the kernel looks for queues that nobody can read any more
		p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		if err != nil {
			t.Fatal(err)
		}
		_ = errors.Join(unix.Sendmsg(p[0], []byte{0}, unix.UnixRights(p[0], p[1]), nil, 0), unix.Close(p[0]), unix.Close(p[1]))
	}
	time.Sleep(50 * time.Millisecond)
	oob := make([]byte, unix.CmsgSpace(4))
	if _, n, _, _, err := unix.Recvmsg(store[1], make([]byte, 1), oob, 0); err != nil || n == 0 {
		t.Fatal(n, err)
	}
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		t.Fatal(err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[0])
	if n, err := unix.SendmsgN(fds[0], []byte("over"), nil, nil, unix.MSG_NOSIGNAL); err != nil || n != 4 {
		t.Errorf("%d, %v", n, err)
	}
}

func TestWithout(t *testing.T) {
	s := func(pairs ...uint64) (all spans) {
		for i := 0; i < len(pairs); i += 2 {
			all = append(all, span{pairs[i], pairs[i+1], pairs[i]})
		}
		return all
	}
	for _, c := range []struct{ all, others, rest spans }{
		{s(0, 10), nil, s(0, 10)},
		{s(0, 10), s(0, 10), nil},
		{s(0, 10), s(2, 3, 5, 6), s(0, 2, 3, 5, 6, 10)},
		{s(0, 10, 20, 30), s(5, 25), s(0, 5, 25, 30)},
		{s(10, 20), s(0, 5, 30, 40), s(10, 20)},
		{s(10, 20, 30, 40), s(0, 12, 18, 35, 39, 50), s(12, 18, 35, 39)},
	} {
		if got := c.all.without(c.others); fmt.Sprint(got) != fmt.Sprint(c.rest) {
			t.Errorf("%v without %v: %v", c.all, c.others, got)
		}
	}
}
