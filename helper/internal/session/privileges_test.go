package session

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	"kernel.org/pub/linux/libs/security/libcap/cap"

	"github.com/livefleet/handover/helper/internal/confine"
	"github.com/livefleet/handover/helper/internal/image"
	"github.com/livefleet/handover/helper/internal/loop"
	"github.com/livefleet/handover/helper/internal/network"
	"github.com/livefleet/handover/helper/internal/session/record"
	"github.com/livefleet/handover/helper/internal/tracker"
	"github.com/livefleet/handover/helper/internal/tree"
	"github.com/livefleet/handover/helper/internal/watch"
)

// somebody is a user who is not root.
const somebody = 1000

// need is something that a side does, and the privilege without which the kernel refuses
// it; none, if it refuses it to nobody who has the others.
type need struct {
	what    string
	side    record.Role
	without cap.Value
	none    bool
	do      func(p place) error
}

// place is what a need finds: a device that is mounted, its image and a second one,
// a folder and a process of somebody's, a process of root's in a network of its own.
type place struct{ Top, Device, Mountpoint, Image, Process, Networked string }

func (p place) at(name string) string { return filepath.Join(p.Top, name) }

func (p place) network() string { return filepath.Join("/proc", p.Networked, "ns/net") }

var needs = []need{
	{what: "freeze a file system", side: record.Source, without: cap.SYS_ADMIN, do: func(p place) error { return image.Freeze(p.Mountpoint) }},
	{what: "mount what a dump is written to", side: record.Source, without: cap.SYS_ADMIN, do: func(p place) error { return loop.MountTmpfs(p.at("gate")) }},
	{what: "enter the workload's network", side: record.Source, without: cap.SYS_ADMIN, do: unsettled},
	{what: "follow a directory volume", side: record.Source, without: cap.SYS_ADMIN, do: func(p place) error {
		_, err := watch.Start(p.Mountpoint)
		return err
	}},
	{what: "mount a volume", side: record.Destination, without: cap.SYS_ADMIN, do: func(p place) error {
		return loop.MountImage(p.at("second.img"), p.at("gate"), "ext4", "noatime")
	}},
	{what: "unmount it", side: record.Destination, without: cap.SYS_ADMIN, do: func(p place) error { return loop.Unmount(p.Mountpoint) }},
	{what: "enter the workload's network", side: record.Destination, without: cap.SYS_ADMIN, do: unsettled},
	{what: "attach a loop device", side: record.Destination, without: cap.SYS_ADMIN, none: true, do: func(p place) error {
		device, err := loop.Attach(p.at("second.img"))
		if err == nil {
			err = loop.Detach(device)
		}
		return err
	}},
	{what: "punch a hole", side: record.Destination, without: cap.SYS_ADMIN, none: true, do: func(p place) error {
		t, err := image.CreateTarget(p.at("new.img"), 1<<20)
		if err != nil {
			return err
		}
		_, err = t.WriteAt(image.Buffer(1<<20), 0)
		return errors.Join(err, t.Zero(0, 1<<20), t.Close())
	}},
	{what: "track a device", side: record.Source, without: cap.BPF, none: true, do: track}, // CAP_SYS_ADMIN is both of these, too
	{what: "track a device", side: record.Source, without: cap.PERFMON, none: true, do: track},
	{what: "track a device", side: record.Source, without: cap.SYS_ADMIN, do: track},
	{what: "silence a network", side: record.Source, without: cap.NET_ADMIN, do: silence},
	{what: "silence a network", side: record.Destination, without: cap.NET_ADMIN, do: silence},
	{what: "announce an address", side: record.Source, without: cap.NET_RAW, do: announce},
	{what: "announce an address", side: record.Destination, without: cap.NET_RAW, do: announce},
	{what: "listen on a port below 1024", side: record.Destination, without: cap.NET_BIND_SERVICE, do: func(place) error {
		l, err := net.Listen("tcp", "127.0.0.1:1")
		if err == nil {
			err = l.Close()
		}
		return err
	}},
	{what: "see what a process has open", side: record.Source, without: cap.SYS_PTRACE, do: func(p place) error {
		_, err := os.Readlink(filepath.Join("/proc", p.Networked, "fd/0"))
		return err
	}},
	{what: "read a process's memory", side: record.Source, without: cap.SYS_PTRACE, do: func(p place) error {
		f, err := os.Open(filepath.Join("/proc", p.Networked, "mem"))
		if err == nil {
			err = f.Close()
		}
		return err
	}},
	{what: "find the network of a process", side: record.Source, without: cap.SYS_PTRACE, do: unsettled},
	{what: "find the network of a process", side: record.Destination, without: cap.SYS_PTRACE, do: unsettled},
	{what: "kill somebody's process", side: record.Source, without: cap.KILL, do: kill},
	{what: "bind somebody's process to processors", side: record.Destination, without: cap.SYS_NICE, do: func(p place) error {
		pid, err := strconv.Atoi(p.Process)
		if err != nil {
			return err
		}
		var set unix.CPUSet
		return errors.Join(unix.SchedGetaffinity(pid, &set), unix.SchedSetaffinity(pid, &set))
	}},
	{what: "kill somebody's process", side: record.Destination, without: cap.KILL, do: kill},
	{what: "open a file by its handle", side: record.Source, without: cap.DAC_READ_SEARCH, do: byHandle},
	{what: "read somebody's files and leave their times", side: record.Source, without: cap.FOWNER, do: func(p place) error {
		_, _, err := tree.Digest(context.Background(), p.at("somebodys"))
		return err
	}},
	{what: "write into somebody's folder", side: record.Source, without: cap.DAC_OVERRIDE, do: writeAmongOthers},
	{what: "write into somebody's folder", side: record.Destination, without: cap.DAC_OVERRIDE, do: writeAmongOthers},
	{what: "give files to their owners", side: record.Destination, without: cap.CHOWN, do: unpack},
	{what: "set the mode of files that are somebody's", side: record.Destination, without: cap.FOWNER, do: unpack},
	{what: "keep the set-group-ID bit of files of other groups", side: record.Destination, without: cap.FSETID, do: unpack},
	{what: "make device nodes", side: record.Destination, without: cap.MKNOD, do: unpack},
	{what: "give files their capabilities", side: record.Destination, without: cap.SETFCAP, do: unpack},
	{what: "make files immutable", side: record.Destination, without: cap.LINUX_IMMUTABLE, do: unpackImmutable},
	{what: "write what ext4 keeps back for root", side: record.Destination, without: cap.SYS_RESOURCE, none: true, do: func(p place) error { return fill(p.Mountpoint) }},
	{what: "write what ext4 keeps back for somebody else", side: record.Destination, without: cap.SYS_RESOURCE, do: func(p place) error {
		return errors.Join(loop.MountImage(p.at("second.img"), p.at("gate"), "ext4", ""), fill(p.at("gate")))
	}},
}

