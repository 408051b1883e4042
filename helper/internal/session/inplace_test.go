package session

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/livefleet/handover/helper/internal/fsid"
	"github.com/livefleet/handover/helper/internal/hooks"
	"github.com/livefleet/handover/helper/internal/loop"
	"github.com/livefleet/handover/helper/internal/session/record"
	"github.com/livefleet/handover/helper/internal/session/recovery"
)

// stoppedAt is a source that has stopped its workload, in a session that has come to
// a state; and the file that says that the workload was started again.
func (r *rig) stoppedAt(way ...record.State) (started string) {
	r.t.Helper()
	started = filepath.Join(r.control, "started")
	spec := r.spec.src
	spec.Mode, spec.Trees, spec.Directories, spec.Network = record.Offline, nil, nil, record.Network{}
	spec.Bundle = filepath.Join(r.top, "bundle")
	stop := &hooks.Command{Argv: []string{"true"}}
	spec.Hooks = record.Hooks{Freeze: stop, Thaw: &hooks.Command{Argv: []string{"touch", started}}}
	r.write(r.src, spec)
	loaded, err := record.LoadSpec(r.src)
	if err != nil {
		r.t.Fatal(err)
	}
	if err := record.NoteVolumes(r.src, loaded); err != nil {
		r.t.Fatal(err)
	}
	j, err := record.OpenJournal(r.src, record.Source)
	if err != nil {
		r.t.Fatal(err)
	}
	goAlong(r.t, j, way...)
	j.Close()
	return started
}

// refusesToStart fails the test unless neither the recovery nor anybody else starts
// the source's workload, and the reason is given.
func (r *rig) refusesToStart(started, why string) {
	r.t.Helper()
	for range 2 { // as often as it is tried
		if _, err := recovery.Recover(brief(r.t), r.src, r.srcRun, false); err == nil || !strings.Contains(err.Error(), why) {
			r.t.Errorf("recovered: %v, and %q was expected", err, why)
		}
	}
	if _, err := os.Lstat(started); !errors.Is(err, os.ErrNotExist) {
		r.t.Error("the workload was started")
	}
	if err := r.srcMayStart(); err == nil || !strings.Contains(err.Error(), "does not start: its volume data") {
		r.t.Errorf("the engine may start it: %v", err)
	}
}

func (r *rig) srcMayStart() error {
	return recovery.MayStart(brief(r.t), r.top, r.srcRun, &recovery.OCIState{Bundle: filepath.Join(r.top, "bundle")})
}

// The source loses power when its workload is stopped and not handed over. At the
// boot the recovery comes before the volume's mount, or the mount fails, or something
// else is mounted there: nothing starts until the volume is in place, whichever comes
// first. Then the recovery starts the workload, at every step of the offline mode.
func TestAfterAPowerCutNothingStartsWithoutItsVolume(t *testing.T) {
	for n := 2; n <= 5; n++ { // barrier, frozen, flushed, prepared
		way := theWay[:n]
		t.Run(string(way[n-1]), func(t *testing.T) {
			r := newRig(t)
			started := r.stoppedAt(way...)
			if err := loop.Unmount(r.mountpoint); err != nil {
				t.Fatal(err)
			}
			restartHost(t, r.src, r.srcRun)
			r.refusesToStart(started, "its volume data is not mounted on")

			// Another file system in its place.
			other := filepath.Join(r.top, "other.img")
			for _, argv := range [][]string{{"truncate", "-s", "16M", other}, {"mkfs.ext4", "-q", other}} {
				if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
			}
			if err := loop.MountImage(other, r.mountpoint, "ext4", ""); err != nil {
				t.Fatal(err)
			}
			r.refusesToStart(started, other+" is mounted on")
			if err := loop.Unmount(r.mountpoint); err != nil {
				t.Fatal(err)
			}

			if err := loop.Mount(r.device, r.mountpoint, "ext4", "noatime"); err != nil {
				t.Fatal(err)
			}
			r.recovered(r.src, r.srcRun, record.Thawed)
			if _, err := os.Lstat(started); err != nil {
				t.Errorf("with its volume it was not started: %v", err)
			}
			if err := r.srcMayStart(); err != nil {
				t.Errorf("with its volume: %v", err)
			}
		})
	}
}

// After a boot nothing is frozen. A session that starts nothing comes to its end also
// where its volume does not come back.
func TestAfterAPowerCutASessionEndsWithoutItsVolume(t *testing.T) {
	for _, c := range []struct {
		way []record.State
		end record.State
	}{{theWay[:1], record.Failed}, {theWay[:8], record.Done}} {
		t.Run(string(c.end), func(t *testing.T) {
			r := newRig(t)
			started := r.stoppedAt(c.way...)
			if err := loop.Unmount(r.mountpoint); err != nil {
				t.Fatal(err)
			}
			restartHost(t, r.src, r.srcRun)
			r.recovered(r.src, r.srcRun, c.end)
			if _, err := os.Lstat(started); !errors.Is(err, os.ErrNotExist) {
				t.Error("the workload was started")
			}
			if err := r.srcMayStart(); err == nil {
				t.Error("the engine may start it")
			}
		})
	}
}

