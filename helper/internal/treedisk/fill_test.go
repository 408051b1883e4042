package treedisk

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/hooks"
	"github.com/livefleet/handover/helper/internal/hooks/cgrouptest"
	"github.com/livefleet/handover/helper/internal/loop"
	"github.com/livefleet/handover/helper/internal/tree"
)

// appending writes a number to a file and then notes it in another, without end.
const appending = `
import itertools, os, sys
os.chdir(sys.argv[1])
grows, other = open("grows", "ab", 0), open("other", "ab", 0)
for n in itertools.count():
    grows.write(b"%d\n" % n)
    other.write(b"%d\n" % n)
    os.makedirs("churn/%d" % (n % 9), exist_ok=True)
    os.rename("churn/%d" % (n % 9), "churn/moved-%d" % (n % 5)) if not os.path.exists("churn/moved-%d" % (n % 5)) else os.rmdir("churn/moved-%d" % (n % 5))
`

// home is a folder with a workload that writes to it, and an empty image for it.
type home struct {
	t                           *testing.T
	folder, away, image, cgroup string
	runs                        func() bool
}

func newHome(t *testing.T) *home {
	t.Helper()
	h := &home{t: t, folder: filepath.Join(t.TempDir(), "data"), image: filepath.Join(t.TempDir(), "a.img")}
	h.cgroup, h.runs = cgrouptest.New(t)
	h.away = filepath.Join(filepath.Dir(h.folder), ".kept", "data")
	h.must(os.Mkdir(h.folder, 0o751))
	h.must(os.Chown(h.folder, 1234, 77))
	owned := filepath.Join(h.folder, "owned")
	h.must(os.WriteFile(owned, []byte("content"), 0o640))
	h.must(os.Chown(owned, 1234, 5678))
	h.must(os.Chmod(owned, 0o4751))
	h.must(unix.Setxattr(owned, "user.note", []byte("a note"), 0))
	h.must(os.Link(owned, filepath.Join(h.folder, "hard link")))
	h.must(os.Symlink("/nowhere", filepath.Join(h.folder, "symbolic link")))
	h.must(os.Chtimes(h.folder, time.Unix(1, 2), time.Unix(3, 4)))
	h.must(os.WriteFile(h.image, nil, 0o600))
	h.must(os.Truncate(h.image, 64<<20))
	if out, err := exec.Command("mkfs.ext4", "-q", "-F", "-b", "4096", h.image).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if out, err := exec.Command("debugfs", "-w", "-R", "rmdir lost+found", h.image).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return h
}

func (h *home) must(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

func (h *home) begin() {
	h.t.Helper()
	p := exec.Command("python3", "-c", appending, h.folder)
	h.must(p.Start())
	h.t.Cleanup(func() { _ = p.Process.Kill(); _ = p.Wait() })
	h.must(os.WriteFile(filepath.Join(h.cgroup, "cgroup.procs"), []byte(strconv.Itoa(p.Process.Pid)), 0))
	for until := time.Now().Add(time.Minute); !there(filepath.Join(h.folder, "other")); time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			h.t.Fatal("the workload does not begin")
		}
	}
}

// stopping kills what runs, and waits for it.
func (h *home) stopping() Filling {
	stop := "echo 1 > " + h.cgroup + "/cgroup.kill; while grep -q 'populated 1' " + h.cgroup + "/cgroup.events; do sleep 0.01; done"
	return Filling{
		Folder: h.folder, Image: h.image, Type: "ext4", Away: h.away, Cgroup: hooks.Cgroup(h.cgroup),
		Stop: &hooks.Command{Argv: []string{"/bin/sh", "-c", stop}},
	}
}

func (h *home) digest(folder string) string {
	h.t.Helper()
	d, _, err := tree.Digest(context.Background(), folder)
	h.must(err)
	return d
}

// content is the digest of the files in the image.
func (h *home) content() string {
	h.t.Helper()
	f, err := loop.OpenImage(h.image, "ext4", true, nil)
	h.must(err)
	defer func() { h.must(errors.Join(f.Close(), awaitDetached(h.image))) }()
	return h.digest("/proc/self/fd/" + strconv.Itoa(int(f.Fd())))
}

func TestAnImageIsTheFolderOfAWorkloadThatWasStopped(t *testing.T) {
	h := newHome(t)
	h.begin()
	done, err := Fill(context.Background(), h.stopping())
	h.must(err)
	if done.Passes < 2 || done.Bytes == 0 || done.StopMS <= 0 || done.LastMS <= 0 {
		t.Errorf("%+v", done)
	}
	if there(h.folder) {
		t.Error("the folder has its name still")
	}
	if h.content() != h.digest(h.away) {
		t.Error("the image is not the folder")
	}
	if dev, err := loop.DeviceOf(h.image); err != nil || dev != "" {
		t.Errorf("%q %v", dev, err)
	}
	// A run that was killed before it could prove anything is made good by another.
	h.must(os.WriteFile(filepath.Join(h.away, "late"), []byte("late"), 0o600))
	h.must(os.Remove(filepath.Join(h.away, "hard link")))
	_, err = Fill(context.Background(), Filling{Folder: h.away, Image: h.image, Type: "ext4", Again: true})
	h.must(err)
	if h.content() != h.digest(h.away) {
		t.Error("the image is not the folder the second time")
	}
}

