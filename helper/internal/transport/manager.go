package transport

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Manager is the service manager that started this process, if one did (sd_notify(3)).
// Where it was told so (FileDescriptorStoreMax), it holds descriptors beside the process,
// until that and all that is to run when it has ended have ended.
type Manager struct{}

// managerPatience is how long the manager may take to say that it has heard.
const managerPatience = 5 * time.Second

// Keep sends it a descriptor.
func (m Manager) Keep(name string, fd int) error {
	return m.tell([]string{"FDSTORE=1", "FDNAME=" + name, "FDPOLL=0"}, fd)
}

// LetGo returns when it has closed those with these names.
func (m Manager) LetGo(names ...string) error {
	for _, name := range names {
		if err := m.tell([]string{"FDSTOREREMOVE=1", "FDNAME=" + name}, -1); err != nil {
			return err
		}
	}
	if os.Getenv("NOTIFY_SOCKET") == "" || len(names) == 0 {
		return nil
	}
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		return fmt.Errorf("transport: %w", err)
	}
	defer unix.Close(pipe[0])
	err := m.tell([]string{"BARRIER=1"}, pipe[1])
	unix.Close(pipe[1])
	if err != nil {
		return err
	}
	// It closes its copy when it has dealt with all that was said before.
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(pipe[0])}}, int(managerPatience.Milliseconds()))
	for errors.Is(err, unix.EINTR) {
		n, err = unix.Poll([]unix.PollFd{{Fd: int32(pipe[0])}}, int(managerPatience.Milliseconds()))
	}
	if err == nil && n == 0 {
		err = fmt.Errorf("it has not answered within %s", managerPatience)
	}
	if err != nil {
		return fmt.Errorf("transport: the service manager: %w", err)
	}
	return nil
}

func (Manager) tell(lines []string, fd int) error {
	socket := os.Getenv("NOTIFY_SOCKET")
	if socket == "" {
		return nil
	}
	s, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("transport: the service manager: %w", err)
	}
	defer unix.Close(s)
	var rights []byte
	if fd >= 0 {
		rights = unix.UnixRights(fd)
	}
	if err := unix.Sendmsg(s, []byte(strings.Join(lines, "\n")), rights, &unix.SockaddrUnix{Name: socket}, 0); err != nil {
		return fmt.Errorf("transport: the service manager: %w", err)
	}
	return nil
}
