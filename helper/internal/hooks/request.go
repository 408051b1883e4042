package hooks

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/encoding/protowire"
)

// A runtime's request decides CRIU's work, and podman and runc know of no lazy pages.
// CRIU reads one more file after the request, and that file counts: runc names
// /etc/criu/runc.conf, which is the host's. So the stand-in for CRIU takes the request of
// a session that has options of its own off the socket, and puts it there again with the
// session's own file named in it, as the runtime would have: by the runtime's end of the
// socket, of which it asks the kernel for a copy. No other CRIU of the host is touched,
// and no process stays between the two.

// Options are those of one dump or one restore.
type Options struct {
	Config  string            // the path of CRIU's file to be, in the session's folder
	Lazy    bool              // the memory is left out
	Joins   map[string]string // namespaces, by CRIU's word for the kind, that restored tasks join
	Cgroups bool              // CRIU puts the tasks into their cgroups, whatever the host says of it

	Unlocked bool // CRIU neither locks the network nor looks for a lock to lift
}

// Fields of criu_opts in criu's rpc.proto.
const (
	fieldLogLevel protowire.Number = 9
	fieldConfig   protowire.Number = 51
)

// A runtime asks for all that CRIU can log: 700 lines and more of a small container, and 20
// more for each MiB of memory that is left out, each written at once, in the pause. Warnings
// and errors are as they were. A host's own file with the word verbosity has it log all.
const (
	logWarnings = 2
	wantsAll    = "verbosity"
)

// apply changes the request that waits on a runtime's socket.
func (o Options) apply(fd int, r criuRequest) error {
	lines := ""
	if o.Cgroups {
		lines += "manage-cgroups=soft\n"
	}
	if o.Lazy {
		lines += "lazy-pages\n"
	}
	if o.Unlocked { // behind the host's own line: the last one counts
		lines += "network-lock skip\n"
	}
	for _, kind := range slices.Sorted(maps.Keys(o.Joins)) {
		lines += "join-ns " + kind + ":" + o.Joins[kind] + "\n"
	}
	if o.Lazy && r.kind == typeDump {
		socket, err := deadSocket()
		if err != nil {
			return err
		}
		lines += "ps-socket " + strconv.Itoa(socket) + "\n"
		if err := moreFiles(); err != nil {
			return err
		}
	}
	was := []byte{}
	if r.config != "" {
		var err error
		if was, err = os.ReadFile(r.config); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("hooks: CRIU's configuration: %w", err)
		}
	}
	if err := os.WriteFile(o.Config, append(append(was, '\n'), lines...), 0o600); err != nil {
		return fmt.Errorf("hooks: CRIU's configuration: %w", err)
	}
	changed, err := r.withConfig(o.Config)
	if err == nil && !bytes.Contains(was, []byte(wantsAll)) {
		changed, err = withLogLevel(changed, logWarnings)
	}
	if err != nil {
		return err
	}
	return replaceRequest(fd, r, changed)
}

// deadSocket is one whose other end is closed. When a lazy dump is over, whether its
// post-dump script has said yes or no, CRIU serves the pages to the process at the other
// end. There is none: CRIU ends at once, and then it ends the tasks, or lets them go.
func deadSocket() (int, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return -1, fmt.Errorf("hooks: %w", err)
	}
	return pair[0], unix.Close(pair[1]) // it is inherited
}

// moreFiles lets CRIU have as many files as it may: it keeps a pipe for each so many
// pages that it leaves behind.
func moreFiles() error {
	var limit unix.Rlimit
	err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit)
	if err == nil {
		limit.Cur = limit.Max
		err = unix.Setrlimit(unix.RLIMIT_NOFILE, &limit) // Go takes that as intended, and leaves it to the program that it becomes
	}
	if err != nil {
		return fmt.Errorf("hooks: the limit of open files: %w", err)
	}
	return nil
}

// replaceRequest takes the request off the socket, and has the other end write another.
func replaceRequest(fd int, r criuRequest, changed []byte) error {
	other, err := otherEnd(fd, r)
	if err != nil {
		return err
	}
	defer unix.Close(other)
	if err := unix.Sendto(other, changed, 0, nil); err != nil {
		return fmt.Errorf("hooks: the runtime's request: %w", err)
	}
	return nil
}

// otherEnd takes the request off, and returns a copy of the runtime's end of the socket:
// the one socket of the runtime that had something on its way when the request was there
// still, and has not when it is taken.
func otherEnd(fd int, r criuRequest) (int, error) {
	pidfd, err := unix.PidfdOpen(r.peer, 0)
	if err != nil {
		return -1, fmt.Errorf("hooks: the runtime: %w", err)
	}
	defer unix.Close(pidfd)
	entries, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(r.peer), "fd"))
	if err != nil {
		return -1, fmt.Errorf("hooks: the runtime: %w", err)
	}
	var busy []int
	defer func() {
		for _, c := range busy {
			unix.Close(c)
		}
	}()
	for _, e := range entries {
		n, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		c, err := unix.PidfdGetfd(pidfd, n, 0)
		if errors.Is(err, unix.EBADF) { // it was closed since
			continue
		} else if err != nil {
			return -1, fmt.Errorf("hooks: the runtime's files: %w", err)
		}
		if onItsWay(c) {
			busy = append(busy, c)
		} else {
			unix.Close(c)
		}
	}
	if _, _, err := unix.Recvfrom(fd, make([]byte, 1), unix.MSG_TRUNC); err != nil {
		return -1, fmt.Errorf("hooks: the runtime's request: %w", err)
	}
	found := -1
	for i, c := range busy {
		if onItsWay(c) {
			continue
		}
		if found >= 0 {
			return -1, errors.New("hooks: two sockets of the runtime look like its end of CRIU's")
		}
		found = i
	}
	if found < 0 {
		return -1, errors.New("hooks: the runtime's end of CRIU's socket is none of its files")
	}
	c := busy[found]
	busy = append(busy[:found], busy[found+1:]...)
	return c, nil
}

// onItsWay says whether a file is a socket that has sent packets which have not been
// read.
func onItsWay(fd int) bool {
	domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	if err != nil || domain != unix.AF_UNIX {
		return false
	}
	kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil || kind != unix.SOCK_SEQPACKET {
		return false
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCOUTQ)
	return err == nil && n > 0
}
