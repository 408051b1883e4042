package lazy

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/lazy/lazytest"
	"github.com/livefleet/handover/helper/internal/precopy"
	"github.com/livefleet/handover/helper/internal/wire"
)

// The tests play both tasks: this binary, started again with one of these words, is
// the one that stands still, or the one that CRIU restores.
const (
	actFrozen   = "act-frozen"
	actRestored = "act-restored" // act-restored SOCKET WHAT
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && strings.HasPrefix(os.Args[1], "act-") {
		if err := act(os.Args[1:]); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func act(args []string) error {
	m, err := lazytest.Map()
	if err != nil {
		return err
	}
	if args[0] == actFrozen {
		lazytest.Fill(m)
		fmt.Println("ready")
		_, err := io.Copy(io.Discard, os.Stdin)
		return err
	}
	restored, fd, err := lazytest.HandOver(args[1], 42)
	if err == nil {
		err = unix.Close(fd)
	}
	if err != nil {
		return err
	}
	fmt.Println("handed over")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	if err := restored(); err != nil {
		return err
	}
	return deeds[args[2]](m)
}

const (
	base  = lazytest.Base
	pages = lazytest.Pages
	size  = lazytest.Size
)

var check, want, memory = lazytest.Check, lazytest.Want, lazytest.At

// forked is the word of a task that has children.
const forked = "forked"

func nothing(int) byte { return 0 }

// What a task may do while its memory comes.
var deeds = map[string]func(m []byte) error{
	"nothing": func(m []byte) error {
		time.Sleep(time.Second)
		return check(m, 0, pages, want)
	},
	"read": func(m []byte) error {
		for i := range pages {
			n := i * 577 % pages
			if err := check(m, n, n+1, want); err != nil {
				return err
			}
		}
		return nil
	},
	"throw away": func(m []byte) error {
		if err := unix.Madvise(m[100*PageSize:300*PageSize], unix.MADV_DONTNEED); err != nil {
			return err
		}
		return errors.Join(check(m, 0, 100, want), check(m, 100, 300, nothing), check(m, 300, pages, want))
	},
	"protect": func(m []byte) error { // splits the mapping
		for n := 10; n < pages; n += 20 {
			if err := unix.Mprotect(m[n*PageSize:(n+1)*PageSize], unix.PROT_READ); err != nil {
				return err
			}
		}
		return check(m, 0, pages, want)
	},
	"move": func(m []byte) error {
		const first, n = 200, 300
		at, _, errno := unix.Syscall6(unix.SYS_MREMAP, base+first*PageSize, n*PageSize, n*PageSize, unix.MREMAP_MAYMOVE|unix.MREMAP_FIXED, base+4*size, 0)
		if errno != 0 {
			return errno
		}
		return errors.Join(
			check(memory(at), 0, n, func(p int) byte { return want(first + p) }), check(m, 0, first, want), check(m, first+n, pages, want),
		)
	},
	"unmap": func(m []byte) error {
		if _, _, errno := unix.Syscall(unix.SYS_MUNMAP, base+100*PageSize, 200*PageSize, 0); errno != 0 {
			return errno
		}
		at, _, errno := unix.Syscall6(unix.SYS_MMAP, base+100*PageSize, 200*PageSize, unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_FIXED, ^uintptr(0), 0)
		if errno != 0 || at != base+100*PageSize {
			return errno
		}
		return errors.Join(check(m, 0, 100, want), check(m, 100, 300, nothing), check(m, 300, pages, want))
	},
	"fork": func(m []byte) error {
		runtime.LockOSThread()
		var children []uintptr
		for range 3 {
			pid, _, errno := unix.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
			if errno != 0 {
				return errno
			}
			if pid == 0 { // nothing of Go's works here
				status := uintptr(0)
				for n := range pages {
					holds := byte(0)
					if n%64 != 63 && n < pages-32 {
						holds = byte(n%251) + 1
					}
					if m[n*PageSize] != holds {
						status = 1
					}
				}
				unix.RawSyscall(unix.SYS_EXIT_GROUP, status, 0, 0)
			}
			children = append(children, pid)
		}
		fmt.Println(forked)
		err := check(m, 0, pages, want)
		for _, pid := range children {
			var status unix.WaitStatus
			if _, e := unix.Wait4(int(pid), &status, 0, nil); e != nil || status.ExitStatus() != 0 {
				err = errors.Join(err, e, fmt.Errorf("a child found what it should not: %v", status))
			}
		}
		return err
	},
	"end": func([]byte) error { return nil },
}

// keeper is one that keeps nothing, but counts.
type keeper struct {
	mu   sync.Mutex
	have map[string]bool
	all  int
}

func (k *keeper) Keep(name string, _ int) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.have[name] = true
	k.all++
	return nil
}

func (k *keeper) LetGo(names ...string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, name := range names {
		delete(k.have, name)
	}
	return nil
}

// moving is one task's memory on its way.
type moving struct {
	t        *testing.T
	keeper   *keeper
	fetcher  *Fetcher
	memory   *Memory
	known    *precopy.Known // nil: nothing has gone ahead
	restored *exec.Cmd
	said     *bufio.Reader
	goOn     io.Writer
	served   sync.WaitGroup
	bytes    atomic.Int64
}

func start(t *testing.T, args ...string) (*exec.Cmd, *bufio.Reader, io.Writer) {
	t.Helper()
	c := exec.Command("/proc/self/exe", args...)
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	r := bufio.NewReader(out)
	if line, err := r.ReadString('\n'); err != nil {
		t.Skipf("this kernel, or who runs this, does not let a process do that: %s %v", line, err)
	}
	return c, r, in
}

func begin(t *testing.T, deed string) *moving {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "pagemap-42.img"), lazytest.Pagemap(), 0o600); err != nil {
		t.Fatal(err)
	}
	m := &moving{t: t, keeper: &keeper{have: map[string]bool{}}}
	var err error
	if m.fetcher, err = Listen(dir, dir, m.keeper, func(Progress) {}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.fetcher.Close(); err != nil {
			t.Error(err)
		}
		m.served.Wait()
	})
	frozen, _, _ := start(t, actFrozen)
	file, err := os.Open(fmt.Sprintf("/proc/%d/mem", frozen.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	m.memory = &Memory{files: map[uint32]*os.File{42: file}}
	t.Cleanup(func() { m.memory.Close() })
	m.restored, m.said, m.goOn = start(t, actRestored, filepath.Join(dir, SocketName), deed)
	return m
}

// connect gives it a connection; the other end is returned, to be broken.
func (m *moving) connect() net.Conn {
	a, b := net.Pipe()
	m.fetcher.Connect(wire.NewConn(a))
	known := m.known // of this connection: a test may take it away for the next one
	m.served.Go(func() { _ = m.memory.Serve(wire.NewConn(b), known, func(n int64) { m.bytes.Add(n) }) })
	return b
}

// ahead has the task's memory gone ahead: of each five pages one has been written to since,
// and each seventh is new. Spoil changes pages that have come.
func (m *moving) ahead(spoil func(page int, content []byte)) {
	m.t.Helper()
	stock, err := precopy.NewStock()
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() {
		if err := errors.Join(m.fetcher.Close(), stock.Close()); err != nil {
			m.t.Error(err)
		}
	})
	m.known = precopy.NewKnown(1).WithVersions()
	for n := range pages {
		page := bytes.Repeat([]byte{want(n)}, PageSize)
		if n%5 == 0 {
			page[n%PageSize]++
		}
		pos := m.known.Size()
		if n%7 == 0 || !m.known.AddAt(filepath.Dir(m.memory.files[42].Name()), base+uint64(n)*PageSize, page) {
			continue
		}
		spoil(n, page)
		if err := stock.Put(page, pos, 1<<30); err != nil {
			m.t.Fatal(err)
		}
	}
	m.fetcher.Know(stock)
}

