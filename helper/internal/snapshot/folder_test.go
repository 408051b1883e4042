package snapshot

import (
	"bytes"
	"context"
	"encoding/json"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/hooks"
	"github.com/livefleet/handover/helper/internal/hooks/cgrouptest"
	"github.com/livefleet/handover/helper/internal/store"
	"github.com/livefleet/handover/helper/internal/tree"
	"github.com/livefleet/handover/helper/internal/treedisk"
)

// writing is a workload with a folder: it writes one number to two places, one after the
// other, makes and removes files, and never ends.
const writing = `
import os, sys, itertools
os.chdir(sys.argv[1])
for d in ("a", "b", "churn"): os.makedirs(d, exist_ok=True)
grows = open("grows", "ab", 0)
for n in itertools.count():
    for d in ("a", "b"):
        with open(d + "/new", "w") as f: f.write(str(n))
        os.rename(d + "/new", d + "/number")
    os.makedirs("churn/%d/deep" % (n % 7), exist_ok=True)
    with open("churn/%d/deep/file" % (n % 7), "w") as f: f.write("x" * (n % 20000))
    if n % 5 == 0: os.rename("churn/%d" % (n % 7), "churn/moved-%d" % n)
    if n % 50 == 49: os.system("rm -r churn/moved-*")
    grows.write(b"line %d\n" % n)
`

// tenant is a workload whose folder has every kind of entry.
type tenant struct {
	*bench
	folder string
	cgroup string
	runs   func() bool
}

func newTenant(t *testing.T) *tenant {
	b := newBench(t, "ext4")
	w := &tenant{bench: b, folder: filepath.Join(b.dir, "folder")}
	w.cgroup, w.runs = cgrouptest.New(t)
	b.must(os.Mkdir(w.folder, 0o751))
	at := func(name string) string { return filepath.Join(w.folder, name) }
	b.must(os.WriteFile(at("owned"), []byte("content"), 0o640))
	b.must(os.Chown(at("owned"), 1234, 5678))
	b.must(os.Chmod(at("owned"), 0o4751))
	b.must(unix.Setxattr(at("owned"), "user.note", []byte(strings.Repeat("long", 300)), 0))
	b.must(os.Link(at("owned"), at("hard link")))
	b.must(os.Symlink("/nowhere/at/all", at("symbolic link")))
	sparse, err := os.Create(at("sparse"))
	b.must(err)
	_, err = sparse.WriteAt([]byte("end"), 40<<20)
	b.must(err)
	b.must(sparse.Close())
	b.must(unix.Mknod(at("device"), unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))))
	b.must(unix.Mkfifo(at("fifo"), 0o622))
	// user::rwx user:4321:r group::r-x mask::r-x other::--x
	acl := "\x02\x00\x00\x00" + "\x01\x00\x07\x00\xff\xff\xff\xff" + "\x02\x00\x04\x00\xe1\x10\x00\x00" + "\x04\x00\x05\x00\xff\xff\xff\xff" +
		"\x10\x00\x05\x00\xff\xff\xff\xff" + "\x20\x00\x01\x00\xff\xff\xff\xff"
	b.must(unix.Setxattr(at("owned"), "system.posix_acl_access", []byte(acl), 0))
	b.must(os.Mkdir(at("empty"), 0o700))
	b.must(os.Chtimes(at("empty"), time.Unix(1, 2), time.Unix(3, 4)))
	return w
}

func (w *tenant) begin() {
	w.t.Helper()
	p := exec.Command("python3", "-c", writing, w.folder)
	p.Stderr = os.Stderr
	w.must(p.Start())
	w.t.Cleanup(func() { _ = hooks.Cgroup(w.cgroup).Thaw(); _ = p.Process.Kill(); _ = p.Wait() })
	w.must(os.WriteFile(filepath.Join(w.cgroup, "cgroup.procs"), []byte(strconv.Itoa(p.Process.Pid)), 0))
	for until := time.Now().Add(time.Minute); time.Now().Before(until); time.Sleep(time.Millisecond) {
		if _, err := os.Stat(filepath.Join(w.folder, "b/number")); err == nil {
			return
		}
	}
	w.t.Fatal("the workload does not begin")
}

