package transport

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func says(t *testing.T, err error, text string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("%v; should say %q", err, text)
	}
}

func identity(t *testing.T) *Identity {
	t.Helper()
	id, err := NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func listen(t *testing.T, id *Identity, peer string) *Listener {
	t.Helper()
	l, err := Listen("127.0.0.1:0", id, func() string { return peer })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// to is the way to an address.
func to(t *testing.T, address string) Address {
	t.Helper()
	a, err := ParseAddress(address)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

type accepted struct {
	conn net.Conn
	err  error
}

func accept(ctx context.Context, l *Listener) <-chan accepted {
	c := make(chan accepted, 1)
	go func() {
		conn, err := l.Accept(ctx)
		c <- accepted{conn, err}
	}()
	return c
}

// pair makes both ends of a connection between two identities.
func pair(t *testing.T) (server, client net.Conn) {
	t.Helper()
	a, b := identity(t), identity(t)
	l := listen(t, a, b.Fingerprint())
	got := accept(t.Context(), l)
	client, err := Dial(t.Context(), to(t, l.Address()), b, a.Fingerprint())
	if err != nil {
		t.Fatal(err)
	}
	s := <-got
	if s.err != nil {
		t.Fatal(s.err)
	}
	t.Cleanup(func() { s.conn.Close(); client.Close() })
	return s.conn, client
}

func TestPinnedConnection(t *testing.T) {
	server, client := pair(t)
	for _, ends := range [][2]net.Conn{{server, client}, {client, server}} {
		go ends[0].Write([]byte("hello")) //nolint:errcheck // the reader below sees it
		b := make([]byte, 5)
		if _, err := io.ReadFull(ends[1], b); err != nil || string(b) != "hello" {
			t.Error(err, string(b))
		}
	}
	for _, end := range []net.Conn{server, client} {
		state := end.(*secured).ConnectionState()
		if state.Version != tls.VersionTLS13 || state.DidResume || len(state.PeerCertificates) != 1 {
			t.Errorf("%+v", state)
		}
		raw, err := end.(*secured).NetConn().(syscall.Conn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		var timeout, nodelay, keep int
		if err := raw.Control(func(fd uintptr) {
			timeout, _ = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT)
			nodelay, _ = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NODELAY)
			keep, _ = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_KEEPALIVE)
		}); err != nil || timeout != 30000 || nodelay != 1 || keep != 1 {
			t.Error(err, timeout, nodelay, keep)
		}
	}
	client.Close()
	if _, err := server.Read(make([]byte, 1)); err != io.EOF {
		t.Error(err)
	}
}

// Whoever is not the right one is dropped, and the right one comes through all
// the same, also while a silent stranger holds a place.
func TestWrongPeers(t *testing.T) {
	a, b, stranger := identity(t), identity(t), identity(t)
	l := listen(t, a, b.Fingerprint())
	var mu sync.Mutex
	var rejected []error
	l.OnReject = func(_ net.Addr, why error) {
		mu.Lock()
		defer mu.Unlock()
		rejected = append(rejected, why)
	}
	got := accept(t.Context(), l)
	addr := l.Address()

	silent, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()

	conn, err := Dial(t.Context(), to(t, addr), stranger, a.Fingerprint())
	if err == nil { // a client of TLS 1.3 may be done before it is looked at
		_, err = conn.Read(make([]byte, 1))
		conn.Close()
	}
	if err == nil || err == io.EOF {
		t.Error("a stranger was let in:", err)
	}
	for what, talk := range map[string]func(net.Conn){
		"noise": func(c net.Conn) { c.Write([]byte("GET / HTTP/1.0\r\n\r\n")) }, //nolint:errcheck
		"TLS 1.2": func(c net.Conn) {
			tls.Client(c, &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12}).Handshake()
		}, //nolint:errcheck
		"no certificate": func(c net.Conn) {
			tc := tls.Client(c, &tls.Config{InsecureSkipVerify: true})
			if tc.Handshake() == nil {
				tc.Read(make([]byte, 1)) //nolint:errcheck
			}
		},
	} {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(what, err)
		}
		talk(c)
		io.Copy(io.Discard, c) //nolint:errcheck // until it is dropped
		c.Close()
	}
	// We do not talk to a stranger either.
	_, err = Dial(t.Context(), to(t, addr), b, stranger.Fingerprint())
	says(t, err, "the other side shows the key "+a.Fingerprint()+", and this session's is "+stranger.Fingerprint())
	var pe *PeerError
	if !errors.As(err, &pe) || pe.Got != a.Fingerprint() {
		t.Error(pe)
	}

	right, err := Dial(t.Context(), to(t, addr), b, a.Fingerprint())
	if err != nil {
		t.Fatal(err)
	}
	defer right.Close()
	s := <-got
	if s.err != nil {
		t.Fatal(s.err)
	}
	defer s.conn.Close()
	go right.Write([]byte{7}) //nolint:errcheck
	one := make([]byte, 1)
	if _, err := s.conn.Read(one); err != nil || one[0] != 7 {
		t.Error(err, one)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(rejected) < 4 {
		t.Errorf("%d were rejected: %v", len(rejected), rejected)
	}
	found := false
	for _, why := range rejected {
		found = found || errors.As(why, &pe) && pe.Got == stranger.Fingerprint()
	}
	if !found {
		t.Errorf("the stranger's key is in none of %v", rejected)
	}
}

