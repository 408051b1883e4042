package ploopcopy

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/hooks"
	"github.com/livefleet/handover/helper/internal/passes"
	"github.com/livefleet/handover/helper/internal/wire"
	"github.com/livefleet/handover/helper/internal/wire/dialect"
)

type frame = wire.Frame

func exitCode(err error) int {
	var f *dialect.Failure
	if errors.As(err, &f) {
		return f.ExitCode()
	}
	return 1
}

// A disk under a file system that is written to all the time arrives as it was
// when it was frozen.
func TestEveryVersion(t *testing.T) {
	versions(t, func(t *testing.T, version dialect.Version, feedback bool) {
		v := newVolume(t)
		v.writer()
		time.Sleep(50 * time.Millisecond)
		var want []byte
		src := Source{
			Device: v.device, Tracker: "auto", Cluster: DefaultCluster, Fresh: !version.Packets,
			Freeze: &hooks.Command{Argv: []string{"touch", filepath.Join(v.control, "freeze")}},
			Thaw:   &hooks.Command{Argv: []string{"touch", filepath.Join(v.control, "thawed")}},
		}
		c := join(t, version, feedback).run(t, src, volumeSize, func() { want = v.content() })
		if err := errors.Join(c.sendErr, c.recvErr); err != nil {
			t.Fatal(err)
		}
		same(t, c.path, want)
		if v.frozen() {
			t.Error("the file system was left frozen")
		}
		gone(t, filepath.Join(v.control, "thawed"))
		if c.sent.Bytes != volumeSize || len(c.sent.Passes) < 2 || c.sent.FrozenMS <= 0 || c.received.Size != volumeSize {
			t.Errorf("%+v, %+v", c.sent, c.received)
		}
		sparse(t, c.path, want)
	})
}

// A file is an image, too; its end is there also where it is zeroes.
func TestFile(t *testing.T) {
	versions(t, func(t *testing.T, version dialect.Version, feedback bool) {
		content := append(noise(3<<20+4096), make([]byte, 5<<20+512)...)
		path := filepath.Join(t.TempDir(), "image")
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		c := join(t, version, feedback).run(t, Source{Device: path, Tracker: passes.Untracked, Cluster: 64 << 10, Fresh: true}, 1<<40, nil)
		if err := errors.Join(c.sendErr, c.recvErr); err != nil {
			t.Fatal(err)
		}
		same(t, c.path, content)
		if c.sent.Sent > 3<<20+64<<10 {
			t.Errorf("%d bytes were sent as data", c.sent.Sent)
		}
	})
}

// What arrives of a ploop image that is in use is one that is not.
func TestTheMarkOfUse(t *testing.T) {
	content := noise(2 << 20)
	copy(content, "WithouFreSpacExt")
	binary.LittleEndian.PutUint32(content[44:], 0x746F6E59)
	path := filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, version := range dialect.Versions {
		c := join(t, version, false).run(t, Source{Device: path, Tracker: passes.Untracked, Cluster: 1 << 20}, 1<<40, nil)
		if err := errors.Join(c.sendErr, c.recvErr); err != nil {
			t.Fatal(err)
		}
		want := bytes.Clone(content)
		clear(want[44:48])
		same(t, c.path, want)
	}
}

func TestAFailedFreeze(t *testing.T) {
	for _, version := range []dialect.Version{dialect.Versions[2], nine(t)} {
		v := newVolume(t)
		thawed := filepath.Join(v.control, "thawed")
		src := Source{
			Device: v.device, Tracker: "auto", Cluster: DefaultCluster,
			Freeze: &hooks.Command{Argv: []string{"/bin/sh", "-c", "echo the container is stubborn >&2; exit 3"}},
			Thaw:   &hooks.Command{Argv: []string{"touch", thawed}},
		}
		c := join(t, version, version.Answers).run(t, src, volumeSize, nil)
		says(t, c.sendErr, dialect.System, "exit status 3: the container is stubborn")
		says(t, c.recvErr, dialect.Read, "the stream ended after 0 of ")
		gone(t, c.path)
		if _, err := os.Stat(thawed); err != nil {
			t.Error("the thaw command was not run:", err)
		}
		if v.frozen() {
			t.Error("the file system was left frozen")
		}
	}
}

