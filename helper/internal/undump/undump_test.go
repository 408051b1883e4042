package undump

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/encoding/protowire"
)

// The tests start this binary again, as a program that sleeps once and tells the result.
const sleeper = "sleeper"

const sleeps = 1500 * time.Millisecond

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == sleeper {
		wanted, left := unix.NsecToTimespec(sleeps.Nanoseconds()), unix.Timespec{}
		fmt.Println(unix.Nanosleep(&wanted, &left))
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func needsRoot(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root: another process's registers and files")
	}
}

// only are the tasks of one process.
func only(pid int) Tasks {
	return func(do func(string) error) error { return do(filepath.Join("/proc", strconv.Itoa(pid))) }
}

// message puts a message of protobuf together: of numbers and of bytes, by field.
func message(fields ...any) (b []byte) {
	for i := 0; i < len(fields); i += 2 {
		n := protowire.Number(fields[i].(int))
		switch value := fields[i+1].(type) {
		case int:
			b = protowire.AppendVarint(protowire.AppendTag(b, n, protowire.VarintType), uint64(value))
		case []byte:
			b = protowire.AppendBytes(protowire.AppendTag(b, n, protowire.BytesType), value)
		}
	}
	return b
}

func image(t *testing.T, path string, magic uint32, messages ...[]byte) {
	t.Helper()
	b := binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, 0x54564319), magic)
	for _, m := range messages {
		b = append(binary.LittleEndian.AppendUint32(b, uint32(len(m))), m...)
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// pair is a terminal, at whose ends reads do not wait unless a process has them.
func pair(t *testing.T) (master, slave int) {
	t.Helper()
	master, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("needs pseudo-terminals: %v", err)
	}
	t.Cleanup(func() { unix.Close(master) })
	number, err := unix.IoctlGetInt(master, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		slave, err = unix.Open(fmt.Sprintf("/dev/pts/%d", number), unix.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(slave) })
	return master, slave
}

// drain does what CRIU does with a terminal that it dumps.
func drain(t *testing.T, fd int) []byte {
	t.Helper()
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFL, unix.O_RDWR|unix.O_NONBLOCK); err != nil {
		t.Fatal(err)
	}
	var all []byte
	for b := make([]byte, 16384); ; {
		n, err := unix.Read(fd, b)
		if errors.Is(err, unix.EAGAIN) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, b[:n]...)
	}
}

func write(t *testing.T, fd int, text string) {
	t.Helper()
	if n, err := unix.Write(fd, []byte(text)); err != nil || n != len(text) {
		t.Fatalf("%d written (%v)", n, err)
	}
}

// settle returns when so much is to be read.
func settle(t *testing.T, fd, wanted int) {
	t.Helper()
	for range 500 {
		if n, err := unix.IoctlGetInt(fd, unix.TIOCINQ); err != nil {
			t.Fatal(err)
		} else if n >= wanted {
			return
		}
		time.Sleep(2 * time.Millisecond)
	}
	t.Fatalf("%d bytes have not come", wanted)
}

