package lazy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// restoreFinished is CRIU's message instead of a task's ID, when it has restored all.
const restoreFinished = 0x52535446

// listen waits for CRIU at a socket in its working directory.
func listen(workDir string) (*net.UnixListener, error) {
	// The path may be longer than a socket's may be.
	dir, err := os.Open(workDir)
	if err != nil {
		return nil, fmt.Errorf("lazy: CRIU's working directory: %w", err)
	}
	defer dir.Close()
	if err := RemoveSocket(workDir); err != nil {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), SocketName), Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("lazy: %w", err)
	}
	l.SetUnlinkOnClose(false) // that path is good no longer
	if err := os.Chmod(filepath.Join(workDir, SocketName), 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("lazy: %w", err), l.Close())
	}
	return l, nil
}

// RemoveSocket removes its socket from a working directory of CRIU's.
func RemoveSocket(workDir string) error {
	if err := os.Remove(filepath.Join(workDir, SocketName)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("lazy: %w", err)
	}
	return nil
}

// handed takes the descriptors that CRIU hands over, each with its task's ID. Over says
// that CRIU has restored all. Without that it is gone: its restore fails, and its caller
// reports that.
func handed(c *net.UnixConn, take func(pid uint32, fd int) error) (over bool, err error) {
	word := make([]byte, 4)
	for {
		if _, err := readFull(c, word); err != nil {
			return false, nil //nolint:nilerr // see above
		}
		pid := int32(binary.NativeEndian.Uint32(word))
		if pid == restoreFinished {
			return true, nil
		}
		if pid < 0 {
			continue // a zombie has no memory
		}
		fd, err := readDescriptor(c)
		if err == nil {
			err = take(uint32(pid), fd)
		}
		if err != nil {
			return false, fmt.Errorf("lazy: the memory of task %d: %w", pid, err)
		}
	}
}

func readFull(c *net.UnixConn, b []byte) (n int, err error) {
	for n < len(b) && err == nil {
		var m int
		m, err = c.Read(b[n:])
		n += m
	}
	return n, err
}

func readDescriptor(c *net.UnixConn) (int, error) {
	oob := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := c.ReadMsgUnix(make([]byte, 1), oob)
	if err != nil {
		return -1, err
	}
	messages, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil || len(messages) != 1 {
		return -1, errors.Join(err, errors.New("CRIU sent no descriptor"))
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return -1, errors.Join(err, errors.New("CRIU sent no descriptor"))
	}
	unix.CloseOnExec(fds[0])
	return fds[0], nil
}

// pin keeps our end of a connection open for as long as the other end is, whatever
// becomes of this process: a copy of it lies in the other's queue, which is never read.
// CRIU's last word to us comes when the workload was told to run, and a CRIU that cannot
// say it gives the workload up.
func pin(c *net.UnixConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var sent error
	err = raw.Control(func(fd uintptr) {
		sent = unix.Sendmsg(int(fd), []byte{0}, unix.UnixRights(int(fd)), nil, unix.MSG_NOSIGNAL)
	})
	if err = errors.Join(err, sent); err != nil {
		return fmt.Errorf("lazy: the connection to CRIU: %w", err)
	}
	return nil
}
