package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/hashicorp/yamux"
)

const (
	// carryBuffer is how much is moved at once, on each connection and each way.
	carryBuffer = batchSize
	// drainAfter is how long received data are still passed on after the other end
	// has hung up.
	drainAfter = 10 * time.Second
	// resetAfter is how long the source has to read the session's last words on a
	// connection that the session closed, before its own sends there fail.
	resetAfter = 3 * time.Second
)

// Carry is the far end of Streams: our own standard streams are the pair, and each
// connection that comes over them is made to the address. It ends when the other end
// hangs up, when the address has no listener any more, or with the context. Data are
// passed on unseen: it is for the session to judge.
//
// The other end pays for its own faults: bytes that are no frame, more than a window,
// or more connections than a session has end Carry, and nothing else.
func Carry(ctx context.Context, to Address) error {
	s, err := newStdio(os.Stdin, os.Stdout)
	if err != nil {
		return err
	}
	defer s.Close()
	return carry(ctx, s, to)
}

func carry(ctx context.Context, p streamPair, to Address) error {
	stop := context.AfterFunc(ctx, func() { _ = p.SetDeadline(time.Unix(1, 0)) })
	err := greet(p)
	if !stop() {
		return context.Cause(ctx)
	}
	if err != nil {
		return wrongEnd(err)
	}
	config := streamConfig()
	config.StreamCloseTimeout = resetAfter
	mux, err := yamux.Server(ends{p}, config)
	if err != nil {
		return fmt.Errorf("transport: %w", err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() { mux.Close() })()
	all := carrying{to: to, hungUp: make(chan struct{})}
	for {
		var s *yamux.Stream
		if s, err = mux.AcceptStream(); err != nil {
			break
		}
		if mux.NumStreams() > carriedAtOnce {
			cancel(wrongEnd(fmt.Errorf("it has more than %d connections", carriedAtOnce)))
			continue
		}
		all.Add(1)
		go func() {
			defer all.Done()
			if err := all.carry(ctx, s); err != nil {
				cancel(err)
				mux.Close() // before the connection's end is told: it is all of them that end
			}
			s.Close()
		}()
	}
	close(all.hungUp)
	drained := time.AfterFunc(drainAfter, func() { cancel(nil) })
	defer drained.Stop()
	all.Wait()
	mux.Close()
	err = whyShut(mux, err)
	switch why := context.Cause(ctx); {
	case why != nil && !errors.Is(why, context.Canceled):
		return why
	case why != nil, errors.Is(err, io.EOF):
		return nil
	}
	return wrongEnd(err)
}

func wrongEnd(err error) error {
	return fmt.Errorf("transport: the other end of the standard streams: %w", err)
}

// carrying is the connections that are carried to an address.
type carrying struct {
	sync.WaitGroup
	to     Address
	hungUp chan struct{} // closed when nothing comes over the streams any more
}

// carry makes one connection to the address, and passes on the data of either side,
// and its end. The error is that there is no session to connect to.
func (a *carrying) carry(ctx context.Context, s *yamux.Stream) error {
	c, err := a.to.Dial(ctx)
	if err != nil {
		return fmt.Errorf("%w: the session there has ended, or was never begun", err)
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	back := make(chan struct{})
	go func() {
		defer close(back)
		_, _ = io.CopyBuffer(onlyWriter{s}, onlyReader{c}, make([]byte, carryBuffer))
		_ = s.Close() // and after a while nothing is taken any more; see resetAfter
	}()
	if _, err := io.CopyBuffer(onlyWriter{c}, onlyReader{s}, make([]byte, carryBuffer)); err != nil {
		// The session has closed it. Its last words are on their way back.
		_, _ = io.Copy(io.Discard, s)
	}
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite() // fails if it is closed already
	}
	select {
	case <-back:
	case <-a.hungUp:
		c.Close() // nothing would read its words
		<-back
	}
	return nil
}

// onlyWriter and onlyReader keep io.CopyBuffer to its buffer: package net would make
// one of its own instead.
type onlyWriter struct{ io.Writer }

type onlyReader struct{ io.Reader }
