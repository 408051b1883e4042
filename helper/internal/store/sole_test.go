package store

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/image/qcow2"
)

// waysToAsk are file systems by their answer to a lease; nil: the kernel's own.
var waysToAsk = map[string]error{
	"leases":       nil,
	"no leases":    unix.EINVAL,
	"no locks":     unix.ENOLCK,
	"unsupported":  unix.EOPNOTSUPP,
	"no one's own": unix.EAGAIN, // as of an NFS server that delegates nothing
}

// asks sets one of these, and short times.
func asks(t *testing.T, refused error, within time.Duration) {
	t.Helper()
	lease, kinds, longest, pause := leaseOf, remote, closedWithin, closedEvery
	t.Cleanup(func() { leaseOf, remote, closedWithin, closedEvery = lease, kinds, longest, pause })
	closedWithin, closedEvery = within, 10*time.Millisecond
	if refused == nil {
		return
	}
	leaseOf = func(*os.File, int) error { return refused }
	var fs unix.Statfs_t
	if err := unix.Statfs(t.TempDir(), &fs); err != nil {
		t.Fatal(err)
	}
	remote = append(remote, uint32(fs.Type))
}

// imageWith is an image of two clusters, with so many of them written.
func imageWith(t *testing.T, clusters int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "vda.qcow2")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w, err := qcow2.NewWriter(f, 2*cluster)
	if err != nil {
		t.Fatal(err)
	}
	for c := range int64(clusters) {
		if _, err := w.WriteAt([]byte(strings.Repeat("x", cluster)), c*cluster); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestAnImageIsReadOnceItsWriterHasClosedIt(t *testing.T) {
	for name, refused := range waysToAsk {
		t.Run(name, func(t *testing.T) {
			asks(t, refused, time.Minute)
			path := imageWith(t, 0)
			whole, err := os.ReadFile(imageWith(t, 2))
			if err != nil {
				t.Fatal(err)
			}
			writer, err := os.OpenFile(path, os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			wrote := make(chan error, 1)
			go func() {
				time.Sleep(200 * time.Millisecond)
				_, err := writer.WriteAt(whole, 0)
				wrote <- err
				writer.Close()
			}()
			i, err := OpenGiven(path, 2*cluster)
			if err := <-wrote; err != nil {
				t.Fatal(err)
			}
			if err != nil {
				t.Fatal(err)
			}
			defer i.Close()
			found := 0
			if err := i.g.image.Each(func(_, _ int64) error { found++; return nil }); err != nil || found != 2 {
				t.Fatalf("%d clusters of 2 were found, %v", found, err)
			}
			// The lease was given back: another can open it.
			other, err := os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK, 0)
			if err != nil {
				t.Fatal(err)
			}
			other.Close()
		})
	}
}

func TestAnImageThatStaysOpenIsRefused(t *testing.T) {
	for name, refused := range waysToAsk {
		t.Run(name, func(t *testing.T) {
			asks(t, refused, 50*time.Millisecond)
			path := imageWith(t, 2)
			if err := os.Truncate(path, 4*cluster+1); err != nil {
				t.Fatal(err)
			}
			reader, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer reader.Close()
			if _, err := OpenGiven(path, 2*cluster); err == nil || !strings.Contains(err.Error(), "another process still has it open after 50ms") {
				t.Fatal(err)
			}
			if st, err := os.Stat(path); err != nil || st.Size() != 4*cluster+1 {
				t.Fatal("its length was changed", err)
			}
		})
	}
}

func TestAnotherErrorOfALeaseIsNoLeave(t *testing.T) {
	asks(t, unix.EACCES, time.Minute)
	if _, err := OpenGiven(imageWith(t, 1), 2*cluster); err == nil || !strings.Contains(err.Error(), "whether it is open elsewhere: permission denied") {
		t.Fatal(err)
	}
}