// leaving dumps nothing, and ends the workload as one that was dumped ends.
func (h *home) leaving() Filling {
	f := h.stopping()
	stop := f.Stop
	f.Stop, f.Cgroup = nil, ""
	f.Leave = func(ctx context.Context, pass, last func(context.Context) error) (time.Time, error) {
		if err := pass(ctx); err != nil {
			return time.Time{}, err
		}
		c := hooks.Cgroup(h.cgroup)
		began, err := c.Freeze(ctx)
		if err == nil {
			err = last(ctx)
		}
		if err != nil {
			return began, errors.Join(err, c.Thaw())
		}
		return began, stop.Run(ctx)
	}
	return f
}

func TestAnImageIsTheFolderOfAWorkloadThatWasDumped(t *testing.T) {
	h := newHome(t)
	h.begin()
	done, err := Fill(context.Background(), h.leaving())
	h.must(err)
	if done.Passes < 3 || done.Bytes == 0 || done.StopMS <= 0 || done.LastMS <= 0 {
		t.Errorf("%+v", done)
	}
	if there(h.folder) || h.content() != h.digest(h.away) {
		t.Error("the image is not the folder")
	}
}

func TestAWorkloadThatWasToBeDumpedHasItsFolderAfterAnError(t *testing.T) {
	defer func() { beforeTheLook = func() {} }()
	for name, c := range map[string]struct {
		change func(*home, *Filling)
		says   string
	}{
		"a stranger writes": {func(h *home, _ *Filling) {
			beforeTheLook = func() { h.must(os.WriteFile(filepath.Join(h.away, "stranger"), nil, 0o600)) }
		}, "something outside of the workload writes to it: stranger"},
		"its dump fails": {func(_ *home, f *Filling) {
			leave := f.Leave
			f.Leave = func(ctx context.Context, pass, last func(context.Context) error) (time.Time, error) {
				return leave(ctx, pass, func(ctx context.Context) error { return errors.Join(last(ctx), errors.New("CRIU was killed")) })
			}
		}, "CRIU was killed"},
	} {
		t.Run(name, func(t *testing.T) {
			beforeTheLook = func() {}
			h := newHome(t)
			h.begin()
			f := h.leaving()
			c.change(h, &f)
			_, err := Fill(context.Background(), f)
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v", err)
			}
			if !there(filepath.Join(h.folder, "owned")) || there(h.away) {
				t.Error("the folder has lost its name")
			}
			if !h.runs() {
				t.Error("the workload stands still")
			}
			h.must(awaitDetached(h.image))
		})
	}
}

func TestAFolderKeepsItsNameAfterAnError(t *testing.T) {
	defer func() { beforeTheLook = func() {} }()
	for name, c := range map[string]struct {
		change func(*home, *Filling)
		says   string
	}{
		"a stranger writes": {func(h *home, _ *Filling) {
			beforeTheLook = func() { h.must(os.WriteFile(filepath.Join(h.away, "stranger"), nil, 0o600)) }
		}, "something outside of the workload writes to it: stranger"},
		"the workload does not stop": {func(_ *home, f *Filling) { f.Stop.Argv = []string{"true"} }, "after the command that stops the workload"},
		"the command fails":          {func(_ *home, f *Filling) { f.Stop.Argv = []string{"false"} }, "stopping the workload"},
		"the other name is taken":    {func(h *home, _ *Filling) { h.must(os.MkdirAll(h.away, 0o700)) }, "is there already: see what it is"},
		"no room": {func(h *home, _ *Filling) {
			h.must(os.WriteFile(filepath.Join(h.folder, "large"), make([]byte, 80<<20), 0o600))
		}, "no space left on device"},
		"another process fills it": {func(h *home, f *Filling) {
			lock, err := f.lock()
			h.must(err)
			h.t.Cleanup(func() { h.must(lock.Close()) })
		}, "is being filled by another process"},
		"it stands still": {func(h *home, _ *Filling) {
			_, err := hooks.Cgroup(h.cgroup).Freeze(context.Background())
			h.must(err)
		}, "for a move or by somebody's hand"},
	} {
		t.Run(name, func(t *testing.T) {
			beforeTheLook = func() {}
			h := newHome(t)
			h.begin()
			f := h.stopping()
			c.change(h, &f)
			_, err := Fill(context.Background(), f)
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v", err)
			}
			if !there(filepath.Join(h.folder, "owned")) {
				t.Error("the folder has lost its name")
			}
			h.must(awaitDetached(h.image))
		})
	}
}