func (w *tenant) request() Request {
	r := w.bench.request()
	r.Folders, r.Cgroup, r.FolderRoot = []Place{{"files", w.folder}}, w.cgroup, filepath.Join(w.dir, "folders")
	return r
}

func (w *tenant) back(point string) Return {
	return Return{Store: w.store(), Point: point, FolderRoot: filepath.Join(w.dir, "folders")}
}

func (w *tenant) digest(folder string) string {
	w.t.Helper()
	d, _, err := tree.Digest(context.Background(), folder)
	w.must(err)
	return d
}

func (w *tenant) kill() { w.must(hooks.Cgroup(w.cgroup).Kill(context.Background())) }

// Every snapshot of a folder is the folder as it was while the workload stood still, to the
// byte; and so is the folder after a rollback, forwards and backwards.
func TestAFolderIsItsMoment(t *testing.T) {
	w := newTenant(t)
	w.begin()
	stop := sync.OnceFunc(w.writer(1))
	defer stop()
	defer func() { whileFrozen = func() {} }()
	type moment struct {
		id, digest string
	}
	var moments []moment
	for range 4 {
		var digest string
		whileFrozen = func() { digest = w.digest(w.folder) }
		taken, err := Take(context.Background(), w.request())
		w.must(err)
		if !w.runs() {
			t.Fatal("the workload stands still after the snapshot")
		}
		moments = append(moments, moment{id: taken.ID, digest: digest})
		if len(taken.Volumes) != 2 {
			t.Errorf("%+v", taken.Volumes)
		}
		if last := taken.Volumes[1]; len(moments) > 1 && (last.How != store.Digests || last.Stored > 16<<20) {
			t.Errorf("an increment: %+v", last)
		}
	}
	stop()
	w.kill()
	for n, m := range moments {
		r, to := w.back(m.id), filepath.Join(w.dir, "restored-"+strconv.Itoa(n))
		r.Folders = []Place{{"files", to}}
		_, err := Restore(context.Background(), r)
		w.must(err)
		if w.digest(to) != m.digest {
			t.Errorf("the snapshot %d is not its moment", n)
		}
		if one, other := numberIn(t, to, "a"), numberIn(t, to, "b"); one != other && one != other+1 {
			t.Errorf("the snapshot %d is of more than one moment: %d and %d", n, one, other)
		}
	}
	w.detach()
	defer w.attach()
	for _, n := range []int{1, 3, 0, 2} {
		r := w.back(moments[n].id)
		r.Current, r.Volumes, r.Folders = true, w.bench.request().Volumes, []Place{{"files", w.folder}}
		if _, err := Restore(context.Background(), r); err != nil {
			t.Fatal(err)
		}
		if w.digest(w.folder) != moments[n].digest {
			t.Errorf("the rollback to %d is not its moment", n)
		}
		if x, err := store.Peek(w.store()); err != nil || x.Current != moments[n].id {
			t.Errorf("%v", err)
		}
	}
	report, err := store.Verify(context.Background(), w.store())
	if err != nil || len(report.Faults) > 0 {
		t.Errorf("%v %+v", err, report)
	}
}

func numberIn(t *testing.T, folder, place string) int {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(folder, place, "number"))
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(string(b))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A write that the workload did not do is found, and nothing is taken.
func TestAFolderThatOthersWriteToIsNotTaken(t *testing.T) {
	w := newTenant(t)
	w.begin()
	whileFrozen = func() { w.must(os.WriteFile(filepath.Join(w.folder, "stranger"), nil, 0o600)) }
	defer func() { whileFrozen = func() {} }()
	if _, err := Take(context.Background(), w.request()); err == nil || !strings.Contains(err.Error(), "something outside of the workload writes to it: ") {
		t.Errorf("%v", err)
	}
	if x, err := store.Peek(w.store()); err == nil && len(x.Points) > 0 {
		t.Errorf("%+v", x.Points)
	}
	if !w.runs() {
		t.Error("the workload stands still")
	}
}

