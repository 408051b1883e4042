package ploopcopy

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/livefleet/handover/helper/internal/hooks"
	"github.com/livefleet/handover/helper/internal/passes"
	"github.com/livefleet/handover/helper/internal/tracker"
	"github.com/livefleet/handover/helper/internal/wire/dialect"
)

// A copy within a host, of a volume that is written to, is the volume when it was frozen.
func TestALocalCopy(t *testing.T) {
	v := newVolume(t)
	v.writer()
	time.Sleep(50 * time.Millisecond)
	path := filepath.Join(t.TempDir(), "copy")
	l, err := NewLocal(path)
	if err != nil {
		t.Fatal(err)
	}
	var want []byte
	src := Source{
		Device: v.device, Tracker: "auto", Cluster: MaxCluster, Fresh: true,
		Freeze: &hooks.Command{Argv: []string{"touch", filepath.Join(v.control, "freeze")}},
	}
	_, err = Send(t.Context(), &ending{l, func() { want = v.content() }}, src, nil)
	if err := errors.Join(err, l.Close()); err != nil {
		t.Fatal(err)
	}
	same(t, path, want)
	if v.frozen() {
		t.Error("the file system was left frozen")
	}
	sparse(t, path, want)
}

func TestALocalCopyThatFails(t *testing.T) {
	dir := t.TempDir()
	image, path := filepath.Join(dir, "image"), filepath.Join(dir, "copy")
	if err := os.WriteFile(image, noise(4<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	send := func(ctx context.Context, l *Local, src Source) error {
		src.Device, src.Tracker, src.Cluster = image, passes.Untracked, 1<<20
		_, err := Send(ctx, l, src, nil)
		return errors.Join(err, l.Close())
	}
	l, err := NewLocal(path)
	if err != nil {
		t.Fatal(err)
	}
	says(t, send(t.Context(), l, Source{Freeze: &hooks.Command{Argv: []string{"false"}}}), dialect.System, "exit status 1")
	gone(t, path)

	if l, err = NewLocal(path); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errors.New("told to stop"))
	says(t, send(ctx, l, Source{}), 1, "told to stop")
	gone(t, path)

	// A file of the caller's stays, and one that is there is not replaced.
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if l, err = LocalFile(f); err != nil {
		t.Fatal(err)
	}
	says(t, send(t.Context(), l, Source{Freeze: &hooks.Command{Argv: []string{"false"}}}), dialect.System, "exit status 1")
	if _, err := os.Stat(path); err != nil {
		t.Error("the caller's file is gone:", err)
	}
	_, err = NewLocal(path)
	says(t, err, dialect.Create, "exists already, and a new image never replaces a file")
	for flags, text := range map[int]string{os.O_RDWR: "the file has 4194304 bytes already", os.O_WRONLY | os.O_APPEND: "the file is open for appending"} {
		if f, err = os.OpenFile(image, flags, 0); err != nil {
			t.Fatal(err)
		}
		_, err := LocalFile(f)
		says(t, err, 1, text)
		f.Close()
	}
}

func TestBelowAPloopDevice(t *testing.T) {
	sys := t.TempDir()
	put := func(path, text string) {
		path = filepath.Join(sys, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	dev := filepath.Join(t.TempDir(), "ploop12345")
	if err := os.WriteFile(dev, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	asked := Source{Device: dev, Tracker: tracker.Auto, Cluster: DefaultCluster}
	find := func(s Source) (Source, error) {
		err := s.below(sys)
		return s, err
	}
	if s, err := find(asked); err != nil || s != asked {
		t.Errorf("a device that is no ploop device: %+v, %v", s, err)
	}
	put("ploop12345/pstate/top", "1\n")
	_, err := find(asked)
	says(t, err, 1, "the kernel does not say which image is below the device")
	put("ploop12345/pdelta/1/image", "/vz/private/101/root.hdd/a name.hds\n")
	put("ploop12345/pdelta/1/format", "ploop1\n")
	put("ploop12345/pstate/block_size", "32768\n")
	want := Source{Device: dev, Image: "/vz/private/101/root.hdd/a name.hds", Tracker: tracker.Ploop, Cluster: MaxCluster}
	if s, err := find(asked); err != nil || s != want {
		t.Errorf("%+v, %v", s, err)
	}
	put("ploop12345/pdelta/1/format", "raw\n")
	want.Raw = true
	if s, err := find(asked); err != nil || s != want {
		t.Errorf("%+v, %v", s, err)
	}
	for _, own := range []Source{{Device: dev, Tracker: tracker.Hash}, {Device: dev, Tracker: tracker.Auto, Image: "/other"}} {
		if s, err := find(own); err != nil || s != own {
			t.Errorf("the caller's own words were changed: %+v, %v", s, err)
		}
	}
	put("ploop12345/pstate/block_size", "65536\n")
	_, err = find(asked)
	says(t, err, 1, `the kernel says that its clusters have "65536" sectors`)
}
