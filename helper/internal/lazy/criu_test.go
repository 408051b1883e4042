package lazy

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/precopy"
)

// zoo is a program with memory of every kind, in a process with threads and in its forked
// child. It writes a digest of each kind before and after the move, into files.
const zoo = `
import ctypes, hashlib, mmap, os, sys, threading, time
folder = sys.argv[1]
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
for f in (libc.mprotect, libc.madvise, libc.mlock): f.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int][: 2 if f is libc.mlock else 3]
R, W, X, SHARED, PRIVATE, ANON = 1, 2, 4, 1, 2, 32
PAGE = 4096
def region(pages, flags=PRIVATE | ANON, prot=R | W, fd=-1):
    at = libc.mmap(None, pages * PAGE, prot, flags, fd, 0)
    assert at not in (None, 2**64 - 1), ctypes.get_errno()
    return at
def fill(at, first, end, data=None):
    data = data or os.urandom((end - first) * PAGE)
    ctypes.memmove(at + first * PAGE, data, len(data))
kinds = {}
at = region(900); fill(at, 0, 300); fill(at, 400, 700); kinds["private, with holes"] = at, 0, 900
at = region(300); fill(at, 0, 300, bytes(300 * PAGE)); fill(at, 100, 110); kinds["empty"] = at, 0, 300
at = region(300); fill(at, 0, 300, b"x" * 300 * PAGE); kinds["alike"] = at, 0, 300
at = region(200, SHARED | ANON); fill(at, 0, 150); kinds["shared"] = at, 0, 200
with open(folder + "/file", "wb+") as f:
    f.write(os.urandom(100 * PAGE)); f.flush()
    at = region(100, PRIVATE, fd=f.fileno()); fill(at, 10, 20); kinds["of a file"] = at, 0, 100
at = region(50); fill(at, 0, 50); libc.mlock(at, 50 * PAGE) and None; kinds["locked"] = at, 0, 50
at = region(3 * 512); libc.madvise(at, 3 * 512 * PAGE, 14); fill(at, 0, 3 * 512); kinds["huge"] = at, 0, 3 * 512
at = region(60); fill(at, 0, 60); libc.madvise(at + 20 * PAGE, 10 * PAGE, 102); kinds["before a guard"] = at, 0, 20; kinds["behind a guard"] = at, 30, 60
at = region(60); fill(at, 0, 60); libc.mprotect(at, 60 * PAGE, R); kinds["read only"] = at, 0, 60
at = region(60); fill(at, 0, 60); libc.mprotect(at + 20 * PAGE, 20 * PAGE, R | W | X); kinds["with code"] = at, 0, 60
hidden = region(60); fill(hidden, 0, 60); kinds["unreadable"] = hidden, 0, 60
def digests():
    libc.mprotect(hidden, 60 * PAGE, R | W)
    said = "".join("%s: %s\n" % (kind, hashlib.sha256(ctypes.string_at(at + first * PAGE, (end - first) * PAGE)).hexdigest()) for kind, (at, first, end) in kinds.items())
    libc.mprotect(hidden, 60 * PAGE, 0)
    return said
def write(name):
    with open(folder + "/new" + name, "w") as f: f.write(digests())
    os.rename(folder + "/new" + name, folder + "/" + name)
def live(name):
    write("before-" + name)
    while not os.path.exists(folder + "/go"): time.sleep(0.02)
    write("after-" + name)
    while True: time.sleep(1)
for _ in range(8): threading.Thread(target=lambda: time.sleep(1e6), daemon=True).start()
if os.fork() == 0:
    fill(kinds["private, with holes"][0], 50, 60)
    fill(kinds["alike"][0], 5, 6)
    live("child")
live("parent")
`

// criu is the real one, where there is one.
type criu struct {
	t                    *testing.T
	folder, images, work string
	ask, answer          string
}

func (c *criu) start(verb string, files []*os.File, args ...string) *exec.Cmd {
	c.t.Helper()
	p := exec.Command("criu", append([]string{verb, "--images-dir", c.images, "--work-dir", c.work, "--log-file", verb + ".log", "-v4", "--lazy-pages", "--action-script", filepath.Join(c.folder, "script")}, args...)...)
	p.ExtraFiles = files
	if err := p.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { // a script that waits gets its answer, whatever that is worth
		fd, err := unix.Open(c.answer, unix.O_RDWR|unix.O_NONBLOCK, 0)
		if err == nil {
			_, _ = unix.Write(fd, []byte("the end\n"))
			defer unix.Close(fd)
		}
		_ = p.Process.Kill()
		_ = p.Wait()
	})
	return p
}

// held returns when CRIU waits at a step.
func (c *criu) held(step string) {
	c.t.Helper()
	said := make(chan string, 1)
	go func() {
		b, _ := os.ReadFile(c.ask)
		said <- strings.TrimSpace(string(b))
	}()
	select {
	case got := <-said:
		if got != step {
			c.t.Fatalf("CRIU waits at %q", got)
		}
	case <-time.After(60 * time.Second):
		logs, _ := filepath.Glob(filepath.Join(c.work, "*.log"))
		for _, name := range logs {
			b, _ := os.ReadFile(name)
			c.t.Logf("%s: …%s", name, b[max(0, len(b)-3000):])
		}
		c.t.Fatalf("CRIU did not come to %s", step)
	}
}

