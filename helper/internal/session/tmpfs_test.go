package session

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/loop"
	"github.com/livefleet/handover/helper/internal/session/record"
	"github.com/livefleet/handover/helper/internal/session/recovery"
	"github.com/livefleet/handover/helper/internal/tmpfs"
	"github.com/livefleet/handover/helper/internal/tree"
)

// tmpfsFile says where the workload of a test has a tmpfs of its own, on the source and
// restored: one line each.
const tmpfsFile = "own-tmpfs"

// playTar is the stand-in for tar, which CRIU finds in PATH: act-tar RUNDIR PROGRAM WORD…
func playTar(args []string) error {
	return tmpfs.Held(context.Background(), args[1], tmpfs.Call{Args: args[2:], In: os.Stdin, Out: os.Stdout, RunDir: args[0]})
}

func tmpfsOf(control string) (from, to string) {
	text, _ := os.ReadFile(filepath.Join(control, tmpfsFile))
	from, to, _ = strings.Cut(string(text), "\n")
	return from, to
}

// dumpTmpfs calls tar as CRIU does (criu/filesystems.c), when the tasks have been dumped.
func dumpTmpfs(control, imageDir string) error {
	from, _ := tmpfsOf(control)
	if from == "" || exists(filepath.Join(control, "tar-is-not-called")) {
		return nil
	}
	if exists(filepath.Join(control, "tmpfs-link-remap")) {
		if err := os.WriteFile(filepath.Join(from, "link_remap.1"), []byte("remapped"), 0o600); err != nil {
			return err
		}
	}
	folder, err := os.Open(from)
	if err != nil {
		return err
	}
	defer folder.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(folder.Fd()), &st); err != nil {
		return err
	}
	archive, err := os.Create(filepath.Join(imageDir, fmt.Sprintf("tmpfs-dev-%d.tar.gz.img", unix.Minor(st.Dev))))
	if err != nil {
		return err
	}
	defer archive.Close()
	if mark, err := os.ReadFile(filepath.Join(control, "has-another-mark")); err == nil {
		_, err := archive.Write(mark)
		return err
	}
	tar := exec.Command(tarOf(control, "dump"), "--create", "--gzip", "--no-unquote", "--no-wildcards", "--one-file-system", "--check-links",
		"--preserve-permissions", "--sparse", "--numeric-owner", "--directory", "/proc/self/fd/0", ".")
	tar.Stdin, tar.Stdout, tar.Stderr = folder, archive, os.Stderr
	return tar.Run()
}

// tarOf is the one that PATH says, unless the test has CRIU take another.
func tarOf(control, side string) string {
	if exists(filepath.Join(control, side+"-takes-another-tar")) {
		return "/usr/bin/tar"
	}
	return "tar"
}

// restoreTmpfs mounts a new tmpfs and calls tar.
func restoreTmpfs(control, imageDir string) error {
	_, to := tmpfsOf(control)
	archives, err := filepath.Glob(filepath.Join(imageDir, "tmpfs-dev-*.img"))
	if err != nil || to == "" || len(archives) == 0 {
		return err
	}
	if err := unix.Mount("tmpfs", to, "tmpfs", 0, "size=64m"); err != nil {
		return err
	}
	if exists(filepath.Join(control, "tar-is-not-called-at-the-restore")) {
		return nil
	}
	archive, err := os.Open(archives[0])
	if err != nil {
		return err
	}
	defer archive.Close()
	tar := exec.Command(tarOf(control, "restore"), "--extract", "--gzip", "--no-unquote", "--no-wildcards", "--directory", to)
	tar.Stdin, tar.Stderr = archive, os.Stderr
	if err := tar.Run(); err != nil {
		return fmt.Errorf("can't restore tmpfs content: %w", err)
	}
	if exists(filepath.Join(control, "mounts-another")) {
		return errors.Join(loop.Unmount(to), unix.Mount("tmpfs", to, "tmpfs", 0, "size=64m"))
	}
	return nil
}

// withTmpfs gives the rig's workload a tmpfs of its own with odd files.
func (r *rig) withTmpfs() (from, to string) {
	r.t.Helper()
	from, to = r.ownTmpfs(r.top, r.control, "")
	r.spec.src.Hooks.Freeze.Hold = filepath.Join(r.control, "hold")
	return from, to
}