// The fingerprint may become known only while the listener waits already.
func TestPeerIsNamedLater(t *testing.T) {
	a, b := identity(t), identity(t)
	var mu sync.Mutex
	peer := ""
	l, err := Listen("127.0.0.1:0", a, func() string { mu.Lock(); defer mu.Unlock(); return peer })
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	turnedAway := make(chan error, 1)
	l.OnReject = func(_ net.Addr, why error) { turnedAway <- why }
	got := accept(t.Context(), l)
	if early, err := Dial(t.Context(), to(t, l.Address()), b, a.Fingerprint()); err == nil {
		defer early.Close()
	}
	says(t, <-turnedAway, `"" is no fingerprint`)
	mu.Lock()
	peer = b.Fingerprint()
	mu.Unlock()
	conn, err := Dial(t.Context(), to(t, l.Address()), b, a.Fingerprint())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	s := <-got
	if s.err != nil {
		t.Fatal(s.err)
	}
	s.conn.Close()
}

func TestHandshakeTimeout(t *testing.T) {
	l := listen(t, identity(t), identity(t).Fingerprint())
	l.timeout = 20 * time.Millisecond
	why := make(chan error, 1)
	l.OnReject = func(_ net.Addr, err error) { why <- err }
	ctx, cancel := context.WithCancel(t.Context())
	got := accept(ctx, l)
	c, err := net.Dial("tcp", l.Address())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("a silent peer was answered")
	}
	if err := <-why; !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	cancel()
	if s := <-got; !errors.Is(s.err, context.Canceled) {
		t.Error(s.err)
	}
}

func TestAcceptEnds(t *testing.T) {
	b := identity(t)
	a := identity(t)
	l := listen(t, a, b.Fingerprint())
	ctx, cancel := context.WithCancelCause(t.Context())
	got := accept(ctx, l)
	cancel(errors.New("the session was given up"))
	s := <-got
	says(t, s.err, "waiting for the other side on "+l.Address()+": the session was given up")

	// It can be used again afterwards.
	got = accept(t.Context(), l)
	conn, err := Dial(t.Context(), to(t, l.Address()), b, a.Fingerprint())
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	if s := <-got; s.err != nil {
		t.Fatal(s.err)
	} else {
		s.conn.Close()
	}

	got = accept(t.Context(), l)
	l.Close()
	if s := <-got; !errors.Is(s.err, net.ErrClosed) {
		t.Error(s.err)
	}
	_, err = Dial(t.Context(), to(t, l.Address()), b, a.Fingerprint())
	says(t, err, "transport: connecting to "+l.Address()+": ")
	_, err = Dial(t.Context(), to(t, l.Address()), b, "sha256:1234")
	says(t, err, `"sha256:1234" is no fingerprint`)
	_, err = Listen("192.0.2.1:7000", a, nil)
	says(t, err, "transport: listening on 192.0.2.1:7000: ")
}

func TestSaveAndLoad(t *testing.T) {
	dir := t.TempDir()
	id := identity(t)
	if err := CheckFingerprint(id.Fingerprint()); err != nil {
		t.Error(err)
	}
	if err := id.Save(dir); err != nil {
		t.Fatal(err)
	}
	key := filepath.Join(dir, keyFile)
	for _, f := range []string{key, filepath.Join(dir, certFile)} {
		if info, err := os.Stat(f); err != nil || info.Mode().Perm() != 0o600 {
			t.Error(f, info.Mode(), err)
		}
	}
	says(t, id.Save(dir), "file exists")
	back, err := Load(dir)
	if err != nil || back.Fingerprint() != id.Fingerprint() {
		t.Fatal(err)
	}
	if err := os.Chmod(key, 0o640); err != nil {
		t.Fatal(err)
	}
	_, err = Load(dir)
	says(t, err, key+": mode 0640 lets others read the key: remove it and make a new one")
	if err := os.Chmod(key, 0o600); err != nil {
		t.Fatal(err)
	}
	other := t.TempDir()
	if err := identity(t).Save(other); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(other, certFile))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, certFile), b, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = Load(dir)
	says(t, err, "the key and the certificate are no pair")
	_, err = Load(t.TempDir())
	says(t, err, "no such file or directory")
}

func TestUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := ListenUnix(path)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Error(info.Mode(), err)
	}
	_, err = ListenUnix(path)
	says(t, err, path+": another process is listening here")
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			io.Copy(c, c) //nolint:errcheck
			c.Close()
		}
	}()
	c, err := DialUnix(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	c.Write([]byte("x")) //nolint:errcheck
	if b := make([]byte, 1); true {
		if _, err := io.ReadFull(c, b); err != nil || b[0] != 'x' {
			t.Error(err)
		}
	}
	c.Close()
	// One that was left behind.
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	l.Close()
	if _, err := os.Lstat(path); err != nil {
		t.Fatal(err)
	}
	_, err = DialUnix(t.Context(), path)
	says(t, err, "connection refused")
	again, err := ListenUnix(path)
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = ListenUnix(file)
	says(t, err, file+": exists and is no socket: remove it or choose another path")
	if b, err := os.ReadFile(file); err != nil || string(b) != "precious" {
		t.Error("the file was touched:", err)
	}
}

func TestCommand(t *testing.T) {
	c, err := Command([]string{"cat"})
	if err != nil {
		t.Fatal(err)
	}
	content := bytes.Repeat([]byte("through a child "), 100_000)
	go c.Write(content) //nolint:errcheck // the reader sees it
	b := make([]byte, len(content))
	if _, err := io.ReadFull(c, b); err != nil || !bytes.Equal(b, content) {
		t.Fatal(err)
	}
	for range 2 {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	_, err = Command(nil)
	says(t, err, "no command was given")
	_, err = Command([]string{"/no/such/program"})
	says(t, err, `the command "/no/such/program" could not be started`)
}

func TestCommandThatFails(t *testing.T) {
	const text = `transport: the command "sh" ended with exit status 3: no way in`
	argv := []string{"sh", "-c", "echo first >&2; echo no way in >&2; exit 3"}
	c, err := Command(argv)
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Read(make([]byte, 1))
	says(t, err, text)
	for range 2 { // it is never lost
		says(t, c.Close(), text)
	}
	if c, err = Command(argv); err != nil {
		t.Fatal(err)
	}
	big := make([]byte, 1<<20)
	for err == nil {
		_, err = c.Write(big)
	}
	says(t, err, text)
	says(t, c.Close(), text)
	if c, err = Command(argv); err != nil {
		t.Fatal(err)
	}
	says(t, c.Close(), text)
}

// A child that will not end is asked to, and then made to.
func TestCommandThatStays(t *testing.T) {
	for name, script := range map[string]string{
		"asked":  "exec sleep 1000",
		"killed": `trap "" TERM; while :; do sleep 0.01; done`,
	} {
		c, err := Command([]string{"sh", "-c", "echo ready; " + script})
		if err != nil {
			t.Fatal(err)
		}
		c.(*child).grace = 200 * time.Millisecond
		if _, err := io.ReadFull(c, make([]byte, 6)); err != nil {
			t.Fatal(err)
		}
		if err := c.Close(); err == nil || !strings.Contains(err.Error(), "did not end when its input was closed and had to be stopped") {
			t.Errorf("%s: %v", name, err)
		}
		select {
		case <-c.(*child).done:
		default:
			t.Errorf("%s: the child is still there", name)
		}
	}
}

func TestDeadlinesOfACommand(t *testing.T) {
	c, err := Command([]string{"sleep", "1000"})
	if err != nil {
		t.Fatal(err)
	}
	c.(*child).grace = time.Millisecond
	ended := make(chan error, 1)
	go func() {
		_, err := c.Read(make([]byte, 1))
		ended <- err
	}()
	if err := c.(interface{ SetDeadline(time.Time) error }).SetDeadline(time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error(err)
	}
	c.Close()
}

func TestStdio(t *testing.T) {
	inR, inW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	// As a process gets them: they block.
	for _, f := range []*os.File{inR, outW} {
		if err := unix.SetNonblock(int(f.Fd()), false); err != nil {
			t.Fatal(err)
		}
	}
	s, err := newStdio(inR, outW)
	if err != nil {
		t.Fatal(err)
	}
	go inW.Write([]byte("in")) //nolint:errcheck
	b := make([]byte, 2)
	if _, err := io.ReadFull(s, b); err != nil || string(b) != "in" {
		t.Error(err, string(b))
	}
	go s.Write([]byte("ou")) //nolint:errcheck
	if _, err := io.ReadFull(outR, b); err != nil || string(b) != "ou" {
		t.Error(err, string(b))
	}
	ended := make(chan error, 1)
	go func() {
		_, err := s.Read(b)
		ended <- err
	}()
	if err := s.SetDeadline(time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("a read that waits is not ended by a deadline:", err)
	}
	for range 2 {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	for _, f := range []*os.File{inR, outW} {
		flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0)
		if err != nil || flags&unix.O_NONBLOCK != 0 {
			t.Error("the stream was left not blocking:", err)
		}
		f.Close()
	}
	inW.Close()
	outR.Close()
}