func (c *criu) goOn() {
	c.t.Helper()
	if err := os.WriteFile(c.answer, []byte("go on\n"), 0); err != nil {
		c.t.Fatal(err)
	}
}

func file(path string) string {
	b, _ := os.ReadFile(path)
	return string(b)
}

func comes(t *testing.T, path string) string {
	t.Helper()
	for range 3000 {
		if text := file(path); text != "" {
			return text
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("%s has not come", path)
	return ""
}

// With the real CRIU memory of every kind is what it was, in every process.
func TestCRIURestoresWhatIsPlaced(t *testing.T) {
	if _, err := exec.LookPath("criu"); err != nil {
		t.Skip("there is no CRIU here")
	}
	s := newStage(t)
	c := &criu{t: t, folder: t.TempDir(), images: s.images, work: s.work}
	c.ask, c.answer = filepath.Join(c.folder, "ask"), filepath.Join(c.folder, "answer")
	script := fmt.Sprintf("#!/bin/sh\ncase $CRTOOLS_SCRIPT_ACTION in post-dump|post-restore) ;; *) exit 0;; esac\necho $CRTOOLS_SCRIPT_ACTION > %s\nread x < %s\n", c.ask, c.answer)
	if err := errors.Join(os.WriteFile(filepath.Join(c.folder, "script"), []byte(script), 0o700), unix.Mkfifo(c.ask, 0o600), unix.Mkfifo(c.answer, 0o600)); err != nil {
		t.Fatal(err)
	}
	animal := exec.Command("python3", "-c", zoo, c.folder)
	animal.SysProcAttr = &unix.SysProcAttr{Setsid: true}
	if err := animal.Start(); err != nil {
		t.Fatal(err)
	}
	parent := animal.Process.Pid
	t.Cleanup(func() { _ = unix.Kill(-parent, unix.SIGKILL); _ = animal.Wait() })
	before := map[string]string{"parent": comes(t, filepath.Join(c.folder, "before-parent")), "child": comes(t, filepath.Join(c.folder, "before-child"))}
	children := strings.Fields(file(fmt.Sprintf("/proc/%d/task/%[1]d/children", parent)))
	if len(children) != 1 {
		t.Fatalf("children: %q", children)
	}
	child, _ := strconv.Atoi(children[0])
	each := func(do func(string) error) error {
		return errors.Join(do(fmt.Sprintf("/proc/%d", parent)), do(fmt.Sprintf("/proc/%d", child)))
	}
	scan := precopy.NewScan()
	err := each(func(proc string) error {
		return scan.Task(proc, func(_ uint64, pages []byte) error { s.ahead(pages); return nil })
	})
	if err != nil {
		t.Fatal(err)
	}

	// The source.
	if err := unix.Kill(-parent, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(pair[1])
	dead := os.NewFile(uintptr(pair[0]), "dead")
	defer dead.Close()
	config := filepath.Join(c.folder, "config")
	if err := os.WriteFile(config, []byte("ps-socket 3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	dump := c.start("dump", []*os.File{dead}, "--tree", strconv.Itoa(parent), "--config", config)
	memory, err := OpenFrozen(s.known, each)
	if err != nil {
		t.Fatal(err)
	}
	var beside, rest, sent int
	count := &beside
	give := func(x Piece) error {
		*count += x.Size
		sent += x.Literals
		return s.plan.Add(x.Task, x.Packed)
	}
	if err := memory.Beside(t.Context(), give); err != nil {
		t.Fatal(err)
	}
	c.held("post-dump")
	count = &rest
	left, err := memory.Rest(t.Context(), s.images, give)
	if err = errors.Join(err, memory.Close()); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d bytes are left in the tasks: %d were looked at beside the dump, %d after it, %d travel", left, beside, rest, sent)
	if beside == 0 || rest == 0 { // the parent has locked memory
		t.Error("not both ways were gone")
	}
	c.goOn()
	_ = dump.Wait()
	for _, pid := range []int{child, parent} {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	_ = animal.Wait()
	for range 500 {
		if unix.Kill(child, 0) != nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}

	// The destination.
	if err := s.placer.Begin(s.plan); err != nil {
		t.Fatal(err)
	}
	restore := c.start("restore", nil, "--restore-detached")
	c.held("post-restore")
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	done, err := s.placer.Placed(ctx)
	if err != nil || done.Bytes != left || done.Tasks != 2 {
		t.Fatalf("%+v of %d: %v", done, left, err)
	}
	t.Logf("%+v", done)
	if err := s.placer.Close(); err != nil { // CRIU has to say its last word still
		t.Fatal(err)
	}
	c.goOn()
	if err := restore.Wait(); err != nil {
		t.Fatalf("%v: …%s", err, file(filepath.Join(c.work, "restore.log")))
	}
	if err := errors.Join(unix.Kill(-parent, unix.SIGCONT), os.WriteFile(filepath.Join(c.folder, "go"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	for name, want := range before {
		if got := comes(t, filepath.Join(c.folder, "after-"+name)); got != want {
			t.Errorf("%s:\n%s\nwas\n%s", name, got, want)
		}
	}
}
