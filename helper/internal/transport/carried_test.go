package transport

import (
	"io"
	"net"
	"path/filepath"
	"testing"
	"time"
)

// A closed connection is known before its last data are read, and those are not lost.
func TestTheEndOfAConnectionIsKnownBehindUnreadData(t *testing.T) {
	const words = "the last words"
	for name, dial := range map[string]func(t *testing.T, path string) net.Conn{
		"a unix socket": func(t *testing.T, path string) net.Conn {
			c, err := DialUnix(t.Context(), path)
			if err != nil {
				t.Fatal(err)
			}
			return &secured{raw: &batched{Conn: c}}
		},
		"streams": func(t *testing.T, path string) net.Conn {
			s := Over(carryTo(t, "unix:"+path))
			t.Cleanup(func() { s.Close() })
			c, err := s.Dial(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return &secured{raw: &batched{Conn: c}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(private(t), "s")
			l, err := ListenUnix(path)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			c := dial(t, path).(*secured)
			below := c.raw.Conn
			defer below.Close()
			if _, err := below.Write([]byte("first")); err != nil {
				t.Fatal(err)
			}
			other, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(other, make([]byte, len("first"))); err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(other, words); err != nil {
				t.Fatal(err)
			}
			for range 20 {
				if c.HungUp() {
					t.Fatal("an open connection is called closed")
				}
				time.Sleep(time.Millisecond)
			}
			other.Close()
			for until := time.Now().Add(time.Minute); !c.HungUp(); time.Sleep(time.Millisecond) {
				if time.Now().After(until) {
					t.Fatal("the end is not seen")
				}
			}
			if got, err := io.ReadAll(below); err != nil || string(got) != words {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}

// A look for the end takes no deadline away, and none of its own stays.
func TestALookForTheEndLeavesTheReadersDeadline(t *testing.T) {
	path := filepath.Join(private(t), "s")
	l, err := ListenUnix(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s := Over(carryTo(t, "unix:"+path))
	defer s.Close()
	c, err := s.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	look := c.(interface{ HungUp() bool }).HungUp
	if look() {
		t.Error("an open connection is called closed")
	}
	heard := make(chan error, 1)
	go func() {
		_, err := c.Read(make([]byte, 1))
		heard <- err
	}()
	select {
	case err := <-heard:
		t.Fatalf("the look's deadline ends the next read: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	if err := c.SetReadDeadline(time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	<-heard
	if look() {
		t.Error("a reader's deadline is taken for the end")
	}
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("the reader's deadline is gone")
	}
}
