package network

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// reader is one, where the kernel allows it.
func reader(t *testing.T) *Reader {
	t.Helper()
	r, err := NewReader()
	if errors.Is(err, errNoBTF) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

func TestConnectionsAreReadAsTheyAre(t *testing.T) {
	for _, address := range []netip.Addr{address4, address6} {
		t.Run(address.String(), func(t *testing.T) {
			s := newSegment(t)
			r := reader(t)
			if found, _, err := r.Read(s.workload); err != nil || len(found) != 0 {
				t.Fatalf("without any: %v, %v", found, err)
			}
			c, err := s.dial(address, s.echo(address), 10*time.Second)
			if err != nil {
				t.Fatal(err)
			}
			if err := says(c, 10*time.Second); err != nil {
				t.Fatal(err)
			}
			here, _, err := r.Read(s.workload)
			if err != nil || len(here) != 1 {
				t.Fatalf("of the workload: %v, %v", here, err)
			}
			there, _, err := r.Read(s.client)
			if err != nil || len(there) != 1 {
				t.Fatalf("of the client: %v, %v", there, err)
			}
			w, cl := here[0], there[0]
			if w.Local.String() != c.RemoteAddr().String() || w.Remote.String() != c.LocalAddr().String() || cl.Local != w.Remote || cl.Remote != w.Local {
				t.Errorf("%v and %v of a connection from %v to %v", w, cl, c.LocalAddr(), c.RemoteAddr())
			}
			if w.Sent != cl.Heard || w.Heard != cl.Sent || w.Sent == 0 || w.Heard == 0 {
				t.Errorf("the numbers do not agree: %+v, %+v", w, cl)
			}
			if w.Window == 0 {
				t.Error("no window")
			}
			if err := Own(s.workload, here); err != nil {
				t.Error(err)
			}
			if Own(s.workload, there) == nil {
				t.Error("the client's address was taken for the workload's")
			}
		})
	}
}

func TestConnectionsWithinANamespaceAreNotRead(t *testing.T) {
	s := newSegment(t)
	r := reader(t)
	port := s.echo(address4)
	s.in(s.workload, func() error {
		c, err := net.DialTimeout("tcp", fmt.Sprintf("%s:%d", address4, port), 10*time.Second)
		if err == nil {
			t.Cleanup(func() { c.Close() })
		}
		return err
	})
	if found, _, err := r.Read(s.workload); err != nil || len(found) != 0 {
		t.Errorf("%v, %v", found, err)
	}
}

// info is what the kernel knows of a connection.
func info(t *testing.T, c net.Conn) (found *unix.TCPInfo) {
	t.Helper()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var asked error
	err = raw.Control(func(fd uintptr) { found, asked = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) })
	if err := errors.Join(err, asked); err != nil {
		t.Fatal(err)
	}
	return found
}

func until(t *testing.T, what string, true func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !true(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it did not happen: %s", what)
		}
	}
}

// What a peer has to say in the silence it keeps, and says when there is room
// again. One that was not told says it again and again.
func TestAPeerThatWasToldWaits(t *testing.T) {
	for _, address := range []netip.Addr{address4, address6} {
		for _, told := range []bool{true, false} {
			t.Run(fmt.Sprintf("%v/%v", address, told), func(t *testing.T) {
				s := newSegment(t)
				r := reader(t)
				c, err := s.dial(address, s.echo(address), 10*time.Second)
				if err != nil {
					t.Fatal(err)
				}
				if err := says(c, 10*time.Second); err != nil {
					t.Fatal(err)
				}
				if err := Silence(s.workload); err != nil {
					t.Fatal(err)
				}
				all, _, err := r.Read(s.workload)
				if err != nil {
					t.Fatal(err)
				}
				if told {
					if err := CloseWindows(s.workload, all); err != nil {
						t.Fatal(err)
					}
					until(t, "the client hears that there is no room", func() bool { return info(t, c).Snd_wnd == 0 })
				}
				answered := make(chan error, 1)
				go func() { answered <- says(c, time.Minute) }()
				if told {
					until(t, "the client has something to say", func() bool { return info(t, c).Notsent_bytes > 0 })
					time.Sleep(500 * time.Millisecond) // it would have asked again after 0.2 s
				} else {
					until(t, "the client asks again", func() bool { return info(t, c).Total_retrans > 0 })
				}
				if err := Open(s.workload); err != nil {
					t.Fatal(err)
				}
				if told {
					if err := ReopenWindows(s.workload, all); err != nil {
						t.Fatal(err)
					}
				}
				if err := <-answered; err != nil {
					t.Fatal(err)
				}
				if n := info(t, c).Total_retrans; told && n > 0 {
					t.Errorf("%d segments were sent again", n)
				}
			})
		}
	}
}
