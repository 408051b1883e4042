package network

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// segment is two network namespaces on one wire: a workload's, and a client's.
type segment struct {
	t                *testing.T
	workload, client string
	mac              net.HardwareAddr
}

// The workload's addresses.
var (
	address4 = netip.MustParseAddr("192.0.2.10")
	address6 = netip.MustParseAddr("2001:db8::10")
)

var segments atomic.Int32

func newSegment(t *testing.T) *segment {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root: network namespaces")
	}
	n := fmt.Sprintf("%d-%d", os.Getpid(), segments.Add(1))
	workload, client := "handover-w"+n, "handover-c"+n
	ip := func(words ...string) {
		t.Helper()
		if out, err := exec.Command("ip", words...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v: %s", strings.Join(words, " "), err, out)
		}
	}
	for _, name := range []string{workload, client} {
		ip("netns", "add", name)
		t.Cleanup(func() { _ = exec.Command("ip", "netns", "delete", name).Run() })
		ip("-n", name, "link", "set", "lo", "up")
	}
	ip("-n", workload, "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", client)
	for name, host := range map[string]string{workload: "10", client: "1"} {
		ip("-n", name, "address", "add", "192.0.2."+host+"/24", "dev", "eth0")
		ip("-n", name, "address", "add", "2001:db8::"+host+"/64", "dev", "eth0", "nodad")
		ip("-n", name, "link", "set", "eth0", "up")
	}
	s := &segment{t: t, workload: "/run/netns/" + workload, client: "/run/netns/" + client}
	for _, path := range []string{s.client, s.workload} {
		s.in(path, func() error {
			i, err := net.InterfaceByName("eth0")
			if err != nil {
				return err
			}
			s.mac = i.HardwareAddr
			// The kernel adds the link's own address some time after the link has come up.
			for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
				if addresses, err := i.Addrs(); err != nil || len(addresses) == 3 {
					return err
				}
			}
			return errors.New("the link does not come up")
		})
	}
	return s
}

// in runs f in a namespace, and fails the test with its error.
func (s *segment) in(path string, f func() error) {
	s.t.Helper()
	if err := Inside(path, f); err != nil {
		s.t.Fatal(err)
	}
}

// echo answers every line with itself, at a port of the workload.
func (s *segment) echo(address netip.Addr) (port int) {
	s.in(s.workload, func() error {
		l, err := net.Listen("tcp", net.JoinHostPort(address.String(), "0"))
		if err != nil {
			return err
		}
		s.t.Cleanup(func() { l.Close() })
		port = l.Addr().(*net.TCPAddr).Port
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go func() { _, _ = io.Copy(c, c); c.Close() }()
			}
		}()
		return nil
	})
	return port
}

func (s *segment) dial(address netip.Addr, port int, limit time.Duration) (c net.Conn, err error) {
	e := Inside(s.client, func() error {
		d := net.Dialer{Timeout: limit}
		c, err = d.Dial("tcp", net.JoinHostPort(address.String(), fmt.Sprint(port)))
		return nil
	})
	if e != nil {
		s.t.Fatal(e)
	}
	if c != nil {
		s.t.Cleanup(func() { c.Close() })
	}
	return c, err
}

// says sends a line and waits for it to come back.
func says(c net.Conn, limit time.Duration) error {
	_ = c.SetDeadline(time.Now().Add(limit))
	if _, err := fmt.Fprintln(c, "hello"); err != nil {
		return err
	}
	_, err := bufio.NewReader(c).ReadString('\n')
	return err
}

// ear hears the frames that the workload sends.
type ear struct {
	fd  int
	mac net.HardwareAddr
}

func (s *segment) listen() *ear {
	e := &ear{mac: s.mac}
	s.in(s.client, func() (err error) {
		e.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK, int(htons(unix.ETH_P_ALL)))
		return err
	})
	s.t.Cleanup(func() { unix.Close(e.fd) })
	return e
}

func htons(n uint16) uint16 { return n<<8 | n>>8 }

// heard returns the workload's frames since the last time.
func (e *ear) heard() (frames [][]byte) {
	b := make([]byte, 2048)
	for {
		n, _, err := unix.Recvfrom(e.fd, b, 0)
		if err != nil {
			return frames
		}
		if string(b[6:12]) == string(e.mac) {
			frames = append(frames, append([]byte{}, b[:n]...))
		}
	}
}

func each(t *testing.T, f func(t *testing.T, address netip.Addr)) {
	for _, a := range []netip.Addr{address4, address6} {
		t.Run(a.String(), func(t *testing.T) { f(t, a) })
	}
}

