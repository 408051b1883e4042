package ploopcopy

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/codec"
	"github.com/livefleet/handover/helper/internal/image"
	"github.com/livefleet/handover/helper/internal/loop"
	"github.com/livefleet/handover/helper/internal/wire/dialect"
)

// pair is a sender and a receiver of one version, joined.
type pair struct {
	sender   dialect.Sender
	receiver dialect.Receiver
	cut      func() // ends the connection, as a killed sender does
	close    func() // as a killed receiver does
}

func join(t *testing.T, v dialect.Version, feedback bool) pair {
	t.Helper()
	if v.Packets {
		here, there := net.Pipe()
		t.Cleanup(func() { here.Close(); there.Close() })
		p := pair{receiver: dialect.NewReceiver9(there), cut: func() { here.Close() }, close: func() { there.Close() }}
		p.sender = &lazy{make: func(disk int64) (dialect.Sender, error) {
			if disk != 0 {
				if err := askForDisk(here, disk); err != nil {
					return nil, err
				}
			}
			return dialect.NewSender9(here, dialect.Options9{Plain: v.Plain || disk != 0})
		}}
		return p
	}
	pipe := func() (r, w *os.File) {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { r.Close(); w.Close() })
		return r, w
	}
	dataR, dataW := pipe()
	var fromR, toR io.ReadWriter
	hang := func() { dataR.Close() }
	if feedback {
		fr, fw := pipe()
		fromR, toR = fr, fw
		hang = func() { dataR.Close(); fw.Close() }
	}
	s, err := dialect.NewSender1(v, dataW, dialect.Options1{Feedback: fromR, Blind: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	r, err := dialect.NewReceiver1(v, dataR, toR)
	if err != nil {
		t.Fatal(err)
	}
	return pair{sender: s, receiver: r, cut: func() { dataW.Close() }, close: hang}
}

// askForDisk asks a receiver of 9.x for a disk in clusters of four sectors, as often as
// somebody likes and without a handshake: no sender of ours does.
func askForDisk(conn net.Conn, bytes int64) error {
	const cluster = 4
	b := binary.NativeEndian.AppendUint32(nil, 0x4cc0ac3e)
	for _, v := range []uint32{1, cluster, 0} { // a command, and the padding
		b = binary.NativeEndian.AppendUint32(b, v)
	}
	b = binary.NativeEndian.AppendUint64(b, uint64(bytes/512))
	b = binary.NativeEndian.AppendUint32(b, 2)
	if _, err := conn.Write(b); err != nil {
		return err
	}
	_, err := io.ReadFull(conn, make([]byte, 4))
	return err
}

// copied is how both ends of a copy ended.
type copied struct {
	sent             Sent
	received         Received
	sendErr, recvErr error
	path             string
}

// run copies src to a new file. hook, if there is one, stands before the end.
func (p pair) run(t *testing.T, src Source, limit int64, hook func()) copied {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c := copied{path: filepath.Join(t.TempDir(), "received")}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.received, c.recvErr = Receive(ctx, p.receiver, c.path, limit, nil)
	}()
	c.sent, c.sendErr = Send(ctx, &ending{p.sender, hook}, src, nil)
	if c.sendErr != nil {
		p.cut() // the sender's process would be gone
	}
	<-done
	return c
}

// ending lets a test look at the moment before the end.
type ending struct {
	dialect.Sender
	hook func()
}

func (e *ending) End() error {
	if e.hook != nil {
		e.hook()
	}
	return e.Sender.End()
}

// lazy shakes hands when it is first used: over an unbuffered connection that
// needs both ends.
type lazy struct {
	make func(disk int64) (dialect.Sender, error)
	dialect.Sender
	err error
}

func (l *lazy) get() (dialect.Sender, error) {
	if l.Sender == nil && l.err == nil {
		l.Sender, l.err = l.make(0)
	}
	return l.Sender, l.err
}

func (l *lazy) Write(f *frame) error {
	s, err := l.get()
	if err != nil {
		return err
	}
	return s.Write(f)
}

func (l *lazy) Interrupt(why error) {
	if l.Sender != nil {
		l.Sender.Interrupt(why)
	}
}

func versions(t *testing.T, each func(t *testing.T, v dialect.Version, feedback bool)) {
	for _, v := range dialect.Versions {
		t.Run(v.Name, func(t *testing.T) { each(t, v, false) })
		if v.Answers {
			t.Run(v.Name+" with feedback", func(t *testing.T) { each(t, v, true) })
		}
	}
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root: loop devices, mounts and BPF")
	}
}