func asItWas(int, []byte) {}

func (m *moving) end() {
	m.t.Helper()
	said, _ := io.ReadAll(m.said)
	if err := m.restored.Wait(); err != nil {
		m.t.Fatalf("the task: %v: %s", err, said)
	}
}

// come returns when all memory is there, and let go of.
func (m *moving) come() Progress {
	m.t.Helper()
	p, err := m.fetcher.Wait(limited(m.t))
	if err != nil {
		m.t.Fatal(err)
	}
	if err := m.fetcher.Close(); err != nil {
		m.t.Fatal(err)
	}
	return p
}

func TestMemoryFollows(t *testing.T) {
	for deed := range deeds {
		t.Run(deed, func(t *testing.T) {
			m := begin(t, deed)
			if deed != "fork" {
				m.connect()
			}
			fmt.Fprintln(m.goOn, "go on")
			if deed == "fork" { // or all memory may be there before, and the children have it from their parent
				if line, err := m.said.ReadString('\n'); line != forked+"\n" {
					t.Fatalf("the task: %q, %v", line, err)
				}
				m.connect()
			}
			p := m.come()
			m.end()
			if len(m.keeper.have) > 0 || (deed == "fork") != (m.keeper.all > 1) {
				t.Errorf("%d descriptors were kept, and are still: %v", m.keeper.all, m.keeper.have)
			}
			if deed == "nothing" && p.Fetched != p.Total || p.Total < 900*PageSize {
				t.Errorf("%+v", p)
			}
		})
	}
}

