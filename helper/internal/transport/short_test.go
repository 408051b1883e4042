package transport

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

// shortPair is two ends of one connection, the first of them short.
func shortPair(t *testing.T) (*short, net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	raw, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { raw.Close() })
	other, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { other.Close() })
	s, ok := brief(raw).(*short)
	if !ok {
		t.Fatal("a TCP connection is not made short")
	}
	return s, other
}

// A peer that does not take what comes is told from one that waits for it.
func TestHeldUp(t *testing.T) {
	s, other := shortPair(t)
	piece := make([]byte, 1<<20)
	taken := make(chan error, 1)
	go func() {
		_, err := io.ReadFull(other, make([]byte, len(piece)))
		taken <- err
	}()
	if _, err := s.Write(make([]byte, len(piece))); err != nil {
		t.Fatal(err)
	}
	if err := <-taken; err != nil {
		t.Fatal(err)
	}
	if bytes, known := s.Backlog(); bytes != 0 || !known {
		t.Errorf("all was taken, and %d bytes are left to send (known: %v)", bytes, known)
	}
	before := s.HeldUp()
	go func() {
		for { // until the connection is closed
			if _, err := s.Write(make([]byte, 1<<20)); err != nil {
				return
			}
		}
	}()
	for began := time.Now(); s.HeldUp() <= before; time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > time.Minute {
			t.Fatal("nobody reads, and it is not told")
		}
	}
	if bytes, known := s.Backlog(); bytes == 0 || !known {
		t.Errorf("nobody reads, and %d bytes are left to send (known: %v)", bytes, known)
	}
}

// What ends a call on any other connection ends one on this, with the same errors.
func TestShortEnds(t *testing.T) {
	s, other := shortPair(t)
	if _, err := other.Write([]byte("last")); err != nil {
		t.Fatal(err)
	}
	other.Close()
	if got, err := io.ReadAll(s); string(got) != "last" || err != nil {
		t.Errorf("%q, %v", got, err)
	}

	s, _ = shortPair(t)
	if err := s.SetDeadline(time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	for what, call := range map[string]func([]byte) (int, error){"read": s.Read, "write": s.Write} {
		if _, err := call(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: %v", what, err)
		}
	}

	s, _ = shortPair(t)
	ended := make(chan error, 1)
	go func() {
		_, err := s.Read(make([]byte, 1))
		ended <- err
	}()
	s.Close()
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Errorf("a read on a connection that was closed: %v", err)
	}
}