// elsewhere is what no test here can show, and why it is kept.
var elsewhere = map[record.Role]map[cap.Value]string{
	record.Source: {cap.SYS_RESOURCE: "kernels before 5.11 count a map's memory against RLIMIT_MEMLOCK, which has to be raised"},
}

func unsettled(p place) error {
	_, err := network.Settled(p.network())
	return err
}

func track(p place) error {
	trackers, err := tracker.Open(tracker.EBPF, []tracker.Device{{Path: p.Device, Cluster: 64 << 10}})
	for _, t := range trackers {
		err = errors.Join(err, t.Close())
	}
	return err
}

func silence(p place) error { return network.Silence(p.network()) }

func announce(place) error {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		unix.Close(fd)
	}
	return err
}

func kill(p place) error {
	pid, err := strconv.Atoi(p.Process)
	if err != nil {
		return err
	}
	return unix.Kill(pid, unix.SIGKILL)
}

func byHandle(p place) error {
	h, _, err := unix.NameToHandleAt(unix.AT_FDCWD, p.Mountpoint, 0)
	if err != nil {
		return err
	}
	dir, err := os.Open(p.Mountpoint)
	if err != nil {
		return err
	}
	defer dir.Close()
	fd, err := unix.OpenByHandleAt(int(dir.Fd()), h, unix.O_PATH|unix.O_CLOEXEC)
	if err == nil {
		unix.Close(fd)
	}
	return err
}