// Memory that went ahead does not travel again, whatever the task does meanwhile.
func TestMemoryFollowsWhereItHasGoneAhead(t *testing.T) {
	for deed := range deeds {
		t.Run(deed, func(t *testing.T) {
			m := begin(t, deed)
			m.ahead(asItWas)
			m.connect()
			fmt.Fprintln(m.goOn, "go on")
			p := m.come()
			m.end()
			if p.Plain || deed == "nothing" && (p.Fetched != p.Total || p.Sent > p.Total/3) {
				t.Errorf("%+v", p)
			}
		})
	}
}

// A connection that breaks is made again, and the source's next process has heard of nothing
// that went ahead.
func TestAnotherProcessLendsTheRest(t *testing.T) {
	m := begin(t, "read")
	m.ahead(asItWas)
	fmt.Fprintln(m.goOn, "go on")
	for range 4 {
		c := m.connect()
		time.Sleep(3 * time.Millisecond)
		c.Close()
		time.Sleep(3 * time.Millisecond)
	}
	m.known = nil
	m.connect()
	m.come()
	m.end()
}

// A piece with another content than the source has goes into no memory: from there on all of it travels.
func TestAPageThatIsAnotherIsAskedForWhole(t *testing.T) {
	m := begin(t, "read")
	m.ahead(func(page int, content []byte) {
		if page == 501 {
			content[0]++
		}
	})
	fmt.Fprintln(m.goOn, "go on")
	m.connect()
	short, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	for !m.isPlain() && short.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	m.connect()
	if p := m.come(); !p.Plain {
		t.Errorf("%+v", p)
	}
	m.end()
}

func (m *moving) isPlain() bool {
	is := make(chan bool, 1)
	m.fetcher.do(func() error { is <- m.fetcher.plain; return nil })
	return <-is
}

