package transport

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"testing"
	"time"
)

// counted counts what is handed to the kernel.
type counted struct {
	net.Conn
	writes atomic.Int64
}

func (c *counted) Write(p []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(p)
}

// A Write goes to the kernel in few pieces, and nothing of it waits for the next.
func TestWritesGoInBatches(t *testing.T) {
	ours, theirs := identity(t), identity(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	reader := make(chan net.Conn, 1)
	go func() {
		defer close(reader)
		raw, err := l.Accept()
		if err != nil {
			return
		}
		if c, err := secure(ctx, raw, tls.Server, theirs.config(ours.Fingerprint)); err == nil {
			reader <- c
		}
	}()
	raw, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	low := &counted{Conn: raw}
	c, err := secure(ctx, low, tls.Client, ours.config(theirs.Fingerprint))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	other, ok := <-reader
	if !ok {
		t.Fatal("the other side did not come up")
	}
	defer other.Close()
	for _, n := range []int{1, 100, 16 << 10, 600 << 10, 3 << 20} {
		before := low.writes.Load()
		sent := make([]byte, n)
		rand.NewChaCha8([32]byte{byte(n)}).Read(sent)
		got := make([]byte, n)
		read := make(chan error, 1)
		go func() {
			_, err := io.ReadFull(other, got)
			read <- err
		}()
		if _, err := c.Write(sent); err != nil {
			t.Fatal(err)
		}
		if err := <-read; err != nil || !bytes.Equal(got, sent) {
			t.Fatalf("%d bytes: %v", n, err)
		}
		if calls, most := low.writes.Load()-before, int64(n/batchSize+1); calls > most {
			t.Errorf("%d bytes took %d calls, at most %d were due", n, calls, most)
		}
	}
}