// A workload that a move has stopped stays so: nothing else may keep it from running twice.
func TestAWorkloadThatAMoveHasStoppedIsNotLetGo(t *testing.T) {
	w := newTenant(t)
	w.begin()
	cgroup := hooks.Cgroup(w.cgroup)
	if _, err := cgroup.Freeze(context.Background()); err != nil {
		t.Fatal(err)
	}
	if _, err := Take(context.Background(), w.request()); err == nil || !strings.Contains(err.Error(), "is frozen already: let the workload run, or stop it") {
		t.Errorf("%v", err)
	}
	if stopped, err := cgroup.Stopped(); err != nil || !stopped || w.runs() {
		t.Errorf("it was let go: %t, %v", stopped, err)
	}
	w.must(cgroup.Thaw())
	own, err := cgroup.Own(context.Background())
	w.must(err)
	r := w.request()
	r.FreezeLimit = 100 * time.Millisecond
	if _, err := Take(context.Background(), r); err == nil || !strings.Contains(err.Error(), "a move or a snapshot has the cgroup") {
		t.Errorf("%v", err)
	}
	w.must(own.Close())
	_, err = Take(context.Background(), w.request())
	w.must(err)
}

// If the process dies in the freeze, the workload goes on, and the next snapshot is whole.
func TestAWorkloadIsLetGoByTheGuard(t *testing.T) {
	w := newTenant(t)
	w.begin()
	request, err := json.Marshal(w.request())
	w.must(err)
	self, err := os.Executable()
	w.must(err)
	cmd := exec.Command(self, "act-freeze", string(request))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	w.must(err)
	w.must(cmd.Start())
	line := make([]byte, 6)
	if _, err := out.Read(line); err != nil || string(line) != "frozen" {
		t.Fatalf("%q %v", line, err)
	}
	if w.runs() {
		t.Error("the workload runs while its last files are copied")
	}
	w.must(cmd.Process.Kill())
	_ = cmd.Wait()
	if !w.runs() {
		t.Error("the workload stands still")
	}
	var digest string
	whileFrozen = func() { digest = w.digest(w.folder) }
	defer func() { whileFrozen = func() {} }()
	taken, err := Take(context.Background(), w.request())
	w.must(err)
	r, to := w.back(taken.ID), filepath.Join(w.dir, "restored")
	r.Folders = []Place{{"files", to}}
	_, err = Restore(context.Background(), r)
	w.must(err)
	if w.digest(to) != digest {
		t.Error("it is not its moment")
	}
}

// A rollback that is killed leaves the folder away, and is ended by the next one, also by
// one to another snapshot.
func TestAKilledRollbackOfAFolderIsAwayOrWhole(t *testing.T) {
	w := newTenant(t)
	var ids, digests []string
	r := w.request()
	r.Volumes, r.Cgroup = nil, ""
	for n := range 2 {
		w.must(os.WriteFile(filepath.Join(w.folder, "n"), []byte(strconv.Itoa(n)), 0o600))
		taken, err := Take(context.Background(), r)
		w.must(err)
		ids, digests = append(ids, taken.ID), append(digests, w.digest(w.folder))
	}
	back := func(n int) error {
		r := w.back(ids[n])
		r.Current, r.Folders = true, []Place{{"files", w.folder}}
		_, err := Restore(context.Background(), r)
		return err
	}
	// As a kill while the files are written leaves it.
	w.must(treedisk.TakeAway(w.folder))
	w.must(os.Remove(filepath.Join(w.folder+treedisk.Away, "owned")))
	if _, err := Take(context.Background(), r); err == nil || !strings.Contains(err.Error(), "has not ended: run it again") {
		t.Errorf("%v", err)
	}
	w.must(os.Mkdir(w.folder, 0o700)) // a program looked for it
	w.must(back(0))
	if w.digest(w.folder) != digests[0] {
		t.Error("it is not whole")
	}
	w.must(treedisk.TakeAway(w.folder))
	w.must(os.Mkdir(w.folder, 0o700))
	w.must(os.WriteFile(filepath.Join(w.folder, "written since"), nil, 0o600))
	if err := back(1); err == nil || !strings.Contains(err.Error(), "are both there") {
		t.Errorf("%v", err)
	}
	w.must(os.RemoveAll(w.folder))
	w.must(back(1))
	if w.digest(w.folder) != digests[1] {
		t.Error("it is not whole")
	}
	twice := r
	twice.Volumes = []Place{{"files", w.image}}
	if _, err := Take(context.Background(), twice); err == nil || !strings.Contains(err.Error(), "two volumes have the name files") {
		t.Errorf("%v", err)
	}
	inside := r
	inside.Store = filepath.Join(w.folder, "store")
	if _, err := Take(context.Background(), inside); err == nil || !strings.Contains(err.Error(), "lies in the volume files: choose a folder elsewhere") {
		t.Errorf("%v", err)
	}
	// A folder is not taken for a disk, nor a disk for a folder.
	wrong := w.back(ids[0])
	wrong.Current, wrong.Volumes = true, []Place{{"files", filepath.Join(w.dir, "new")}}
	if _, err := Restore(context.Background(), wrong); err == nil || !strings.Contains(err.Error(), "name it with --folder") {
		t.Errorf("%v", err)
	}
}