func TestASilentNamespaceIsNotHeard(t *testing.T) {
	each(t, func(t *testing.T, address netip.Addr) {
		s := newSegment(t)
		port := s.echo(address)
		c, err := s.dial(address, port, 5*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if err := says(c, 5*time.Second); err != nil {
			t.Fatal(err)
		}
		if err := Silence(s.workload); err != nil {
			t.Fatal(err)
		}
		if silent, err := Silent(s.workload); !silent || err != nil {
			t.Fatalf("%v, %v", silent, err)
		}
		e := s.listen()
		// What would be answered with data, with a reset, and with an ARP reply
		// or a neighbour advertisement.
		if err := says(c, 300*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a segment on the connection: %v", err)
		}
		if _, err := s.dial(address, port+1, 300*time.Millisecond); err == nil || !isTimeout(err) {
			t.Errorf("a connection to a port on which nobody listens: %v", err)
		}
		if out, err := exec.Command("ip", "-n", filepath.Base(s.client), "neigh", "flush", "dev", "eth0").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		_, _ = s.dial(address, port, 300*time.Millisecond)
		if frames := e.heard(); len(frames) > 0 {
			t.Errorf("%d frames were heard, the first: % x", len(frames), frames[0])
		}
		if err := Open(s.workload); err != nil {
			t.Fatal(err)
		}
		if silent, err := Silent(s.workload); silent || err != nil {
			t.Fatalf("%v, %v", silent, err)
		}
		if err := says(c, 10*time.Second); err != nil {
			t.Errorf("the connection did not live on: %v", err)
		}
		if err := Open(s.workload); err != nil {
			t.Errorf("a second time: %v", err)
		}
	})
}

func isTimeout(err error) bool {
	var n net.Error
	return errors.As(err, &n) && n.Timeout()
}

func TestAGuardGoesWithItsProcess(t *testing.T) {
	each(t, func(t *testing.T, address netip.Addr) {
		s := newSegment(t)
		port := s.echo(address)
		g, err := NewGuard(s.workload)
		if err != nil {
			t.Fatal(err)
		}
		defer g.Close()
		c, err := s.dial(address, port, 5*time.Second)
		if err != nil {
			t.Fatalf("a guard alone is in the way: %v", err)
		}
		if err := g.TurnAway(); err != nil {
			t.Fatal(err)
		}
		if err := says(c, 5*time.Second); err != nil {
			t.Errorf("a connection that stands: %v", err)
		}
		if _, err := s.dial(address, port, 300*time.Millisecond); !isTimeout(err) {
			t.Errorf("a new connection: %v", err)
		}
		if err := g.Silence(); err != nil {
			t.Fatal(err)
		}
		if err := says(c, 300*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a segment on the connection: %v", err)
		}
		// Nobody else can lift it by mistake.
		if err := Open(s.workload); err == nil {
			t.Error("another lifted the silence")
		}
		// As a kill would: the kernel closes the process's sockets.
		g.Close()
		if err := says(c, 10*time.Second); err != nil {
			t.Errorf("the connection did not live on: %v", err)
		}
		g.Close()
		(*Guard)(nil).Close()
	})
}

func TestAnnounce(t *testing.T) {
	s := newSegment(t)
	if err := Silence(s.workload); err != nil {
		t.Fatal(err)
	}
	e := s.listen()
	if err := Announce(s.workload); err != nil {
		t.Fatal(err)
	}
	// On a busy machine frames take their time; what is wrong among them comes with the others.
	var frames [][]byte
	for end := time.Now().Add(5 * time.Second); len(frames) < 3 && time.Now().Before(end); {
		time.Sleep(20 * time.Millisecond)
		frames = append(frames, e.heard()...)
	}
	heard := map[netip.Addr]bool{}
	for _, f := range frames {
		switch binary.BigEndian.Uint16(f[12:]) {
		case etherARP:
			sender, target := netip.AddrFrom4([4]byte(f[28:32])), netip.AddrFrom4([4]byte(f[38:42]))
			heard[sender] = sender == target && string(f[22:28]) == string(s.mac) && f[0] == 0xff
		case etherIPv6:
			target := netip.AddrFrom16([16]byte(f[62:78]))
			heard[target] = f[54] == 136 && string(f[80:86]) == string(s.mac) && f[0] == 0x33
		}
	}
	// The third is the link-local address.
	if !heard[address4] || !heard[address6] || len(heard) != 3 {
		t.Errorf("heard: %v", heard)
	}
	for a, well := range heard {
		if !well {
			t.Errorf("the announcement of %s is wrong", a)
		}
	}
}

// The kernel believes an advertisement only if its checksum and form are right.
func TestTheKernelBelievesAnAnnouncement(t *testing.T) {
	each(t, func(t *testing.T, address netip.Addr) {
		s := newSegment(t)
		client := filepath.Base(s.client)
		if out, err := exec.Command("ip", "-n", client, "neigh", "replace", address.String(), "lladdr", "02:00:00:00:00:99", "dev", "eth0", "nud", "stale").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		var said []byte
		for range 200 {
			// Again and again: an interface that has just come up hears nothing yet.
			if err := Announce(s.workload); err != nil {
				t.Fatal(err)
			}
			said, _ = exec.Command("ip", "-n", client, "neigh", "show", address.String(), "dev", "eth0").CombinedOutput()
			if strings.Contains(string(said), s.mac.String()) {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Errorf("%s is not %s: %s", address, s.mac, said)
	})
}

func TestSettled(t *testing.T) {
	s := newSegment(t)
	if u, err := Settled(s.workload); err != nil || u != (Unsettled{}) {
		t.Fatalf("%+v, %v", u, err)
	}
	// A listener that accepts nothing.
	var listener int
	var port int
	s.in(s.workload, func() (err error) {
		if listener, err = unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		if err := errors.Join(unix.Bind(listener, &unix.SockaddrInet6{}), unix.Listen(listener, 8)); err != nil {
			return err
		}
		name, err := unix.Getsockname(listener)
		port = name.(*unix.SockaddrInet6).Port
		return err
	})
	defer unix.Close(listener)
	backlog := []string{fmt.Sprintf("port %d has 1 connection waiting", port), fmt.Sprintf("port %d has 2 connections waiting", port)}
	for i, a := range []netip.Addr{address4, address6} {
		if _, err := s.dial(a, port, 5*time.Second); err != nil {
			t.Fatal(err)
		}
		if u, err := Settled(s.workload); err != nil || u != (Unsettled{Waiting: i + 1, Backlog: backlog[i]}) {
			t.Errorf("after %d connections: %+v, %v", i+1, u, err)
		}
	}
	closing := func(want int) {
		t.Helper()
		r, err := NewReader()
		if errors.Is(err, errNoBTF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		if _, n, err := r.Read(s.workload); err != nil || n != want {
			t.Errorf("the program finds %d that are being closed (%v), and not %d", n, err, want)
		}
	}
	closing(0)
	// One that is accepted and closed while what it sent cannot leave.
	fd, _, err := unix.Accept(listener)
	if err != nil {
		t.Fatal(err)
	}
	g, err := NewGuard(s.workload)
	if err == nil {
		err = g.Silence()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	if _, err := unix.Write(fd, []byte("the last words")); err != nil {
		t.Fatal(err)
	}
	unix.Close(fd)
	closing(1)
	if u, err := Settled(s.workload); err != nil || u != (Unsettled{Waiting: 1, Closing: 1, Backlog: backlog[0]}) {
		t.Errorf("after a close: %+v, %v", u, err)
	}
	g.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for {
		u, err := Settled(s.workload)
		if err != nil {
			t.Fatal(err)
		}
		if u.Closing == 0 {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("it is not drained: %+v", u)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func TestAHandshakeUnderWayIsSeen(t *testing.T) {
	var u Unsettled
	u.add("  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n" +
		"   0: 0A00020F:1538 0200020F:8AE2 03 00000000:00000000 01:00000064 00000000     0        0 0 1 0000000000000000\n" +
		"   1: 0A00020F:1538 0200020F:8AE4 06 00000000:00000000 03:00001770 00000000     0        0 0 3 0000000000000000\n" +
		"   2: 0A00020F:1538 0200020F:8AE6 01 00000010:00000000 01:00000014 00000000   101        0 31415 1 0000000000000000\n")
	if u != (Unsettled{Opening: 1}) {
		t.Errorf("%+v", u)
	}
}

func TestSkipDetection(t *testing.T) {
	s := newSegment(t)
	if err := SkipDetection(s.workload); err != nil {
		t.Fatal(err)
	}
	name := filepath.Base(s.workload)
	for _, words := range [][]string{
		{"link", "add", "late0", "type", "bridge"},
		{"link", "set", "late0", "up"},
		{"address", "add", "2001:db8:1::10/64", "dev", "late0"},
	} {
		if out, err := exec.Command("ip", append([]string{"-n", name}, words...)...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	s.in(s.workload, func() error {
		if how, err := os.ReadFile("/proc/sys/net/ipv6/conf/late0/accept_dad"); err != nil || string(how) != "0\n" {
			t.Errorf("the new interface looks for duplicates: %q, %v", how, err)
		}
		return nil
	})
	// The kernel leaves even that to somebody who may have other work.
	until(t, "the address can be used", func() bool {
		out, err := exec.Command("ip", "-n", name, "-6", "address", "show", "dev", "late0").CombinedOutput()
		return err == nil && !strings.Contains(string(out), "tentative") && strings.Contains(string(out), "2001:db8:1::10")
	})
}

func TestNoSuchNamespace(t *testing.T) {
	const nowhere = "/run/netns/nowhere"
	_, guard := NewGuard(nowhere)
	_, settled := Settled(nowhere)
	for what, err := range map[string]error{
		"silence": Silence(nowhere), "open": Open(nowhere), "announce": Announce(nowhere), "guard": guard, "settled": settled,
	} {
		if !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "network: the workload's namespace") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestProbe(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: network namespaces")
	}
	if err := Probe(); err != nil {
		t.Error(err)
	}
}