func TestATerminalIsAsBeforeTheDump(t *testing.T) {
	needsRoot(t)
	for _, c := range []struct {
		name         string
		canonical    bool
		typed, shown string
	}{
		{"lines", true, "one\nand two\n", "a prompt$ "},
		{"a line that was ended otherwise", true, "yes\x04", "shown\nand more"},
		{"raw", false, "\x03\x04 keys", "\x1b[2J"},
		{"nothing", true, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			master, slave := pair(t)
			settings, err := unix.IoctlGetTermios(slave, unix.TCGETS)
			if err != nil {
				t.Fatal(err)
			}
			settings.Lflag &^= unix.ECHO
			if !c.canonical {
				settings.Lflag &^= unix.ICANON | unix.ISIG | unix.IEXTEN
			}
			if err := unix.IoctlSetTermios(slave, unix.TCSETS, settings); err != nil {
				t.Fatal(err)
			}
			write(t, master, c.typed)
			write(t, slave, c.shown)
			typed := strings.TrimSuffix(c.typed, "\x04")
			if !c.canonical {
				typed = c.typed
			}
			settle(t, slave, len(typed))
			settle(t, master, len(c.shown))
			// With an echo, what is put back must not be echoed once more.
			settings.Lflag |= unix.ECHO
			if err := unix.IoctlSetTermios(slave, unix.TCSETS, settings); err != nil {
				t.Fatal(err)
			}
			pid := start(t, master, slave)

			wasTyped, wasShown := drain(t, slave), drain(t, master)
			dir := t.TempDir()
			image(t, filepath.Join(dir, "files.img"), 0x56303138,
				message(1, 11, 2, 7, 19, message(1, 7, 2, 11, 3, unix.O_RDWR)),
				message(1, 11, 2, 8, 19, message(1, 8, 2, 10, 3, unix.O_RDWR|unix.O_APPEND)),
				message(1, 1, 2, 9))
			image(t, filepath.Join(dir, fmt.Sprintf("ids-%d.img", pid)), 0x54432030, message(1, 5, 2, 3))
			image(t, filepath.Join(dir, "fdinfo-3.img"), 0x56213732, message(1, 7, 2, 0, 3, 11, 4, 0), message(1, 8, 2, 0, 3, 11, 4, 1), message(1, 9, 4, 2))
			image(t, filepath.Join(dir, "tty-info.img"), 0x59453036, message(1, 11, 2, 1, 5, 0), message(1, 10, 2, 1, 5, 0))
			var data [][]byte
			for id, bytes := range map[int][]byte{10: wasTyped, 11: wasShown} {
				if len(bytes) > 0 {
					data = append(data, message(1, id, 2, bytes))
				}
			}
			image(t, filepath.Join(dir, "tty-data.img"), 0x59413026, data...)

			for try, want := range []Report{{Terminals: 2, Bytes: len(wasTyped) + len(wasShown)}, {}} {
				r, err := PutBack(only(pid), dir)
				r.Waits = 0 // it sleeps, too
				if err != nil || r != want {
					t.Fatalf("call %d put back %+v (%v), and not %+v", try, r, err, want)
				}
			}
			for fd, flags := range map[int]int{master: 0, slave: unix.O_APPEND} {
				if now, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0); err != nil || now&settable != flags {
					t.Errorf("the flags are %#x, and not %#x (%v)", now&settable, flags, err)
				}
			}
			if now, err := unix.IoctlGetTermios(slave, unix.TCGETS); err != nil || *now != *settings {
				t.Errorf("the settings are %+v, and not %+v (%v)", now, settings, err)
			}
			if got := drain(t, slave); !bytes.Equal(got, wasTyped) {
				t.Errorf("%q is to be read, and not %q", got, wasTyped)
			}
			if got := drain(t, master); !bytes.Equal(got, wasShown) {
				t.Errorf("%q is shown, and not %q", got, wasShown)
			}
		})
	}
}

// start starts a program with two files as its first.
func start(t *testing.T, first, second int) int {
	t.Helper()
	path, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	var files []*os.File
	for _, fd := range []int{first, second} {
		copied, err := unix.Dup(fd)
		if err != nil {
			t.Fatal(err)
		}
		f := os.NewFile(uintptr(copied), "terminal")
		defer f.Close()
		files = append(files, f)
	}
	p, err := os.StartProcess(path, []string{"sleep", "1000"}, &os.ProcAttr{Files: files})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.Kill()
		_, _ = p.Wait()
	})
	return p.Pid
}

func TestADumpThatWasNotMade(t *testing.T) {
	for _, images := range []string{"", t.TempDir(), filepath.Join(t.TempDir(), "gone")} {
		if r, err := PutBack(func(func(string) error) error { return nil }, images); err != nil || r.Any() {
			t.Errorf("%q: %+v (%v)", images, r, err)
		}
	}
}
