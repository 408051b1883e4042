package transport

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// socketPrefix begins an address that is the path of a unix socket.
const socketPrefix = "unix:"

// longestPath is the kernel's limit, beside the zero behind it.
const longestPath = len(unix.RawSockaddrUnix{}.Path) - 1

// Address is where one side of a session waits for the other: HOST:PORT, or
// unix:/PATH. It is also the Way that leads there directly.
type Address struct {
	network string // as package net calls it
	at      string
	port    uint16 // 0 for a unix socket, and for any port
}

// ParseAddress reads an address.
func ParseAddress(text string) (Address, error) {
	if path, ok := strings.CutPrefix(text, socketPrefix); ok {
		switch {
		case !filepath.IsAbs(path) || filepath.Clean(path) != path:
			return Address{}, fmt.Errorf("the address %q: an absolute path without detours is needed behind %s", text, socketPrefix)
		case len(path) > longestPath:
			return Address{}, fmt.Errorf("the address %q: the path has %d bytes, and that of a unix socket at most %d: choose a shorter one", text, len(path), longestPath)
		case strings.ContainsRune(path, 0):
			return Address{}, fmt.Errorf("the address %q: there is a zero byte in the path", text)
		}
		return Address{network: "unix", at: path}, nil
	}
	_, port, err := net.SplitHostPort(text)
	if err != nil {
		return Address{}, fmt.Errorf("the address %q: IP:PORT is needed, or %s/PATH: %w", text, socketPrefix, err)
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return Address{}, fmt.Errorf("the address %q: IP:PORT is needed, and %q is no port", text, port)
	}
	return Address{network: "tcp", at: text, port: uint16(number)}, nil
}

// String is the form that ParseAddress takes.
func (a Address) String() string {
	if _, ok := a.Socket(); ok {
		return socketPrefix + a.at
	}
	return a.at
}

// Socket is the path of a unix socket, if it is one.
func (a Address) Socket() (path string, ok bool) { return a.at, a.network == "unix" }

// Port is the port of TCP, and 0 for a unix socket.
func (a Address) Port() uint16 { return a.port }

// Dial makes one connection.
func (a Address) Dial(ctx context.Context) (net.Conn, error) {
	d := net.Dialer{KeepAliveConfig: keepalive}
	if a.network == "tcp" {
		d.Control = control
	}
	conn, err := d.DialContext(ctx, a.network, a.at)
	if err != nil {
		return nil, fmt.Errorf("transport: connecting to %s: %w", a, err)
	}
	return conn, nil
}

// Close is for Way: nothing is held between two connections.
func (a Address) Close() error { return nil }

func (a Address) listen() (net.Listener, error) {
	if path, ok := a.Socket(); ok {
		if err := checkPrivate(filepath.Dir(path)); err != nil {
			return nil, err
		}
		return ListenUnix(path)
	}
	lc := net.ListenConfig{Control: control, KeepAliveConfig: keepalive}
	l, err := lc.Listen(context.Background(), a.network, a.at)
	if err != nil {
		return nil, fmt.Errorf("transport: listening on %s: %w", a, err)
	}
	return l, nil
}

// checkPrivate demands a folder in which no other user can replace the socket.
func checkPrivate(dir string) error {
	info, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("transport: %s: there is no such folder for the socket: make it, with the mode 0700", dir)
	} else if err != nil {
		return fmt.Errorf("transport: %w", err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || !ok || int(stat.Uid) != os.Geteuid() || info.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("transport: %s: others can reach a socket there (mode %04o): choose a folder of your own with the mode 0700", dir, info.Mode().Perm())
	}
	return nil
}

// RemoveStale removes the socket that a dead process of ours has left. It may be
// called at any time: anything else stays, and is no error.
func RemoveStale(a Address) {
	if path, ok := a.Socket(); ok {
		_ = removeStale(path)
	}
}
