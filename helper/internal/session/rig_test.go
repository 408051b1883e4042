package session

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	thread "runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/confine"
	"github.com/livefleet/handover/helper/internal/hooks"
	"github.com/livefleet/handover/helper/internal/hooks/cgrouptest"
	"github.com/livefleet/handover/helper/internal/image"
	"github.com/livefleet/handover/helper/internal/loop"
	"github.com/livefleet/handover/helper/internal/session/engine"
	"github.com/livefleet/handover/helper/internal/session/record"
	"github.com/livefleet/handover/helper/internal/session/recovery"
	"github.com/livefleet/handover/helper/internal/throttle"
	"github.com/livefleet/handover/helper/internal/transport"
)

// The tests play CRIU and the workload themselves: this binary, started again
// with one of these words, is what a hook's command runs.
const (
	actDump    = "act-dump"    // act-dump CONTROL RUNDIR IMAGEDIR [CGROUP]
	actRestore = "act-restore" // act-restore CONTROL RUNDIR IMAGEDIR
	actSend    = "act-send"    // act-send DIR RUNDIR
	actReceive = "act-receive" // act-receive DIR RUNDIR
	actStream  = "act-stream"  // act-stream ADDRESS PIDFILE
	actMemory  = "act-memory"  // act-memory MARK
	actLazy    = "act-lazy"    // act-lazy CONTROL SOCKET
	actTar     = "act-tar"     // act-tar RUNDIR PROGRAM WORD…
)

