// Package transport makes the connections of a session.
//
// Each is TLS 1.3, whatever carries it. Both sides make a key for this one session
// (NewIdentity), the controller carries the fingerprints across, and each side
// accepts exactly the other's (Listen, Dial). There is no authority, no name, no
// resumption and nothing to configure. So the carrier of a connection is trusted with
// nothing: it can end it, or keep it from being made. A Way carries them:
//
//   - an Address, over TCP between two hosts that can reach each other, or to a
//     unix socket on this host;
//   - Streams, the standard streams of a child, such as ssh: one pair of streams
//     for all the connections, and at its far end Carry, which brings each to the
//     Address that the session listens on there.
//
// Old peers know neither TLS nor several connections. For them there are plain
// streams of bytes: of a child (Command) and of ourselves on its other end (Stdio),
// and unix sockets that only root can connect to (ListenUnix, DialUnix).
//
// A connection that is lost is noticed: keepalive probes an idle one, and
// TCP_USER_TIMEOUT ends one whose data are not acknowledged. But the end of a stream
// does not prove that it is complete, not even under TLS: its library takes a cut
// between two records for an end. The two sides must say when they are done.
package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// handshakeTimeout is how long a peer has to prove its identity.
	handshakeTimeout = 10 * time.Second
	// handshakesAtOnce bounds the simultaneous work that strangers can cause.
	handshakesAtOnce = 16
	// deadAfter is how long sent data may stay without an acknowledgement, and
	// how long an idle connection may stay without an answer to a probe.
	deadAfter = 30 * time.Second
)

var keepalive = net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 4}

// control sets the options that the net package lacks, before the connection is made,
// so that the SYN is covered too.
func control(_, _ string, raw syscall.RawConn) error {
	var serr error
	err := raw.Control(func(fd uintptr) {
		serr = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(deadAfter.Milliseconds()))
	})
	if err == nil {
		err = serr
	}
	if err != nil {
		return fmt.Errorf("setting TCP_USER_TIMEOUT: %w", err)
	}
	return nil
}

// Listener waits for the one peer of a session.
type Listener struct {
	l       net.Listener
	at      Address
	config  *tls.Config
	timeout time.Duration

	// OnReject, if it is set before Accept, is called for every rejected peer, with
	// the reason.
	OnReject func(remote net.Addr, why error)
}

// Listen waits on addr (see Address; port 0 takes any) for a peer whose
// certificate has the fingerprint that peerFingerprint returns at that time.
// While it returns "", everyone is turned away.
func Listen(addr string, id *Identity, peerFingerprint func() string) (*Listener, error) {
	at, err := ParseAddress(addr)
	if err != nil {
		return nil, fmt.Errorf("transport: %w", err)
	}
	l, err := at.listen()
	if err != nil {
		return nil, err
	}
	return &Listener{l: l, at: at, config: id.config(peerFingerprint), timeout: handshakeTimeout}, nil
}

// Address is where the listener listens, as ParseAddress takes it.
func (l *Listener) Address() string {
	if _, ok := l.at.Socket(); ok {
		return l.at.String()
	}
	return l.l.Addr().String() // the port may have been any
}

// Close stops listening and ends an Accept that waits.
func (l *Listener) Close() error { return l.l.Close() }

// Accept returns the first connection whose peer is the right one. Any other is
// dropped, and delays no one: handshakes run side by side. Accept ends with the
// context's error when the context does; the listener may then be used again.
func (l *Listener) Accept(ctx context.Context) (net.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	tl, ok := l.l.(interface{ SetDeadline(time.Time) error })
	if !ok {
		cancel()
		return nil, errors.New("transport: this listener cannot be interrupted")
	}
	_ = tl.SetDeadline(time.Time{}) // fails only if closed: Accept below says so
	right := make(chan *secured)
	failed := make(chan error, 1)
	var wg sync.WaitGroup
	defer func() {
		cancel()
		_ = tl.SetDeadline(time.Unix(1, 0))
		wg.Wait()
	}()

	places := make(chan struct{}, handshakesAtOnce)
	wg.Add(1)
	go func() {
		defer wg.Done()
		for {
			select {
			case places <- struct{}{}:
			case <-ctx.Done():
				return
			}
			raw, err := l.l.Accept()
			if err != nil {
				if ctx.Err() == nil {
					failed <- err
				}
				return
			}
			wg.Add(1)
			go func() {
				defer wg.Done()
				defer func() { <-places }()
				conn, err := l.handshake(ctx, raw)
				if err != nil {
					raw.Close()
					if l.OnReject != nil && ctx.Err() == nil {
						l.OnReject(raw.RemoteAddr(), err)
					}
					return
				}
				select {
				case right <- conn:
				case <-ctx.Done(): // another one was quicker, or Accept has returned
					conn.Close()
				}
			}()
		}
	}()

	select {
	case conn := <-right:
		return conn, nil
	case err := <-failed:
		return nil, fmt.Errorf("transport: waiting for the other side on %s: %w", l.Address(), err)
	case <-ctx.Done():
		return nil, fmt.Errorf("transport: waiting for the other side on %s: %w", l.Address(), context.Cause(ctx))
	}
}

func (l *Listener) handshake(ctx context.Context, raw net.Conn) (*secured, error) {
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	return secure(ctx, raw, tls.Server, l.config)
}

// Way is how connections come to the other side, before either has proved anything.
type Way interface {
	// Dial makes one connection. It ends with the context.
	Dial(ctx context.Context) (net.Conn, error)
	// Close releases the way's resources, and ends the connections with them.
	io.Closer
	fmt.Stringer
}

// Dial connects, on some way, to a Listener whose certificate has the given
// fingerprint. TLS 1.3 lets a client finish before the server has looked at the
// client's certificate, so if we are rejected, the first read says so.
func Dial(ctx context.Context, way Way, id *Identity, peerFingerprint string) (net.Conn, error) {
	if err := CheckFingerprint(peerFingerprint); err != nil {
		return nil, err
	}
	raw, err := way.Dial(ctx)
	if err != nil {
		return nil, err
	}
	hctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	conn, err := secure(hctx, raw, tls.Client, id.config(func() string { return peerFingerprint }))
	if err != nil {
		raw.Close()
		return nil, fmt.Errorf("transport: connecting to %s: %w", way, err)
	}
	return conn, nil
}