// Somebody who writes to the device past its frozen file system is found, and the
// copy is no copy.
func TestWritesPastTheFreeze(t *testing.T) {
	v := newVolume(t)
	dev, err := os.OpenFile(v.device, os.O_RDWR|unix.O_DIRECT, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	frozen := filepath.Join(v.control, "freeze")
	b := aligned(4096)
	p := join(t, dialect.Versions[2], true)
	// Whenever something is sent after the freeze, something else is written.
	p.sender = &meddling{p.sender, func() {
		if _, err := os.Stat(frozen); err != nil {
			return
		}
		b[0]++
		if _, err := dev.WriteAt(b, volumeSize-4096); err != nil { // where no file is
			t.Error(err)
		}
	}}
	src := Source{
		Device: v.device, Tracker: "auto", Cluster: DefaultCluster, Fresh: true,
		Freeze: &hooks.Command{Argv: []string{"/bin/sh", "-c", `date >"$0" && cp "$0" "$1"`, frozen, v.mountpoint}},
	}
	c := p.run(t, src, volumeSize, nil)
	says(t, c.sendErr, dialect.Loop, "too many iterations on a frozen file system, aborting")
	gone(t, c.path)
	if v.frozen() {
		t.Error("the file system was left frozen")
	}
}

// meddling does something before each frame.
type meddling struct {
	dialect.Sender
	meddle func()
}

func (m *meddling) Write(f *frame) error {
	m.meddle()
	return m.Sender.Write(f)
}

func aligned(n int) []byte {
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		panic(err)
	}
	return b
}

func nine(t *testing.T) dialect.Version {
	t.Helper()
	v, err := dialect.Find("ploop-9")
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// What a receiver may not do, whatever it is sent.
func TestReceiverStaysWhereItWasTold(t *testing.T) {
	one := dialect.Versions[0]
	for _, c := range []struct {
		name string
		send func(p pair) error
		v    dialect.Version
		code dialect.Code
		says string
	}{
		{"behind the limit", func(p pair) error { return p.sender.Write(data(1<<20-1, "ab")) }, one, dialect.Protocol, "the sender names 2 bytes at 1048575, and the image has 1048576 at most: pass a larger --max-size"},
		{"far behind", func(p pair) error { return p.sender.Write(data(1<<61, "ab")) }, one, dialect.Protocol, "the sender names 2 bytes at 2305843009213693952"},
		{"no end", func(p pair) error { return p.sender.Write(data(0, "data")) }, one, dialect.Read, "the stream ended after 0 of 16 bytes of a header"},
		{"behind the disk that was asked for", func(p pair) error {
			return errors.Join(p.init(4096), p.sender.Write(data(4000, strings.Repeat("x", 97))))
		}, nine(t), dialect.Protocol, "the sender names 97 bytes at 4000, and the image has 4096 at most"},
		{"a disk beyond the limit", func(p pair) error { return p.init(1 << 30) }, nine(t), dialect.Protocol, "the sender asks for a disk of 1073741824 bytes, and 1048576 are allowed here: pass a larger --max-size"},
		{"two disks", func(p pair) error { return errors.Join(p.init(4096), p.init(8192)) }, nine(t), dialect.Protocol, "asks for a disk of 8192 bytes when one is being written already"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "received")
			p := join(t, c.v, false)
			ended := make(chan error, 1)
			go func() {
				_, err := Receive(context.Background(), p.receiver, path, 1<<20, nil)
				ended <- err
				p.cut()
			}()
			_ = c.send(p)
			p.cut()
			says(t, <-ended, c.code, c.says)
			gone(t, path)
			if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
				t.Errorf("%v was left: %v", left, err)
			}
		})
	}
}