// Without a boot a file system may be frozen that nobody can reach by its mount point
// any more: its session is not over.
func TestWithoutABootAVolumeThatIsGoneIsNotForgotten(t *testing.T) {
	r := newRig(t)
	r.stoppedAt(theWay[:8]...)
	if err := loop.Unmount(r.mountpoint); err != nil {
		t.Fatal(err)
	}
	if _, err := recovery.Recover(brief(t), r.src, r.srcRun, false); err == nil || !strings.Contains(err.Error(), "no file system is mounted here") {
		t.Errorf("recovered: %v", err)
	}
	if s, err := record.Show(r.src); err != nil || s.State != record.Settled {
		t.Errorf("%+v, %v", s, err)
	}
}

// Refused after the boot: the session waits for the volume, and says for which.
func TestARefusedSourceWaitsForItsVolume(t *testing.T) {
	r := newRig(t)
	started := r.stoppedAt(append(append([]record.State{}, theWay[:6]...), record.Refused)...)
	if err := loop.Unmount(r.mountpoint); err != nil {
		t.Fatal(err)
	}
	restartHost(t, r.src, r.srcRun)
	if _, err := recovery.Recover(brief(t), r.src, r.srcRun, false); err == nil || !strings.Contains(err.Error(), "does not start: its volume data is not mounted") {
		t.Errorf("recovered: %v", err)
	}
	if _, err := os.Lstat(started); !errors.Is(err, os.ErrNotExist) {
		t.Error("the workload was started")
	}
	if err := loop.Mount(r.device, r.mountpoint, "ext4", "noatime"); err != nil {
		t.Fatal(err)
	}
	r.recovered(r.src, r.srcRun, record.Thawed)
	if _, err := os.Lstat(started); err != nil {
		t.Errorf("with its volume it was not started: %v", err)
	}
}

// Without any session: the folder under a mount point is marked, and a container that
// would see it is not started.
func TestNothingStartsOnTheFolderForAVolume(t *testing.T) {
	r := newRig(t)
	bundle := filepath.Join(r.top, "bundle")
	if err := os.Mkdir(bundle, 0o700); err != nil {
		t.Fatal(err)
	}
	config := fmt.Sprintf(`{"mounts": [{"destination": "/proc", "source": "proc"}, {"destination": "/data", "source": %q}, {"destination": "/gone", "source": "/nothing/there"}]}`, r.mountpoint)
	if err := os.WriteFile(filepath.Join(bundle, "config.json"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := fsid.Guard(r.mountpoint); errors.Is(err, fsid.ErrNoMarks) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	start := func() error {
		return recovery.MayStart(brief(t), filepath.Join(r.top, "none"), r.srcRun, &recovery.OCIState{Bundle: bundle})
	}
	if err := start(); err != nil {
		t.Errorf("with its volume: %v", err)
	}
	if err := loop.Unmount(r.mountpoint); err != nil {
		t.Fatal(err)
	}
	if err := start(); err == nil || !strings.Contains(err.Error(), "the volume that it has on /data is not mounted") {
		t.Errorf("without its volume: %v", err)
	}
	config = fmt.Sprintf(`{"root": {"path": %q}, "mounts": [{"destination": "/proc", "source": "proc"}]}`, r.mountpoint)
	if err := os.WriteFile(filepath.Join(bundle, "config.json"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := start(); err == nil || !strings.Contains(err.Error(), "the volume that it has on / is not mounted") {
		t.Errorf("without the volume that is its root: %v", err)
	}
}

// Of several containers that move as one, the hook knows each.
func TestNoMemberStartsBesideTheOthers(t *testing.T) {
	r := newRig(t)
	r.stoppedAt(theWay[:4]...)
	spec := r.spec.src
	spec.Mode, spec.Trees, spec.Directories, spec.Network = record.Offline, nil, nil, record.Network{}
	members := []string{filepath.Join(r.top, "web"), filepath.Join(r.top, "db")}
	spec.Bundle, spec.Bundles = "", members
	stop := &hooks.Command{Argv: []string{"true"}}
	spec.Hooks = record.Hooks{Freeze: stop, Thaw: stop}
	r.write(r.src, spec)
	j, err := record.OpenJournal(r.src, record.Source)
	if err != nil {
		t.Fatal(err)
	}
	goAlong(t, j, theWay[4:6]...)
	state := j.State()
	j.Close()
	for _, bundle := range members {
		if err := recovery.MayStart(brief(t), r.top, r.srcRun, &recovery.OCIState{Bundle: bundle}); err == nil {
			t.Errorf("%s starts in the state %s", bundle, state)
		}
	}
	if err := recovery.MayStart(brief(t), r.top, r.srcRun, &recovery.OCIState{Bundle: filepath.Join(r.top, "other")}); err != nil {
		t.Errorf("a container that is no member: %v", err)
	}
}