func limited(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// A task that waits for a page waits for as long as there is no connection, and whatever
// was under way over one that broke is asked for again.
func TestABrokenConnectionIsReplaced(t *testing.T) {
	m := begin(t, "read")
	fmt.Fprintln(m.goOn, "go on")
	for range 8 {
		c := m.connect()
		time.Sleep(5 * time.Millisecond)
		c.Close()
		time.Sleep(5 * time.Millisecond)
	}
	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := m.fetcher.Wait(short); err == nil && m.bytes.Load() < 900*PageSize {
		t.Fatal("it has all, of nobody")
	}
	m.connect()
	m.come()
	m.end()
}

// When the source is gone for good, whoever waits for it can be ended.
func TestATaskThatIsEndedWaitsForNothing(t *testing.T) {
	m := begin(t, "read")
	fmt.Fprintln(m.goOn, "go on")
	while, cancel := context.WithTimeout(t.Context(), 2*lookAfter+lookAfter/2)
	defer cancel()
	if _, err := m.fetcher.Wait(while); err == nil {
		t.Fatal("it has all, of nobody")
	}
	if err := m.restored.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if p := m.come(); p.Fetched != 0 || len(m.keeper.have) > 0 {
		t.Errorf("%+v, and kept are %v", p, m.keeper.have)
	}
}

// And looking whether it is there still puts nothing into its memory.
func TestATaskThatIsLookedForFindsItsMemory(t *testing.T) {
	m := begin(t, "read")
	fmt.Fprintln(m.goOn, "go on")
	time.Sleep(lookAfter + lookAfter/2)
	m.connect()
	m.come()
	m.end()
}

// Whatever comes that was not asked for is not put into anybody's memory.
func TestAnswersToNoQuestion(t *testing.T) {
	m := begin(t, "read")
	fmt.Fprintln(m.goOn, "go on")
	for name, spoil := range map[string]func(*wire.Frame){
		"another task":    func(f *wire.Frame) { f.Stream = 43 },
		"another address": func(f *wire.Frame) { f.Pos += PageSize },
		"less":            func(f *wire.Frame) { f.Payload = f.Payload[:len(f.Payload)-PageSize] },
		"another type":    func(f *wire.Frame) { f.Type = wire.Data },
	} {
		a, b := net.Pipe()
		m.fetcher.Connect(wire.NewConn(a))
		c := wire.NewConn(b)
		var f wire.Frame
		if err := c.Read(&f); err != nil {
			t.Fatal(name, err)
		}
		q, err := parseQuestion(&f)
		if err != nil {
			t.Fatal(name, err)
		}
		answer := wire.Frame{Type: wire.Chunk, Stream: q.pid, Pos: int64(q.from), Payload: bytes.Repeat([]byte{0xee}, int(q.size))}
		spoil(&answer)
		if err := errors.Join(c.Write(&answer), c.Flush()); err != nil {
			t.Fatal(name, err)
		}
		if err := c.Read(&f); err == nil {
			t.Errorf("%s: the connection is still good", name)
		}
	}
	m.connect()
	m.come()
	m.end()
}

func TestQuestionsThatAreNone(t *testing.T) {
	m := &Memory{files: map[uint32]*os.File{}}
	for name, f := range map[string]*wire.Frame{
		"no length":    {Type: wire.Chunk, Pos: PageSize},
		"too long":     question{1, 0, pieceSize + PageSize}.frame(0),
		"half a page":  question{1, 0, 100}.frame(0),
		"off a page":   question{1, 100, PageSize}.frame(0),
		"another type": {Type: wire.Data, Payload: make([]byte, 8)},
		"no such task": question{1, 0, PageSize}.frame(0),
	} {
		a, b := net.Pipe()
		served := make(chan error, 1)
		go func() { served <- m.Serve(wire.NewConn(b), nil, func(int64) {}) }()
		c := wire.NewConn(a)
		go func() { _ = c.Write(f); _ = c.Flush() }()
		if err := <-served; err == nil || !strings.Contains(err.Error(), "lazy: ") && !strings.Contains(err.Error(), "wire: ") {
			t.Errorf("%s: %v", name, err)
		}
		a.Close()
		b.Close()
	}
}

func TestPagemapsThatAreNone(t *testing.T) {
	good := lazytest.Pagemap()
	s, err := parsePagemap(good)
	if err != nil || s.bytes() != (pages-pages/64-31)*PageSize {
		t.Fatal(s.bytes()/PageSize, err)
	}
	for name, b := range map[string][]byte{
		"empty":          {},
		"another image":  append([]byte{1}, good[1:]...),
		"cut off":        good[:len(good)-3],
		"a wrong length": append(slices.Clone(good), 255, 255, 255, 255),
		"twice":          append(slices.Clone(good), good[14:]...),
	} {
		if _, err := parsePagemap(b); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}

func TestSpans(t *testing.T) {
	const p = PageSize
	for name, c := range map[string]struct {
		do   func(*spans)
		want spans
	}{
		"cut in the middle":   {func(s *spans) { s.cut(2*p, 3*p) }, spans{{1 * p, 2 * p, 1 * p}, {3 * p, 5 * p, 3 * p}, {8 * p, 9 * p, 8 * p}}},
		"cut over both":       {func(s *spans) { s.cut(4*p, 20*p) }, spans{{1 * p, 4 * p, 1 * p}}},
		"cut where none is":   {func(s *spans) { s.cut(5*p, 8*p) }, spans{{1 * p, 5 * p, 1 * p}, {8 * p, 9 * p, 8 * p}}},
		"moved away":          {func(s *spans) { s.move(2*p, 20*p, 2*p) }, spans{{1 * p, 2 * p, 1 * p}, {4 * p, 5 * p, 4 * p}, {8 * p, 9 * p, 8 * p}, {20 * p, 22 * p, 2 * p}}},
		"moved onto another":  {func(s *spans) { s.move(1*p, 8*p, 1*p) }, spans{{2 * p, 5 * p, 2 * p}, {8 * p, 9 * p, 1 * p}}},
		"moved down, and cut": {func(s *spans) { s.move(8*p, 0, p); s.cut(0, p) }, spans{{1 * p, 5 * p, 1 * p}}},
	} {
		s := spans{{1 * p, 5 * p, 1 * p}, {8 * p, 9 * p, 8 * p}}
		if c.do(&s); !slices.Equal(s, c.want) {
			t.Errorf("%s: %x and not %x", name, s, c.want)
		}
	}
}