func data(pos int64, b string) *wire.Frame {
	return &wire.Frame{Type: wire.Data, Pos: pos, Length: int64(len(b)), Payload: []byte(b)}
}

// init asks a 9.x receiver for a disk.
func (p pair) init(size int64) error {
	l := p.sender.(*lazy)
	s, err := l.make(size)
	if err == nil {
		l.Sender = s
	}
	return err
}

func TestReceiverNeverReplacesAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "received")
	if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := join(t, dialect.Versions[2], false)
	_, err := Receive(context.Background(), p.receiver, path, 1<<20, nil)
	says(t, err, dialect.Create, "exists already, and a new image never replaces a file")
	if b, err := os.ReadFile(path); err != nil || string(b) != "mine" {
		t.Errorf("%q, %v", b, err)
	}
}

// A probe is no more than that: it finds a receiver that knows feedback, and
// nothing is written.
func TestProbe(t *testing.T) {
	p := join(t, dialect.Versions[2], true)
	p.cut()
	_, err := Receive(context.Background(), p.receiver, os.DevNull, 1<<20, nil)
	if exitCode(err) == int(dialect.Parameter) {
		t.Errorf("a probe would take this for an old peer: %v", err)
	}
	if info, err := os.Stat(os.DevNull); err != nil || info.Mode()&os.ModeCharDevice == 0 {
		t.Fatal("/dev/null is gone", err)
	}
}

func TestSendRefuses(t *testing.T) {
	dir := t.TempDir()
	odd, empty := filepath.Join(dir, "odd"), filepath.Join(dir, "empty")
	for path, n := range map[string]int64{odd: 1000, empty: 0} {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(path, n); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		src  Source
		code dialect.Code
		says string
	}{
		{Source{Cluster: 1 << 20}, dialect.Parameter, "no device was named"},
		{Source{Device: odd, Cluster: 1000}, dialect.Parameter, "clusters of 1000 bytes cannot be sent: choose a power of two from 4096 to 16777216"},
		{Source{Device: odd, Cluster: 32 << 20}, dialect.Parameter, "clusters of 33554432 bytes cannot be sent"},
		{Source{Device: odd, Cluster: 1 << 20}, dialect.Parameter, "1000 bytes are no whole number of sectors"},
		{Source{Device: empty, Cluster: 1 << 20}, dialect.Parameter, "0 bytes are no whole number of sectors"},
		{Source{Device: filepath.Join(dir, "nothing"), Cluster: 1 << 20}, dialect.Device, "no such file or directory"},
		{Source{Device: odd, Image: filepath.Join(dir, "nothing"), Cluster: 1 << 20}, dialect.Open, "no such file or directory"},
	} {
		p := join(t, dialect.Versions[2], false)
		_, err := Send(context.Background(), p.sender, c.src, nil)
		says(t, err, c.code, c.says)
	}
}

// A receiver whose disk is full keeps nothing, and says so where it can.
func TestFullDisk(t *testing.T) {
	needRoot(t)
	mnt := t.TempDir()
	if err := unix.Mount("small", mnt, "tmpfs", 0, "size=4m"); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Unmount(mnt, 0); err != nil {
			t.Error(err)
		}
	}()
	src := filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(src, noise(8<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	versions(t, func(t *testing.T, version dialect.Version, feedback bool) {
		p := join(t, version, feedback)
		path := filepath.Join(mnt, "received")
		ended := make(chan error, 1)
		go func() {
			_, err := Receive(context.Background(), p.receiver, path, 1<<40, nil)
			p.close()
			ended <- err
		}()
		_, err := Send(context.Background(), p.sender, Source{Device: src, Tracker: passes.Untracked, Cluster: 1 << 20}, nil)
		// Without an answer the old way knows nothing of the other side but that it
		// is gone, and by then it may have taken everything.
		if err == nil && (feedback || version.Packets) {
			t.Error("the sender believes that all is well")
		}
		says(t, <-ended, dialect.Write, "no space left on device")
		gone(t, path)
	})
}