// volume is an ext4 on a loop device, with somebody who writes to it.
type volume struct {
	t          *testing.T
	image      string
	device     string
	mountpoint string
	control    string // a folder for the freeze command
	stop       chan struct{}
	stopped    chan struct{}
}

const volumeSize = 48 << 20

func newVolume(t *testing.T) *volume {
	t.Helper()
	needRoot(t)
	top := t.TempDir()
	v := &volume{t: t, image: filepath.Join(top, "image"), mountpoint: filepath.Join(top, "mnt"), control: filepath.Join(top, "control"), stop: make(chan struct{}), stopped: make(chan struct{})}
	f, err := os.Create(v.image)
	if err == nil {
		err = f.Truncate(volumeSize)
		f.Close()
	}
	if err == nil {
		err = os.Mkdir(v.control, 0o700)
	}
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", v.image).CombinedOutput(); err != nil {
		t.Fatalf("mkfs.ext4: %v: %s", err, out)
	}
	if v.device, err = loop.Attach(v.image); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = image.Thaw(v.mountpoint)
		for _, err := range []error{loop.Unmount(v.mountpoint), loop.Detach(v.device)} {
			if err != nil {
				t.Error(err)
			}
		}
	})
	if err := loop.Mount(v.device, v.mountpoint, "ext4", "noatime"); err != nil {
		t.Fatal(err)
	}
	return v
}

// writer writes to the volume until the freeze command says stop.
func (v *volume) writer() {
	content := noise(256 << 10)
	go func() {
		defer close(v.stopped)
		for n := 0; ; n++ {
			select {
			case <-v.stop:
				return
			default:
			}
			if _, err := os.Stat(filepath.Join(v.control, "freeze")); err == nil {
				return
			}
			path := filepath.Join(v.mountpoint, "file"+string(rune('a'+n%7)))
			f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
			if err != nil {
				v.t.Error(err)
				return
			}
			_, err = f.WriteAt(content[:1+rand.IntN(len(content))], rand.Int64N(2<<20))
			if n%50 == 49 {
				_ = f.Sync()
				_ = os.Remove(path)
			}
			f.Close()
			if err != nil {
				v.t.Error(err)
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
	v.t.Cleanup(func() {
		_ = image.Thaw(v.mountpoint)
		close(v.stop)
		<-v.stopped
	})
}

// content is what the device holds now.
func (v *volume) content() []byte {
	v.t.Helper()
	s, err := image.OpenSource(v.device)
	if err != nil {
		v.t.Fatal(err)
	}
	defer s.Close()
	b := image.Buffer(int(s.Size()))
	if _, err := s.ReadAt(b, 0); err != nil {
		v.t.Fatal(err)
	}
	return b
}

// frozen reports whether the file system is frozen: it is thawed by the asking.
func (v *volume) frozen() bool {
	v.t.Helper()
	d, err := os.Open(v.mountpoint)
	if err != nil {
		v.t.Fatal(err)
	}
	defer d.Close()
	const fiThaw = 0xC0045878
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, d.Fd(), fiThaw, 0)
	return errno == 0
}

func noise(n int) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{9}).Read(b)
	return b
}

func says(t *testing.T, err error, code dialect.Code, text string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("%v\n  should say %q", err, text)
		return
	}
	if got := exitCode(err); got != int(code) {
		t.Errorf("%v: exit status %d and not %d", err, got, code)
	}
}

func same(t *testing.T, path string, want []byte) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(got, want) {
		return
	}
	if len(got) != len(want) {
		t.Fatalf("%d bytes were received and %d sent", len(got), len(want))
	}
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("byte %d differs", i)
		}
	}
}

// sparse demands that a file for root alone takes no space for clusters that are zeroes.
func sparse(t *testing.T, path string, content []byte) {
	t.Helper()
	room := int64(DefaultCluster) // for the file system's own data
	for c := range slices.Chunk(content, DefaultCluster) {
		if !codec.IsZero(c) {
			room += DefaultCluster
		}
	}
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil || st.Mode&0o777 != 0o600 || st.Blocks*512 > room {
		t.Errorf("mode %o, %d bytes of at most %d: %v", st.Mode&0o777, st.Blocks*512, room, err)
	}
	if room > volumeSize {
		t.Error("the volume has no holes that could be kept")
	}
}

func gone(t *testing.T, path string) {
	t.Helper()
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("%s was left behind: %v", path, err)
	}
}