func TestMain(m *testing.M) {
	words := []string{hooks.RunOnWord, transport.RunnerWord, throttle.LiftBehindWord}
	if len(os.Args) > 1 && (strings.HasPrefix(os.Args[1], "act-") || slices.Contains(words, os.Args[1])) {
		if err := act(os.Args[1], os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// planted is how the sessions of a test are served: with the parts that it has put in the place of the real ones.
// A forecast does not depend on the load of the machine that tests run on.
var planted = Options{parts: parts{howBusy: func() float64 { return 1 }, copyRate: func() float64 { return criuCopies * criuRate }}}

func act(what string, args []string) error {
	lendAtLeisure()
	own := planted
	own.Confine, own.Lower = confine.To, confine.Lower
	switch what {
	case actSend:
		ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM) // as pcopy itself
		defer stop()
		return Send(ctx, args[0], args[1], own)
	case actReceive:
		return Receive(context.Background(), args[0], args[1], own)
	case actMemory:
		return playMemory(args[0])
	case actLazy:
		return playLazy(args[0], args[1])
	case actTar:
		return playTar(args)
	case actStream:
		return playStream(args[0], args[1])
	case actDump:
		return playDump(args[0], args[1], args[2], hooks.Cgroup(append(args, "")[3]))
	case actRestore:
		return playRestore(args[0], args[1], args[2])
	case transport.RunnerWord:
		return transport.Run(args)
	case hooks.RunOnWord:
		return recovery.RunOnWhenGone(hooks.Behind{Cgroup: hooks.Cgroup(args[0]), Images: args[1], Session: args[2]})
	case throttle.LiftBehindWord:
		return throttle.LiftWhenGone(args[0], args[1])
	}
	return errors.New("no such act")
}

// playDump does what CRIU does on the source. The writer of the test looks at
// the file "frozen" before each write, and says "stopped" when it has seen it.
// The tasks of a cgroup it holds as CRIU does, as their debugger; the cgroup, which
// it finds frozen, it thaws then, and freezes again when it has been refused.
func playDump(control, runDir, imageDir string, cgroup hooks.Cgroup) error {
	if text, err := os.ReadFile(filepath.Join(control, "dump-fails")); err == nil {
		return errors.New(string(text))
	}
	if err := os.WriteFile(filepath.Join(control, "arming"), []byte(strconv.Itoa(os.Getpid())), 0o600); err != nil {
		return err
	}
	for exists(filepath.Join(control, "armed-takes")) {
		time.Sleep(5 * time.Millisecond)
	}
	hook := func(action string) (bool, error) {
		return recovery.Hook(runDir, recovery.Call{Action: action, ImageDir: imageDir, CRIU: os.Getpid()})
	}
	if goOn, err := hook(hooks.PreDump); err != nil || !goOn {
		return errors.Join(err, errors.New("the dump was refused before it began"))
	}
	if text, err := os.ReadFile(filepath.Join(control, "stands")); err == nil { // another member: frozen, or in the hold of its CRIU
		cgroup, other, _ := strings.Cut(string(text), "\n")
		if stopped, err := hooks.Cgroup(cgroup).Stopped(); err != nil || !stopped && !exists(filepath.Join(other, "frozen")) {
			return errors.Join(err, errors.New("another member still runs"))
		}
	}
	frozen := filepath.Join(control, "frozen")
	if err := os.WriteFile(frozen, nil, 0o600); err != nil {
		return err
	}
	letGo := func() error { return nil }
	if cgroup != "" {
		thread.LockOSThread() // for good: the end of the thread is that of the hold
		var err error
		if letGo, err = cgrouptest.Hold(string(cgroup)); err != nil {
			return err
		}
	}
	if err := await(filepath.Join(control, "stopped")); err != nil {
		return err
	}
	if file, err := os.ReadFile(filepath.Join(control, limitFile)); err == nil {
		if err := stopLimited(string(file), filepath.Join(control, frozenLimit)); err != nil {
			return err
		}
	}
	// By this mark the script decides whether it asks.
	if exists(filepath.Join(imageDir, hooks.FrozenMark)) != (cgroup != "") {
		return errors.New("the mark that spares CRIU's script a question is where it is not due, or missing")
	}
	if cgroup == "" {
		goOn, err := hook(hooks.NetworkLock)
		if err == nil && !goOn {
			err = errors.New("the network is not to be locked")
		}
		if err != nil {
			return errors.Join(err, os.Remove(frozen))
		}
	}
	state, err := os.ReadFile(filepath.Join(control, "counter"))
	if err != nil {
		return err
	}
	if exists(filepath.Join(control, "link-remap")) {
		// A deleted file that is open gets a name.
		if err := os.WriteFile(filepath.Join(filepath.Dir(control), "layer", "link_remap.1"), nil, 0o600); err != nil {
			return err
		}
	}
	for exists(filepath.Join(control, "dump-holds")) {
		time.Sleep(5 * time.Millisecond)
	}
	if exists(filepath.Join(control, "dump-writes")) { // what CRIU is not known to do
		if err := os.WriteFile(filepath.Join(filepath.Dir(control), "mnt", "by-criu"), []byte("by CRIU"), 0o600); err != nil {
			return err
		}
	}
	for _, name := range []string{"pages-1.img", stateMark} {
		if err := os.WriteFile(filepath.Join(imageDir, name), state, 0o600); err != nil {
			return err
		}
	}
	if err := errors.Join(dumpMemory(control, imageDir), dumpLazily(control, imageDir), dumpTmpfs(control, imageDir), dumpImages(control, imageDir)); err != nil {
		return err
	}
	if text, err := os.ReadFile(filepath.Join(control, "dump-takes")); err == nil {
		d, _ := time.ParseDuration(string(text))
		time.Sleep(d)
	}
	goOn, err := hook(hooks.PostDump)
	if err == nil && goOn {
		// The engine goes on: what it had mounted for the tasks goes with them.
		return errors.Join(loop.Unmount(filepath.Join(filepath.Dir(control), "shm")), os.WriteFile(filepath.Join(control, "killed"), nil, 0o600))
	}
	if cgroup != "" {
		if _, err := cgroup.Freeze(context.Background()); err != nil {
			return err
		}
	}
	return errors.Join(err, letGo(), os.Remove(frozen), errors.New("the dump was refused"))
}

// stopLimited stops what is in the cgroup with this limit, if nobody froze it before, and
// notes what the limit was.
func stopLimited(file, note string) error {
	limit, err := os.ReadFile(file)
	if err == nil {
		err = os.WriteFile(note, bytes.TrimSpace(limit), 0o600)
	}
	if err != nil {
		return err
	}
	return hooks.Cgroup(filepath.Dir(file)).EachTask(func(proc string) error {
		pid, err := strconv.Atoi(filepath.Base(proc))
		if err == nil {
			err = unix.Kill(pid, unix.SIGSTOP)
		}
		for range 1000 {
			stat, e := os.ReadFile(filepath.Join(proc, "stat"))
			if err = errors.Join(err, e); err != nil {
				return err
			}
			if _, state, _ := strings.Cut(string(stat), ") "); strings.ContainsAny(state[:1], "Tt") {
				return nil
			}
			time.Sleep(time.Millisecond)
		}
		return fmt.Errorf("%s does not stop", proc)
	})
}

// The memory of a task of the test's, what the dump holds of it, and what the
// restore found.
const (
	memoryFile    = "memory"
	dumpedPages   = "dumped-pages"
	restoredPages = "restored-pages"
	memoryPages   = "pages-2.img"
)

// dumpMemory writes the memory of that task bit by bit, with every tenth page changed,
// and an end that is no whole page.
func dumpMemory(control, imageDir string) error {
	memory, err := os.ReadFile(filepath.Join(control, memoryFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	for at := 0; at < len(memory); at += 10 * 4096 {
		memory[at] ^= 0xff
	}
	memory = append(memory, "tail"...)
	if err := os.WriteFile(filepath.Join(control, dumpedPages), memory, 0o600); err != nil {
		return err
	}
	pages, err := os.OpenFile(filepath.Join(imageDir, memoryPages), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	for len(memory) > 0 {
		n := min(len(memory), 700<<10)
		if _, err := pages.Write(memory[:n]); err != nil {
			return err
		}
		memory = memory[n:]
		time.Sleep(time.Millisecond)
	}
	return pages.Close()
}

// playRestore does what an engine and CRIU do on the destination. If it is called
// early, which the test's folder in PATH tells, it is the engine first: it wants
// a mark, binds the volume's place to another one, and comes to what stands in
// for CRIU.
func playRestore(control, runDir, imageDir string) error {
	volume, shown := filepath.Join(filepath.Dir(control), "mnt-dst"), filepath.Join(control, "shown")
	early := strings.HasPrefix(os.Getenv("PATH"), filepath.Join(control, "hold"))
	if text, err := os.ReadFile(filepath.Join(control, "early-fails")); err == nil && early {
		return errors.New(string(text))
	}
	if folder, err := os.ReadFile(filepath.Join(control, "looks-for")); err == nil {
		if _, err := os.Stat(filepath.Join(volume, string(folder))); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(shown, 0o700); err != nil {
		return err
	}
	if err := unix.Mount(volume, shown, "", unix.MS_BIND, ""); err != nil {
		return err
	}
	err := engineRestore(control, runDir, imageDir, early)
	if err != nil { // as podman does, which counts a volume's users
		if e := unix.Unmount(shown, 0); e != nil {
			err = errors.Join(err, e, os.WriteFile(filepath.Join(control, "miscounted"), nil, 0o600))
		}
	}
	return err
}

func engineRestore(control, runDir, imageDir string, early bool) error {
	if _, err := os.Stat(filepath.Join(imageDir, stateMark)); err != nil {
		return err
	}
	images, err := os.Open(imageDir) // as the runtime and CRIU have it, from the beginning to the end
	if err != nil {
		return err
	}
	defer images.Close()
	// It mounts the root, and need not see what changes below the mount.
	layer := os.DirFS(filepath.Join(filepath.Dir(control), "layer-dst"))
	root, err := listing(layer)
	if err != nil {
		return err
	}
	if early {
		if err := os.WriteFile(filepath.Join(control, "early"), nil, 0o600); err != nil {
			return err
		}
		for exists(filepath.Join(control, "early-takes")) {
			time.Sleep(5 * time.Millisecond)
		}
		if goOn, err := recovery.Hook(runDir, recovery.Call{Action: hooks.StartUp, ImageDir: imageDir, CRIU: os.Getpid()}); err != nil || !goOn {
			return errors.Join(err, errors.New("the restore was refused before it began"))
		}
	}
	if text, err := os.ReadFile(filepath.Join(control, "restore-fails")); err == nil {
		return errors.New(string(text))
	}
	if err := os.WriteFile(filepath.Join(control, "restoring"), nil, 0o600); err != nil {
		return err
	}
	if namespace, err := os.ReadFile(filepath.Join(control, setUpFile)); err == nil { // podman comes first
		if err := engine.SetUpNetwork(runDir, imageDir, string(namespace)); err != nil {
			return err
		}
	}
	if text, err := os.ReadFile(filepath.Join(control, "restore-takes")); err == nil {
		d, _ := time.ParseDuration(string(text))
		time.Sleep(d)
	}
	state, err := os.ReadFile(filepath.Join(imageDir, "pages-1.img"))
	if err != nil {
		return err
	}
	if pages, err := os.ReadFile(filepath.Join(imageDir, memoryPages)); err == nil {
		if err := os.WriteFile(filepath.Join(control, restoredPages), pages, 0o600); err != nil {
			return err
		}
	}
	hook := func(action, root string) (bool, error) {
		return recovery.Hook(runDir, recovery.Call{Action: action, ImageDir: imageDir, CRIU: os.Getpid(), Root: root})
	}
	if goOn, err := hook(hooks.PreRestore, ""); err != nil || !goOn {
		return errors.Join(err, errors.New("the restore was refused when the images had been read"))
	}
	if now, err := listing(layer); err != nil || now != root {
		return errors.Join(err, fmt.Errorf("the root was mounted with %q in it, and now there is %q", root, now))
	}
	if err := restoreTmpfs(control, imageDir); err != nil {
		return err
	}
	// CRIU opens the workload's files: where the engine has shown the volume.
	if _, err := os.Stat(filepath.Join(control, "shown", "ledger")); err != nil {
		return err
	}
	process, _ := os.ReadFile(filepath.Join(control, rootFile))
	restored, err := restoreLazily(control)
	if err != nil {
		return err
	}
	if lingers, err := os.ReadFile(filepath.Join(control, "dies-held")); err == nil {
		return errors.Join(linger(images, string(lingers)), dieHeld(control, runDir, imageDir))
	}
	goOn, err := hook(hooks.PostRestore, string(process))
	if !goOn {
		_ = restored(false)
	}
	if err != nil {
		return err
	}
	if !goOn {
		return errors.New("the restore was refused")
	}
	if text, err := os.ReadFile(filepath.Join(control, "resume-fails")); err == nil {
		return errors.New(string(text))
	}
	if err := errors.Join(preResume(imageDir), restored(true)); err != nil { // what the action script does there
		return err
	}
	if text, err := os.ReadFile(filepath.Join(control, "resume-fails-late")); err == nil {
		return errors.New(string(text))
	}
	if text, err := os.ReadFile(filepath.Join(control, "resume-takes")); err == nil {
		d, _ := time.ParseDuration(string(text))
		time.Sleep(d)
	}
	return os.WriteFile(filepath.Join(control, "resumed"), state, 0o600)
}

// dieHeld ends while the script at its last point still waits.
func dieHeld(control, runDir, imageDir string) error {
	go func() {
		_, _ = recovery.Hook(runDir, recovery.Call{Action: hooks.PostRestore, ImageDir: imageDir, CRIU: os.Getpid()})
	}()
	time.Sleep(300 * time.Millisecond)
	return errors.Join(errors.New("it was killed"), os.WriteFile(filepath.Join(control, "died"), nil, 0o600))
}

// linger leaves a process that has the images open until it is let go, as CRIU has when its engine alone is killed.
func linger(images *os.File, until string) error {
	if until == "" {
		return nil
	}
	left := exec.Command("sh", "-c", "until test -e $0; do sleep 0.05; done", until)
	left.ExtraFiles = []*os.File{images}
	return left.Start()
}

// listing is everything that a folder holds, as a text.
func listing(f fs.FS) (string, error) {
	all := ""
	err := fs.WalkDir(f, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := fs.ReadFile(f, path)
		all += fmt.Sprintf("%s: %q\n", path, b)
		return err
	})
	return all, err
}

// preResume runs the action script that the role pcopy installs.
func preResume(imageDir string) error {
	script := exec.Command("../../../roles/pcopy/files/criu-hook")
	script.Env = []string{"CRTOOLS_SCRIPT_ACTION=pre-resume", "CRTOOLS_IMAGE_DIR=" + imageDir}
	if out, err := script.CombinedOutput(); err != nil {
		return fmt.Errorf("criu-hook: %w: %s", err, out)
	}
	return nil
}

func await(path string) error {
	for range 3000 {
		if _, err := os.Stat(path); err == nil {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return fmt.Errorf("%s has not come", path)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// rig is a source and a destination on this machine, and a workload that writes
// to a real file system on a real loop device until it is frozen.
type rig struct {
	t                *testing.T
	apartPid         int // of the side that was last started in a process of its own
	top              string
	control          string
	src, dst         string // session folders
	srcRun, dstRun   string
	image, device    string
	mountpoint       string
	dstImage, dstMnt string
	layer, dstLayer  string
	files, dstFiles  string // a directory volume
	gate, dstGate    string
	proxy            *proxy
	spec             struct{ src, dst record.Spec }
	send, receive    chan error
}

const rigSize = 64 << 20

func newRig(t *testing.T) *rig {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root: loop devices, mounts and BPF")
	}
	// The path of a unix socket has at most 107 bytes, and t.TempDir puts the
	// test's name into it.
	top, err := os.MkdirTemp("", "rig")
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, top: top}
	t.Cleanup(func() { os.RemoveAll(top) })
	at := func(p string) string { return filepath.Join(top, p) }
	r.control, r.src, r.dst, r.srcRun, r.dstRun = at("control"), at("src"), at("dst"), at("run-src"), at("run-dst")
	r.mountpoint, r.dstMnt, r.layer, r.dstLayer, r.gate, r.dstGate = at("mnt"), at("mnt-dst"), at("layer"), at("layer-dst"), at("gate"), at("gate-dst")
	r.files, r.dstFiles = at("files"), at("files-dst")
	r.image, r.dstImage = at("volume.img"), at("received/volume.img")
	for _, d := range []string{r.control, r.src, r.dst, r.srcRun, r.dstRun, r.mountpoint, r.layer, r.dstLayer, r.files, at("received"), r.dstFiles, at("shm"), at("shm-dst")} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	f, err := os.Create(r.image)
	if err == nil {
		err = errors.Join(f.Truncate(rigSize), f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mkfs.ext4", "-q", "-F", "-b", "4096", "-E", "lazy_itable_init=0,lazy_journal_init=0", r.image).CombinedOutput(); err != nil {
		t.Fatalf("mkfs.ext4: %v: %s", err, out)
	}
	if r.device, err = loop.Attach(r.image); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if exists(filepath.Join(r.control, "miscounted")) {
			t.Error("a restore that failed had nothing to unmount where it had mounted a volume")
		}
		// A test that failed may have left it frozen, and unmounted so it would
		// hold its device for ever.
		_ = image.Thaw(r.mountpoint)
		for _, err := range []error{loop.Unmount(filepath.Join(r.control, "shown")), loop.Unmount(r.mountpoint), loop.Detach(r.device), loop.Unmount(r.dstMnt), loop.DetachImage(r.dstImage), loop.Unmount(r.gate), loop.Unmount(r.dstGate), loop.Unmount(at("shm"))} {
			if err != nil {
				t.Error(err)
			}
		}
	})
	if err := loop.Mount(r.device, r.mountpoint, "ext4", "noatime"); err != nil {
		t.Fatal(err)
	}
	if err := loop.MountTmpfs(at("shm")); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{filepath.Join(r.layer, "file"), at("shm/segment")} {
		if err := os.WriteFile(file, []byte("first"), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	r.specs()
	return r
}

func (r *rig) specs() {
	r.t.Helper()
	self, err := os.Executable()
	if err != nil {
		r.t.Fatal(err)
	}
	var prints [2]string
	for i, dir := range []string{r.src, r.dst} {
		id, err := record.Identity(dir)
		if err != nil {
			r.t.Fatal(err)
		}
		prints[i] = id.Fingerprint()
	}
	r.proxy = newProxy(r.t)
	r.spec.src = record.Spec{
		Version: 1, ID: "rig", Role: record.Source, Mode: record.Live, Workload: "shop", Peer: record.Peer{Address: r.proxy.addr(), Fingerprint: prints[1]},
		Volumes:     []record.Vol{{Name: "data", Size: rigSize, Device: r.device, Mountpoint: r.mountpoint}},
		Directories: []record.Directory{{Name: "files", Path: r.files, Size: 1 << 20}},
		Trees:       []record.Tree{{Name: "layer", Path: r.layer, Stage: record.StagePresync}, {Name: "shm", Path: filepath.Join(r.top, "shm"), Stage: record.StageFreeze}, {Name: "dump", Path: r.gate, Stage: record.StageDump}},
		Hooks:       record.Hooks{Freeze: &hooks.Command{Argv: []string{self, actDump, r.control, r.srcRun, r.gate}, Gate: r.gate}},
		Policy:      record.Policy{Verify: true, PeerTimeout: 5, Connections: 2, ReconnectTimeout: 5},
	}
	r.spec.dst = record.Spec{
		Version: 1, ID: "rig", Role: record.Destination, Mode: record.Live, Workload: "shop", Listen: "127.0.0.1:0", Peer: record.Peer{Fingerprint: prints[0]},
		Volumes:     []record.Vol{{Name: "data", Size: rigSize, Image: r.dstImage, Mountpoint: r.dstMnt, Fstype: "ext4", Options: "noatime"}},
		Directories: []record.Directory{{Name: "files", Path: r.dstFiles}},
		Trees:       []record.Tree{{Name: "layer", Path: r.dstLayer, Mounted: true}, {Name: "shm", Path: filepath.Join(r.top, "shm-dst")}, {Name: "dump", Path: r.dstGate}},
		Hooks: record.Hooks{
			Restore: &hooks.Command{Argv: []string{self, actRestore, r.control, r.dstRun, r.dstGate}, Gate: r.dstGate, Hold: filepath.Join(r.control, "hold")},
			Discard: &hooks.Command{Argv: []string{"touch", filepath.Join(r.control, "discarded")}},
		},
		Policy: record.Policy{ReconnectTimeout: 5},
	}
}

func (r *rig) write(dir string, s record.Spec) {
	r.t.Helper()
	b, err := json.Marshal(s)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, record.SpecFile), b, 0o600)
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// start runs both sides in this process.
func (r *rig) start() { r.startApart("") }

// killFlushed moves a workload that is written to as far as flushed, kills the
// sender there and waits until CRIU's hook has thawed what it left.
func (r *rig) killFlushed() (*writer, *record.Status) {
	r.t.Helper()
	w := r.startWriter()
	kill := r.startApart(record.Source)
	r.wait(r.src, record.UntilConverged)
	go func() { _, _ = recovery.Cutover(context.Background(), r.src) }()
	r.wait(r.src, string(record.Flushed))
	kill()
	<-r.receive
	return w, r.waitForHook(r.src, string(record.Thawed))
}

// startApart runs one side in a process of its own, which the function that it
// returns kills; the other runs here, as both do if no side is named.
func (r *rig) startApart(apart record.Role) (kill func()) {
	r.t.Helper()
	r.write(r.src, r.spec.src)
	r.write(r.dst, r.spec.dst)
	r.send, r.receive = make(chan error, 1), make(chan error, 1)
	begin := func(side record.Role, word, dir, run string, here func(context.Context, string, string, Options) error, ended chan error) {
		if side != apart {
			o := planted
			go func() { ended <- here(context.Background(), dir, run, o) }()
			return
		}
		kill = r.apart(word, dir, run)
	}
	begin(record.Destination, actReceive, r.dst, r.dstRun, Receive, r.receive)
	r.proxy.to(r.wait(r.dst, record.UntilListening).Listen)
	begin(record.Source, actSend, r.src, r.srcRun, Send, r.send)
	return kill
}

// apart runs one side in a process of its own; the function kills it.
func (r *rig) apart(word, dir, run string) (kill func()) {
	r.t.Helper()
	self, err := os.Executable()
	if err != nil {
		r.t.Fatal(err)
	}
	p := exec.Command(self, word, dir, run)
	p.Stderr = os.Stderr
	if err := p.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.apartPid = p.Process.Pid
	return func() {
		_ = p.Process.Kill()
		_ = p.Wait()
	}
}

func (r *rig) wait(dir, until string) *record.Status {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	// The folder may be so young that nobody serves it yet.
	for !exists(filepath.Join(dir, record.StatusFile)) {
		time.Sleep(5 * time.Millisecond)
		if ctx.Err() != nil {
			r.t.Fatalf("%s: nobody began to serve it", dir)
		}
	}
	s, err := record.Wait(ctx, dir, []string{until})
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

// waitForHook waits for a state that CRIU's hook records once the session's
// process is gone: Wait gives up where there is no process.
func (r *rig) waitForHook(dir, until string) *record.Status {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	for {
		s, err := record.Wait(ctx, dir, []string{until})
		if err == nil {
			return s
		}
		if ctx.Err() != nil {
			r.t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// cutover asks for it and returns where both sides ended.
func (r *rig) cutover() (src, dst *record.Status) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	src, err := recovery.Cutover(ctx, r.src)
	if err != nil {
		r.t.Fatal(err)
	}
	if !src.Held {
		<-r.send
	}
	select {
	case <-r.receive:
	case <-ctx.Done():
		r.t.Fatal("the destination has not ended")
	}
	if dst, err = record.Show(r.dst); err != nil {
		r.t.Fatal(err)
	}
	return src, dst
}

// writer is the workload: it appends numbered lines to a file on the volume,
// rewrites blocks of another one in place, makes and replaces files in the
// directory volume, and notes what was acknowledged. It
// stops while the file "frozen" is there, and goes on when it is gone.
type writer struct {
	r     *rig
	stop  chan struct{}
	done  sync.WaitGroup
	mu    sync.Mutex
	acked int
}

func (r *rig) startWriter() *writer {
	w := &writer{r: r, stop: make(chan struct{})}
	w.done.Add(1)
	go w.run()
	r.t.Cleanup(func() { close(w.stop); w.done.Wait() })
	return w
}

// frozen says that its cgroup is frozen, or that CRIU holds the writer. In this order:
// CRIU has it in its hold before it lets the cgroup go.
func (w *writer) frozen() bool {
	if cgroup := w.r.spec.src.Hooks.Freeze.Cgroup; cgroup != "" {
		b, err := os.ReadFile(filepath.Join(string(cgroup), "cgroup.freeze"))
		if err == nil && strings.TrimSpace(string(b)) == "1" {
			return true
		}
	}
	return exists(filepath.Join(w.r.control, "frozen"))
}

func (w *writer) run() {
	defer w.done.Done()
	f, err := os.OpenFile(filepath.Join(w.r.mountpoint, "ledger"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		w.r.t.Error(err)
		return
	}
	defer f.Close()
	g, err := os.OpenFile(filepath.Join(w.r.mountpoint, "blocks"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		w.r.t.Error(err)
		return
	}
	defer g.Close()
	block := make([]byte, 8192)
	for n := 1; ; n++ {
		select {
		case <-w.stop:
			return
		default:
		}
		if w.frozen() {
			_ = os.WriteFile(filepath.Join(w.r.control, "counter"), []byte(strconv.Itoa(n-1)), 0o600)
			_ = os.WriteFile(filepath.Join(w.r.control, "stopped"), nil, 0o600)
			for w.frozen() {
				select {
				case <-w.stop:
					return
				case <-time.After(time.Millisecond):
				}
			}
			_ = os.Remove(filepath.Join(w.r.control, "stopped"))
		}
		for i := range block {
			block[i] = byte(n * (i + 7))
		}
		_, err1 := fmt.Fprintln(f, n)
		_, err2 := g.WriteAt(block, int64(n%512)*int64(len(block)))
		name := filepath.Join(w.r.files, strconv.Itoa(n%7), strconv.Itoa(n%91))
		err3 := os.MkdirAll(filepath.Dir(name), 0o755)
		if n%50 == 0 {
			err3 = os.RemoveAll(filepath.Dir(name))
		} else {
			err3 = errors.Join(err3, os.WriteFile(name+".new", []byte(strconv.Itoa(n)), 0o640), os.Rename(name+".new", name))
		}
		if err := errors.Join(err1, err2, err3); err != nil {
			w.r.t.Errorf("write %d: %v", n, err)
			return
		}
		w.mu.Lock()
		w.acked = n
		w.mu.Unlock()
		time.Sleep(time.Millisecond) // without it, it takes a processor from the sessions
	}
}

func (w *writer) acknowledged() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.acked
}

// lastLine is the number in the last line of the ledger below a mount point.
func (r *rig) lastLine(mnt string) int {
	r.t.Helper()
	f, err := os.Open(filepath.Join(mnt, "ledger"))
	if err != nil {
		r.t.Fatal(err)
	}
	defer f.Close()
	n := 0
	for s := bufio.NewScanner(f); s.Scan(); {
		n++
		if s.Text() != strconv.Itoa(n) {
			r.t.Fatalf("line %d of the ledger is %q", n, s.Text())
		}
	}
	return n
}

// proxy stands between the two sides, so that a test can cut the connection.
type proxy struct {
	l  net.Listener
	mu sync.Mutex
	up string
	cs []net.Conn // by twos: the source's side, the destination's

	held []net.Conn
}

func newProxy(t *testing.T) *proxy {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{l: l}
	t.Cleanup(func() {
		l.Close()
		p.cut()
		for _, c := range p.held {
			c.Close()
		}
	})
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			p.mu.Lock()
			u, err := net.Dial("tcp", p.up)
			if err == nil {
				p.cs = append(p.cs, c, u)
				go p.carry(u, c)
				go p.carry(c, u)
			} else {
				c.Close()
			}
			p.mu.Unlock()
		}
	}()
	return p
}

// carry brings what comes from one side to the other, and the end of it too,
// unless the other is not to notice.
func (p *proxy) carry(to, from net.Conn) {
	_, _ = io.Copy(to, from)
	p.mu.Lock()
	defer p.mu.Unlock()
	if !slices.Contains(p.held, to) && !slices.Contains(p.held, from) {
		to.Close()
		from.Close()
	}
}

func (p *proxy) addr() string { return p.l.Addr().String() }

func (p *proxy) to(addr string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.up = addr
}

func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.cs {
		c.Close()
	}
	p.cs = nil
}

// hush cuts the connections so that only the source notices.
func (p *proxy) hush() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := 0; i < len(p.cs); i += 2 {
		_ = p.cs[i].(*net.TCPConn).SetLinger(0)
		p.held = append(p.held, p.cs[i+1])
		p.cs[i].Close()
	}
	p.cs = nil
}
