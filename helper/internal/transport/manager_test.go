package transport

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// The service manager is given descriptors, told which to close, and waited for.
func TestTheManagerKeepsWhatItIsGiven(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	heard := make(chan string, 8)
	go func() {
		for {
			b, oob := make([]byte, 256), make([]byte, 64)
			n, m, _, _, err := l.ReadMsgUnix(b, oob)
			if err != nil {
				return
			}
			said := strings.ReplaceAll(string(b[:n]), "\n", " ")
			if rights, err := unix.ParseSocketControlMessage(oob[:m]); err == nil && len(rights) == 1 {
				fds, _ := unix.ParseUnixRights(&rights[0])
				for _, fd := range fds {
					unix.Close(fd)
					said += " with a descriptor"
				}
			}
			heard <- said
		}
	}()
	m := Manager{}
	if err := m.Keep("uffd-1", int(os.Stdin.Fd())); err != nil {
		t.Fatal(err)
	}
	if err := m.LetGo("uffd-1", "uffd-2"); err != nil {
		t.Fatal(err)
	}
	var got []string
	for range 4 {
		got = append(got, <-heard)
	}
	want := []string{"FDSTORE=1 FDNAME=uffd-1 FDPOLL=0 with a descriptor", "FDSTOREREMOVE=1 FDNAME=uffd-1", "FDSTOREREMOVE=1 FDNAME=uffd-2", "BARRIER=1 with a descriptor"}
	if !slices.Equal(got, want) {
		t.Errorf("it heard %q", got)
	}
	t.Setenv("NOTIFY_SOCKET", "")
	if err := m.Keep("uffd-1", 0); err != nil {
		t.Error(err)
	}
}