func writeAmongOthers(p place) error {
	return os.WriteFile(p.at("somebodys/new"), nil, 0o600)
}

// unpack lays down a tree of somebody's, with everything in it that not everybody may
// make, and looks whether it is what it was.
func unpack(p place) error {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	ability := binary.LittleEndian.AppendUint32(nil, 0x02000000) // VFS_CAP_REVISION_2
	ability = append(ability, make([]byte, 16)...)
	ability[5] = 4 // CAP_NET_BIND_SERVICE
	group := tar.Header{Name: "group", Typeflag: tar.TypeReg, Mode: 0o2755, Uid: 0, Gid: somebody}
	for _, h := range []tar.Header{
		{Name: ".", Typeflag: tar.TypeDir, Mode: 0o755},
		group,
		{Name: "theirs", Typeflag: tar.TypeReg, Mode: 0o640, Uid: somebody, Gid: somebody},
		{Name: "able", Typeflag: tar.TypeReg, Mode: 0o755, PAXRecords: map[string]string{"SCHILY.xattr.security.capability": string(ability)}},
		{Name: "null", Typeflag: tar.TypeChar, Mode: 0o666, Devmajor: 1, Devminor: 3},
	} {
		if err := w.WriteHeader(&h); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	if err := tree.Unpack(p.at("unpacked"), &b); err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Lstat(p.at("unpacked/group"), &st); err != nil {
		return err
	}
	if got := int64(st.Mode & 0o7777); got != group.Mode {
		return fmt.Errorf("the mode is %04o: %w", got, unix.EPERM)
	}
	return nil
}

func unpackImmutable(p place) error {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	h := tar.Header{
		Name: "immutable", Typeflag: tar.TypeReg, Mode: 0o600, Uid: os.Getuid(), Gid: os.Getgid(), Format: tar.FormatPAX,
		PAXRecords: map[string]string{"HANDOVER.flags": "10"},
	}
	if err := errors.Join(w.WriteHeader(&h), w.Close()); err != nil {
		return err
	}
	return errors.Join(tree.Unpack(p.at("unpacked"), &b), tree.Unlock(p.at("unpacked")))
}

// fill writes more than there is for everybody.
func fill(mountpoint string) error {
	f, err := os.OpenFile(filepath.Join(mountpoint, "large"), os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, 20<<20))
	return errors.Join(err, f.Close())
}

// Each privilege that a side of a handover keeps is one without which the kernel refuses
// it something that it does; and where it could be thought that it needs one, it does not.
func TestWhatEachPrivilegeIsFor(t *testing.T) {
	if os.Getenv("PRIVILEGE_TEST") != "" {
		doWithout(t)
		return
	}
	if os.Getuid() != 0 {
		t.Skip("needs root: gives up its privileges")
	}
	for side, keeps := range handoverKeeps {
		for _, c := range keeps {
			shown := slices.ContainsFunc(needs, func(n need) bool { return n.side == side && n.without == c && !n.none })
			if why := elsewhere[side][c]; !shown && why == "" {
				t.Errorf("the %s keeps %s, and nothing says what for", side, c)
			}
		}
	}
	for i, n := range needs {
		for _, have := range []bool{true, false} {
			name := fmt.Sprintf("%s, to %s, with %s: %v", n.side, n.what, n.without, have)
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				if ours(t)&(1<<n.without) == 0 {
					t.Skip("this process has not got it")
				}
				p := newPlace(t)
				self, err := os.Executable()
				if err != nil {
					t.Fatal(err)
				}
				cmd := exec.Command(self, "-test.run=^TestWhatEachPrivilegeIsFor$", "-test.v")
				cmd.Env = append(os.Environ(), fmt.Sprintf("PRIVILEGE_TEST=%d\n%v\n%s\n%s\n%s\n%s\n%s\n%s", i, have, p.Top, p.Device, p.Mountpoint, p.Image, p.Process, p.Networked))
				out, err := cmd.CombinedOutput()
				if err != nil {
					t.Errorf("%v\n%s", err, out)
				}
			})
		}
	}
}