// Killed at random moments, a folder and a disk that go back together are both old, both
// new, or one of them such that the workload does not start: the folder away, or the disk
// shut.
func TestAFolderAndADiskGoBackTogether(t *testing.T) {
	w := newTenant(t)
	path := filepath.Join(w.dir, "disk")
	w.must(os.WriteFile(path, nil, 0o600))
	w.must(os.Truncate(path, 24<<20))
	w.run("mkfs.ext4", "-q", path)
	r := w.request()
	r.Volumes, r.Cgroup = []Place{{"disk", path}}, ""
	var ids, digests []string
	var disks [][]byte
	for n := range 2 {
		disk, err := os.ReadFile(path)
		w.must(err)
		for i := 12 << 20; i < 20<<20; i++ {
			disk[i] = byte(i>>9 + n)
		}
		w.must(os.WriteFile(path, disk, 0o600))
		w.must(os.WriteFile(filepath.Join(w.folder, "n"), bytes.Repeat([]byte(strconv.Itoa(n)), 4<<20), 0o600))
		taken, err := Take(context.Background(), r)
		w.must(err)
		ids, digests, disks = append(ids, taken.ID), append(digests, w.digest(w.folder)), append(disks, disk)
	}
	self, err := os.Executable()
	w.must(err)
	back := func(n int, struck func()) {
		to := w.back(ids[n])
		to.Current, to.Volumes, to.Folders = true, r.Volumes, r.Folders
		request, err := json.Marshal(to)
		w.must(err)
		cmd := exec.Command(self, "act-rollback", string(request))
		w.must(cmd.Start())
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		for struck != nil {
			_, err := os.Stat(w.folder + treedisk.Away)
			if err == nil {
				struck()
				_ = cmd.Process.Kill()
			}
			if err == nil || len(ended) > 0 {
				<-ended
				return
			}
			time.Sleep(100 * time.Microsecond)
		}
		w.must(<-ended)
	}
	is := func() (n int) { // the moment that both are of; -1: the workload does not start
		t.Helper()
		disk, err := os.ReadFile(path)
		w.must(err)
		_, shut, err := store.Shut(bytes.NewReader(disk))
		w.must(err)
		if _, err := os.Stat(w.folder); shut || err != nil {
			return -1
		}
		n = slices.Index(digests, w.digest(w.folder))
		if n < 0 || !bytes.Equal(disk, disks[n]) {
			t.Fatalf("the folder is as at %d, and the disk is not", n)
		}
		return n
	}
	back(0, nil)
	cut, rnd := 0, rand.New(rand.NewPCG(3, 4))
	for round := range 10 {
		back((round+1)%2, func() { time.Sleep(time.Duration(rnd.IntN(200)) * time.Millisecond) })
		if is() < 0 {
			cut++
		}
	}
	for n := range ids {
		back(n, nil)
		if is() != n {
			t.Error("it is not the moment gone back to")
		}
	}
	t.Logf("%d of 10 were cut off in the middle", cut)
}