// ownTmpfs gives a workload that is played by the files in control one with odd files below top. It is
// that member's.
func (r *rig) ownTmpfs(top, control, member string) (from, to string) {
	r.t.Helper()
	from, to = filepath.Join(top, "tmpfs"), filepath.Join(top, "tmpfs-dst")
	hold := filepath.Join(control, "hold")
	self, err := os.Executable()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, dir := range []string{from, to, hold} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			r.t.Fatal(err)
		}
	}
	if err := unix.Mount("tmpfs", from, "tmpfs", 0, "size=64m,mode=1777"); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		for _, dir := range []string{from, to} {
			if err := loop.Unmount(dir); err != nil {
				r.t.Error(err)
			}
		}
	})
	oddFiles(r.t, from)
	var st unix.Stat_t
	if err := unix.Stat(from, &st); err != nil {
		r.t.Fatal(err)
	}
	script := fmt.Sprintf("#!/bin/sh\ncase $* in *create*) run=%s ;; *) run=%s ;; esac\nexec %s act-tar $run \"$0\" \"$@\"\n", r.srcRun, r.dstRun, self)
	for path, text := range map[string]string{
		filepath.Join(hold, "tar"):        script,
		filepath.Join(control, tmpfsFile): from + "\n" + to,
		filepath.Join(control, rootFile):  fmt.Sprint(os.Getpid()), // whose root folder is that of this host
	} {
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			r.t.Fatal(err)
		}
	}
	name := record.TmpfsName(member, to)
	waits := filepath.Join(r.dst, record.TmpfsFolder, fmt.Sprint(len(r.spec.dst.Directories)))
	r.spec.src.Directories = append(r.spec.src.Directories, record.Directory{
		Name: name, Path: from, Tmpfs: to, Member: member, Device: fmt.Sprintf("%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev)), Size: 1 << 20,
	})
	r.spec.dst.Directories = append(r.spec.dst.Directories, record.Directory{Name: name, Path: waits, Tmpfs: to, Member: member})
	return from, to
}

// oddFiles are one of each kind that a tmpfs may hold.
func oddFiles(t *testing.T, dir string) {
	t.Helper()
	at := func(name string) string { return filepath.Join(dir, name) }
	sparse, err := os.Create(at("sparse"))
	if err != nil {
		t.Fatal(err)
	}
	defer sparse.Close()
	old := time.Unix(1_000_000_000, 123_456_789)
	for _, err := range []error{
		os.WriteFile(at("random"), bytes.Repeat([]byte("\x93\x01some"), 200_000), 0o640),
		os.WriteFile(at("-\n*? \x01ü"), []byte("odd"), 0o4755),
		os.Mkdir(at("folder"), 0o2750),
		os.WriteFile(at("folder/.hidden"), nil, 0o400),
		os.Link(at("random"), at("folder/other name")),
		os.Symlink("/nowhere", at("link")),
		unix.Mknod(at("fifo"), unix.S_IFIFO|0o620, 0),
		unix.Mknod(at("socket"), unix.S_IFSOCK|0o755, 0),
		unix.Mknod(at("device"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))),
		sparse.Truncate(16 << 20),
		unix.Setxattr(at("folder"), "trusted.test", []byte("value"), 0),
		os.Chown(at("folder"), 1234, 4321),
		os.Chtimes(at("folder/.hidden"), old, old),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := sparse.WriteAt([]byte("data"), 8<<20); err != nil {
		t.Fatal(err)
	}
}

func (r *rig) digest(dir string) string {
	r.t.Helper()
	sum, _, err := tree.Digest(context.Background(), dir)
	if err != nil {
		r.t.Fatal(err)
	}
	return sum
}

