package transport

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// actCarry is what this binary does when it is started with that word and an
// address: it is the far end of a command, and ssh is left out.
const actCarry = "act-carry"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == RunnerWord {
		if err := Run(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if len(os.Args) == 3 && os.Args[1] == actCarry {
		to, err := ParseAddress(os.Args[2])
		if err == nil {
			err = Carry(context.Background(), to)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "carry:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// private is a folder for sockets, with a short path.
func private(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "stream")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func carryTo(t *testing.T, address string) []string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return []string{self, actCarry, address}
}

// children are the processes that this one has, and theirs.
func children(t *testing.T) []string {
	t.Helper()
	var below func(pid string) []string
	below = func(pid string) (pids []string) {
		tasks, err := filepath.Glob("/proc/" + pid + "/task/*/children")
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range tasks {
			text, err := os.ReadFile(path)
			if err != nil {
				continue // the thread has ended
			}
			for _, child := range strings.Fields(string(text)) {
				pids = append(append(pids, child), below(child)...)
			}
		}
		return pids
	}
	return below("self")
}

func TestAddresses(t *testing.T) {
	long := "/" + strings.Repeat("x", longestPath-1)
	for _, good := range []string{"192.0.2.1:7000", "[2001:db8::1]:0", "unix:/run/x.sock", "unix:" + long} {
		a, err := ParseAddress(good)
		if err != nil || a.String() != good {
			t.Errorf("%s: %q, %v", good, a, err)
		}
	}
	for bad, text := range map[string]string{
		"node7":              "IP:PORT is needed, or unix:/PATH",
		"node7:ssh":          `"ssh" is no port`,
		"192.0.2.1:70000":    `"70000" is no port`,
		"unix:x.sock":        "an absolute path without detours is needed",
		"unix:":              "an absolute path without detours is needed",
		"unix:/run/../x":     "an absolute path without detours is needed",
		"unix:" + long + "x": "the path has 108 bytes, and that of a unix socket at most 107: choose a shorter one",
		"unix:/run/\x00":     "a zero byte",
	} {
		_, err := ParseAddress(bad)
		says(t, err, text)
	}
}

// The socket of a session is its owner's alone, replaces only what is stale and ours,
// and is gone afterwards.
func TestListenOnASocket(t *testing.T) {
	dir := private(t)
	a, b := identity(t), identity(t)
	path := filepath.Join(dir, "s")
	address := "unix:" + path
	l, err := Listen(address, a, b.Fingerprint)
	if err != nil {
		t.Fatal(err)
	}
	if got := l.Address(); got != address {
		t.Errorf("it says that it listens on %s", got)
	}
	if info, err := os.Lstat(path); err != nil || info.Mode() != os.ModeSocket|0o600 {
		t.Errorf("%v, %v", info, err)
	}
	_, err = Listen(address, a, b.Fingerprint)
	says(t, err, path+": another process is listening here")
	s := accept(t.Context(), l)
	conn, err := Dial(t.Context(), to(t, address), b, a.Fingerprint())
	if err != nil {
		t.Fatal(err)
	}
	there := <-s
	if there.err != nil {
		t.Fatal(there.err)
	}
	if _, known := conn.(*secured).Backlog(); known || conn.(*secured).HeldUp() != 0 {
		t.Error("nobody knows what lies behind a unix socket")
	}
	conn.Close()
	there.conn.Close()
	l.Close()
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is still there: %v", err)
	}

	stale(t, path)
	RemoveStale(to(t, address))
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a stale one is still there: %v", err)
	}
	stale(t, path)
	if l, err = Listen(address, a, b.Fingerprint); err != nil {
		t.Fatalf("a stale one was not replaced: %v", err)
	}
	RemoveStale(to(t, address))
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("one that is in use was removed: %v", err)
	}
	l.Close()

	if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	RemoveStale(to(t, address))
	_, err = Listen(address, a, b.Fingerprint)
	says(t, err, path+": exists and is no socket")
	if b, err := os.ReadFile(path); err != nil || string(b) != "mine" {
		t.Errorf("what was there: %q, %v", b, err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		stale(t, path)
		if err := os.Lchown(path, 12345, 12345); err != nil {
			t.Fatal(err)
		}
		_, err = Listen(address, a, b.Fingerprint)
		says(t, err, path+": the socket there is another user's")
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	_, err = Listen(address, a, b.Fingerprint)
	says(t, err, dir+": others can reach a socket there (mode 0755): choose a folder of your own with the mode 0700")
	_, err = Listen("unix:"+dir+"/no/s", a, b.Fingerprint)
	says(t, err, "there is no such folder for the socket")
}

// doorway is a listener on a socket, who has an identity pass that both sides have.
type doorway struct {
	*Listener
	id      *Identity
	address string
}

func newDoorway(t *testing.T) doorway {
	t.Helper()
	d := doorway{id: identity(t), address: "unix:" + filepath.Join(private(t), "s")}
	var err error
	if d.Listener, err = Listen(d.address, d.id, d.id.Fingerprint); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// enter makes a connection, and gives both its ends.
func (d doorway) enter(t *testing.T, way Way) (here, there net.Conn) {
	t.Helper()
	s := accept(t.Context(), d.Listener)
	here, err := Dial(t.Context(), way, d.id, d.id.Fingerprint())
	if err != nil {
		t.Fatal(err)
	}
	a := <-s
	if a.err != nil {
		t.Fatal(a.err)
	}
	t.Cleanup(func() { here.Close(); a.conn.Close() })
	return here, a.conn
}

// stale leaves a socket behind as a process does that is killed.
func stale(t *testing.T, path string) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrUnix{Name: path})
		unix.Close(fd)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Whatever carries a connection: it is made between the two who know each other's keys,
// or not at all.
func TestTheKeysCountOnEveryWay(t *testing.T) {
	d, stranger := newDoorway(t), identity(t)
	for name, way := range map[string]Way{"a unix socket": to(t, d.address), "streams": Over(carryTo(t, d.address))} {
		t.Run(name, func(t *testing.T) {
			defer way.Close()
			ctx, cancel := context.WithCancel(t.Context())
			s := accept(ctx, d.Listener)
			_, err := Dial(ctx, way, d.id, stranger.Fingerprint())
			says(t, err, "it is another host, another session, or someone in between")
			c, err := Dial(ctx, way, stranger, d.id.Fingerprint())
			if err != nil {
				t.Fatal(err)
			}
			if n, err := c.Read(make([]byte, 1)); err == nil {
				t.Errorf("a stranger was told %d bytes", n)
			}
			c.Close()
			cancel()
			if there := <-s; there.err == nil {
				t.Error("a stranger was let in")
			}
		})
	}
}

// Several connections share one pair of streams, each whole and in order, and both
// ends are gone afterwards.
func TestConnectionsShareStreams(t *testing.T) {
	before := len(children(t))
	d := newDoorway(t)
	way := Over(carryTo(t, d.address))
	const size = 3<<20 + 17
	var all sync.WaitGroup
	for i := range 5 {
		here, there := d.enter(t, way)
		if n := len(children(t)); n != before+2 { // the command, and what runs it
			t.Errorf("%d processes for %d connections", n-before, i+1)
		}
		go func() { _, _ = io.Copy(there, there) }()
		sent := make([]byte, size)
		_, _ = rand.Read(sent)
		go func() { _, _ = here.Write(sent) }()
		all.Go(func() {
			got := make([]byte, size)
			if _, err := io.ReadFull(here, got); err != nil || !bytes.Equal(got, sent) {
				t.Errorf("what came back is not what was sent: %v", err)
			}
		})
	}
	all.Wait()
	if err := way.Close(); err != nil {
		t.Error(err)
	}
	if n := len(children(t)); n != before {
		t.Errorf("%d processes are left", n-before)
	}
	if _, err := way.Dial(t.Context()); !errors.Is(err, net.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// What was written before a connection and the way were closed arrives, also if
// nobody has read it yet.
func TestTheLastWordArrives(t *testing.T) {
	d := newDoorway(t)
	way := Over(carryTo(t, d.address))
	here, there := d.enter(t, way)
	words := bytes.Repeat([]byte("last word "), 10000)
	if _, err := here.Write(words); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(here.Close(), way.Close()); err != nil {
		t.Error(err)
	}
	got, err := io.ReadAll(there)
	if err != nil || !bytes.Equal(got, words) {
		t.Errorf("%d bytes of %d, %v", len(got), len(words), err)
	}
}

// How a command ends early is what the connection's calls say; the next connection
// has another command.
func TestACommandThatEndsEarly(t *testing.T) {
	d := newDoorway(t)
	fifo := filepath.Join(private(t), "stop")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	// A job of the shell's has no standard input unless it is given one.
	script := `exec 3<&0; "$@" <&3 & exec 3<&- <&-; echo first >&2; echo "the link \033[31mis down" >&2; read stop < "$0"; kill $!; exit 3`
	way := Over(append([]string{"sh", "-c", script, fifo}, carryTo(t, d.address)...))
	defer way.Close()
	for range 2 {
		here, there := d.enter(t, way)
		stop, err := os.OpenFile(fifo, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		stop.Close()
		_, err = here.Read(make([]byte, 1))
		says(t, err, `the command "sh" ended with exit status 3: the link `+"\ufffd"+`[31mis down`)
		_, err = here.Write([]byte("more"))
		says(t, err, `ended with exit status 3`)
		if _, err := there.Read(make([]byte, 1)); err == nil {
			t.Error("the other side does not notice")
		}
	}
}

// Commands that are no way to the other side: one sentence each, and no process left.
func TestCommandsThatLeadNowhere(t *testing.T) {
	id := identity(t)
	nobody := filepath.Join(private(t), "s")
	for name, c := range map[string]struct {
		argv []string
		text string
	}{
		"does not exist":       {[]string{"/no/such/program"}, `the command "/no/such/program" could not be started`},
		"fails":                {[]string{"sh", "-c", "echo Permission denied >&2; exit 255"}, `the command "sh" ended with exit status 255: Permission denied`},
		"prints something":     {[]string{"sh", "-c", "echo Welcome; sleep 60"}, `it began with "Welcome\n": does the login there print something`},
		"prints, and fails":    {[]string{"sh", "-c", "echo Welcome; echo pcopy: not found >&2; exit 127"}, `the command "sh" ended with exit status 127: pcopy: not found`},
		"ends":                 {[]string{"true"}, `the command "true"`},
		"says nothing":         {[]string{"sleep", "60"}, `the command "sleep" has not come to the other side in time`},
		"says nothing more":    {[]string{"sh", "-c", "printf 'pcopy stream 1\\n'; exec cat > /dev/null"}, "context deadline exceeded"},
		"goes on with rubbish": {[]string{"sh", "-c", "printf 'pcopy stream 1\\n'; yes"}, `the command "sh": what came is nothing that ` + "`pcopy stream` says"},
		"finds nobody":         {carryTo(t, "unix:"+nobody), "no such file or directory: the session there has ended, or was never begun"},
	} {
		t.Run(name, func(t *testing.T) {
			before := len(children(t))
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			if strings.HasPrefix(name, "says nothing") {
				cancel()
				ctx, cancel = context.WithTimeout(t.Context(), 300*time.Millisecond)
			}
			defer cancel()
			way := Over(c.argv)
			_, err := Dial(ctx, way, id, id.Fingerprint())
			says(t, err, c.text)
			if err := way.Close(); err != nil && !strings.Contains(err.Error(), "had to be stopped") {
				t.Error(err)
			}
			if n := len(children(t)); n != before {
				t.Errorf("%d processes are left", n-before)
			}
		})
	}
}

// A command that takes nothing any more holds up nobody who has given it a limit.
func TestACommandThatTakesNothing(t *testing.T) {
	d := newDoorway(t)
	way := Over(carryTo(t, d.address))
	defer way.Close()
	c, _ := d.enter(t, way)
	pid := way.trunk.child.pid
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Kill(pid, unix.SIGCONT) }()
	written := make(chan error, 1)
	go func() {
		_, err := c.Write(make([]byte, 4<<20))
		written <- err
	}()
	time.Sleep(100 * time.Millisecond) // it is stuck now; if it is not yet, it will be
	if err := c.SetDeadline(time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	says(t, <-written, "takes nothing any more")
	c.Close()
}

// Whoever is at the other end of the far end's streams costs it itself, and nothing
// of what it says comes to the session but what belongs to a connection.
func TestHostileStreams(t *testing.T) {
	frame := func(kind byte, flags uint16, stream, length uint32) []byte {
		b := make([]byte, 12)
		b[1] = kind
		binary.BigEndian.PutUint16(b[2:], flags)
		binary.BigEndian.PutUint32(b[4:], stream)
		binary.BigEndian.PutUint32(b[8:], length)
		return b
	}
	const syn, fin = 1, 4
	many := []byte(greeting)
	for i := range uint32(carriedAtOnce + 2) {
		many = append(many, frame(1, syn, 2*i+1, 0)...)
	}
	after := func(frames ...[]byte) []byte { return append([]byte(greeting), bytes.Join(frames, nil)...) }
	for name, c := range map[string]struct {
		says []byte
		text string
	}{
		"no greeting":                {[]byte("GET / HTTP/1.1\r\n\r\n"), "what came is nothing that `pcopy stream` says: it began with \"GET / HTTP/1.1"},
		"another version":            {[]byte("pcopy stream 2\n"), "nothing that `pcopy stream` says"},
		"half a greeting":            {[]byte("pcopy"), "EOF"},
		"no frames":                  {after(bytes.Repeat([]byte("rm -rf /"), 1000)), "invalid protocol version"},
		"a kind that there is not":   {after(frame(77, 0, 1, 0)), "invalid msg type"},
		"more than the window":       {after(frame(0, syn, 1, 1<<31)), "window"},
		"a connection twice":         {after(frame(1, syn, 1, 0), frame(1, syn, 1, 0)), "duplicate"},
		"more connections than some": {many, "more than 32 connections"},
		"an end before a beginning":  {after(frame(1, fin, 9, 0)), ""},
		"half a frame":               {after(frame(0, syn, 1, 4096), []byte("half")), ""},
		"nothing":                    {after(), ""},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDoorway(t)
			argv := carryTo(t, d.address)
			p := exec.Command(argv[0], argv[1:]...)
			in, err := p.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			var out, stderr bytes.Buffer
			p.Stdout, p.Stderr = &out, &stderr
			if err := p.Start(); err != nil {
				t.Fatal(err)
			}
			_, _ = in.Write(c.says) // it may not want to hear all of it
			if c.text == "" || c.text == "EOF" {
				in.Close() // else it has to end by itself
			}
			err = p.Wait()
			if (c.text == "") != (err == nil) && name != "half a frame" || !strings.Contains(stderr.String(), c.text) {
				t.Errorf("%v: %s; should say %q", err, stderr.String(), c.text)
			}
			if !strings.HasPrefix(out.String(), greeting) {
				t.Errorf("it said %q", out.String())
			}
			d.enter(t, to(t, d.address)) // it is where it was
		})
	}
}