// doWithout is the process that does something with what its side keeps, or with that
// but one.
func doWithout(t *testing.T) {
	words := strings.Split(os.Getenv("PRIVILEGE_TEST"), "\n")
	i, err := strconv.Atoi(words[0])
	if err != nil {
		t.Fatal(err)
	}
	n, have, p := needs[i], words[1] == "true", place{words[2], words[3], words[4], words[5], words[6], words[7]}
	keeps := slices.Clone(handoverKeeps[n.side])
	if !have {
		keeps = slices.DeleteFunc(keeps, func(c cap.Value) bool { return c == n.without })
	}
	if err := confine.Lower(keeps...); err != nil {
		t.Fatal(err)
	}
	err = n.do(p)
	refused := errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.ENOSPC) ||
		err != nil && strings.Contains(err.Error(), "EPERM") // in the project's own words
	switch {
	case have || n.none:
		if err != nil {
			t.Errorf("it cannot %s: %v", n.what, err)
		}
	case !refused:
		t.Errorf("without %s it can %s all the same: %v", n.without, n.what, err)
	}
}

// newPlace makes what the needs find.
func newPlace(t *testing.T) place {
	t.Helper()
	p := place{Top: t.TempDir()}
	p.Image, p.Mountpoint = p.at("first.img"), p.at("mounted")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"first.img", "second.img"} {
		must(os.WriteFile(p.at(name), nil, 0o600))
		must(os.Truncate(p.at(name), 32<<20))
		// Half of it is kept back.
		out, err := exec.Command("mkfs.ext4", "-q", "-F", "-m", "50", "-E", "lazy_itable_init=0,lazy_journal_init=0", p.at(name)).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	if out, err := exec.Command("tune2fs", "-u", strconv.Itoa(somebody), "-g", strconv.Itoa(somebody), p.at("second.img")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var err error
	p.Device, err = loop.Attach(p.Image)
	must(err)
	t.Cleanup(func() {
		_ = image.Thaw(p.Mountpoint)
		for _, err := range []error{loop.Unmount(p.at("gate")), loop.Unmount(p.Mountpoint), loop.Detach(p.Device)} {
			if err != nil {
				t.Error(err)
			}
		}
	})
	must(loop.Mount(p.Device, p.Mountpoint, "ext4", "noatime"))
	for _, dir := range []string{p.at("gate"), p.at("somebodys"), p.at("unpacked")} {
		must(os.Mkdir(dir, 0o700))
	}
	must(os.WriteFile(p.at("somebodys/file"), []byte("theirs"), 0o600))
	must(os.Chown(p.at("somebodys/file"), somebody, somebody))
	must(os.Chown(p.at("somebodys"), somebody, somebody))
	start := func(attr *syscall.SysProcAttr) string {
		t.Helper()
		cmd := exec.Command("sleep", "1000")
		attr.Pdeathsig = unix.SIGKILL
		cmd.SysProcAttr = attr
		must(cmd.Start())
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
		return strconv.Itoa(cmd.Process.Pid)
	}
	p.Process = start(&syscall.SysProcAttr{Credential: &syscall.Credential{Uid: somebody, Gid: somebody}})
	p.Networked = start(&syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET})
	return p
}