func TestAnOwnTmpfsMovesBesideTheDump(t *testing.T) {
	for _, early := range []bool{true, false} {
		t.Run(fmt.Sprintf("early %v", early), func(t *testing.T) {
			r := newRig(t)
			from, to := r.withTmpfs()
			if !early {
				r.plant("early-fails", "not now")
				r.spec.src.Policy.PauseAt = record.Frozen
			}
			// Where CRIU gives a deleted file that is open a name, that comes along.
			r.plant("tmpfs-link-remap", "")
			r.spec.dst.Policy.ReserveSpace, r.spec.dst.Directories[1].Size = early, 4<<20
			file, err := os.OpenFile(filepath.Join(from, "mapped"), os.O_CREATE|os.O_RDWR, 0o600)
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			if err := file.Truncate(4096); err != nil {
				t.Fatal(err)
			}
			page, err := unix.Mmap(int(file.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = unix.Munmap(page) }()
			r.playStill()
			r.start()
			r.wait(r.src, record.UntilConverged)
			copy(page, "written last, without an event")
			if err := os.WriteFile(filepath.Join(from, "late"), []byte("late"), 0o600); err != nil {
				t.Fatal(err)
			}
			if !early {
				go func() {
					r.wait(r.src, string(record.Frozen))
					_ = os.Remove(filepath.Join(r.control, "early-fails"))
					if err := record.Continue(r.src); err != nil {
						t.Error(err)
					}
				}()
			}
			if src, dst := r.cutover(); src.State != record.Done || dst.State != record.Done {
				t.Fatalf("source %s %q, destination %s %q", src.State, src.Error, dst.State, dst.Error)
			}
			if got, err := os.ReadFile(filepath.Join(to, "mapped")); err != nil || !bytes.HasPrefix(got, []byte("written last")) {
				t.Errorf("the mapped file has %.20q (%v)", got, err)
			}
			if _, err := os.Stat(filepath.Join(to, "link_remap.1")); err != nil {
				t.Error(err)
			}
			if r.digest(from) != r.digest(to) {
				t.Error("the restored tmpfs is not the source's")
			}
			var sparse unix.Stat_t
			if err := unix.Stat(filepath.Join(to, "sparse"), &sparse); err != nil || sparse.Blocks > 64 {
				t.Errorf("the file with holes takes %d blocks (%v)", sparse.Blocks, err)
			}
		})
	}
}

// If CRIU does anything else, the workload runs on where it was, with all its files.
func TestATmpfsThatCRIUHandlesOtherwiseEndsTheMove(t *testing.T) {
	for mark, says := range map[string]string{ // how CRIU's caller says it, or the session
		"tar-is-not-called":                "CRIU's dump has 0 marks",
		"dump-takes-another-tar":           "CRIU's dump has 0 marks",
		"restore-takes-another-tar":        "can't restore tmpfs content",
		"tar-is-not-called-at-the-restore": "was filled 0 times",
		"mounts-another":                   "another file system in the place of",
	} {
		t.Run(mark, func(t *testing.T) {
			r := newRig(t)
			from, _ := r.withTmpfs()
			before := r.digest(from)
			r.plant(mark, "")
			w := r.startWriter()
			r.start()
			r.wait(r.src, record.UntilConverged)
			src, dst := r.cutover()
			if src.State != record.Thawed && src.State != record.Refused || dst.State != record.Discarded {
				t.Fatalf("source %s %q, destination %s %q", src.State, src.Error, dst.State, dst.Error)
			}
			if why := src.Error + dst.Error; !strings.Contains(why, says) {
				t.Errorf("%q does not say %q", why, says)
			}
			if now := r.digest(from); now != before {
				t.Error("the source's tmpfs has changed")
			}
			if n := w.acknowledged(); !r.goesOn(w, n) {
				t.Error("the workload does not run on")
			}
			if mounted, err := loop.Mounted(filepath.Join(r.dst, record.TmpfsFolder)); err != nil || mounted {
				t.Errorf("the folder in which the files waited is mounted still: %v, %v", mounted, err)
			}
		})
	}
}

func (r *rig) plant(name, text string) {
	r.t.Helper()
	if err := os.WriteFile(filepath.Join(r.control, name), []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// goesOn waits for more writes than n.
func (r *rig) goesOn(w *writer, n int) bool {
	for range 1000 {
		if w.acknowledged() > n {
			return true
		}
		time.Sleep(5 * time.Millisecond)
	}
	return false
}

// A helper that is killed in the freeze leaves the source's files as they were.
func TestATmpfsIsThereStillWhereAHelperIsKilled(t *testing.T) {
	r := newRig(t)
	from, _ := r.withTmpfs()
	before := r.digest(from)
	w, st := r.killFlushed()
	if st.State != record.Thawed {
		t.Fatalf("source %s %q", st.State, st.Error)
	}
	if r.digest(from) != before {
		t.Error("the source's tmpfs has changed")
	}
	if !r.goesOn(w, w.acknowledged()) {
		t.Error("the workload does not run on")
	}
	if _, err := recovery.Recover(context.Background(), r.src, r.srcRun, false); err != nil {
		t.Error(err)
	}
}

// A digest that was taken beside the dump lacks all that CRIU has made since.
func TestADigestIsOfTheLastPass(t *testing.T) {
	dir := t.TempDir()
	d := &directory{Directory: record.Directory{Name: "tmpfs:/scratch", Path: dir, Tmpfs: "/scratch"}}
	if err := d.reread(t.Context()); err != nil {
		t.Fatal(err)
	}
	early := d.digest.sum
	if err := os.WriteFile(filepath.Join(dir, "link_remap.1"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	d.passes++
	if err := d.reread(t.Context()); err != nil {
		t.Fatal(err)
	}
	if d.digest.sum == early {
		t.Error("the digest is that of before the last pass")
	}
}
