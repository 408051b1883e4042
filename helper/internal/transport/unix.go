package transport

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// ListenUnix listens on a unix socket that only its owner can connect to. A socket of
// ours left behind by a process that is gone is replaced; one that is in use, or
// another user's, and anything that is no socket, is not.
func ListenUnix(path string) (net.Listener, error) {
	if _, err := os.Lstat(path); err == nil {
		if err := removeStale(path); err != nil {
			return nil, err
		}
	}
	// The mode is set on the socket before it has a name, so there is no moment at
	// which others could connect, under any umask.
	lc := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var cerr error
		if err := raw.Control(func(fd uintptr) { cerr = unix.Fchmod(int(fd), 0o600) }); err != nil {
			return err
		}
		return cerr
	}}
	l, err := lc.Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, fmt.Errorf("transport: %s: %w", path, err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		l.Close()
		return nil, fmt.Errorf("transport: %w", err)
	}
	return l, nil
}

// removeStale removes a socket of ours without a listener, and nothing else.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return fmt.Errorf("transport: %w", err)
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("transport: %s: exists and is no socket: remove it or choose another path", path)
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); !ok || int(stat.Uid) != os.Geteuid() {
		return fmt.Errorf("transport: %s: the socket there is another user's: remove it or choose another path", path)
	}
	conn, err := net.Dial("unix", path)
	if err == nil {
		conn.Close()
		return fmt.Errorf("transport: %s: another process is listening here", path)
	}
	if !errors.Is(err, unix.ECONNREFUSED) {
		return fmt.Errorf("transport: %s: %w", path, err)
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("transport: %w", err)
	}
	return nil
}

// DialUnix connects to a unix socket.
func DialUnix(ctx context.Context, path string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("transport: %s: %w", path, err)
	}
	return conn, nil
}
