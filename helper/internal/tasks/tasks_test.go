package tasks

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// folder is a cgroup as the kernel shows it: of processes, by the folder below it.
func folder(t *testing.T, lists map[string]string) string {
	t.Helper()
	top := t.TempDir()
	for below, list := range lists {
		if err := errors.Join(os.MkdirAll(filepath.Join(top, below), 0o700), os.WriteFile(filepath.Join(top, below, "cgroup.procs"), []byte(list), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return top
}

func begin(t *testing.T, words ...string) (pid string, end func()) {
	t.Helper()
	c := exec.Command(words[0], words[1:]...)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	end = sync.OnceFunc(func() { _ = c.Process.Kill(); _ = c.Wait() })
	t.Cleanup(end)
	return strconv.Itoa(c.Process.Pid), end
}

func read(proc string) error {
	_, err := os.ReadFile(filepath.Join(proc, "status"))
	return err
}

var me = strconv.Itoa(os.Getpid())

// The walks, each over a list of processes.
var walks = map[string]func(t *testing.T, children string, do func(proc string) error) error{
	"of a cgroup": func(t *testing.T, children string, do func(string) error) error {
		return InCgroup(folder(t, map[string]string{"": me + "\n", "below": children + "\n"}), do)
	},
	"of what descends": func(_ *testing.T, _ string, do func(string) error) error { return Descending(me, do) },
}

// A task that ends after its listing is left out, whatever is read of it, and the others are seen.
func TestATaskThatEndsInTheWalkIsNoError(t *testing.T) {
	for name, walk := range walks {
		t.Run(name, func(t *testing.T) {
			first, end := begin(t, "sleep", "1000")
			stays, _ := begin(t, "sleep", "1000")
			var seen []string
			err := walk(t, first+" "+stays, func(proc string) error {
				pid := filepath.Base(proc)
				if pid == first {
					end()
				}
				if err := read(proc); err != nil {
					return err
				}
				seen = append(seen, pid)
				return nil
			})
			if err != nil || !slices.Contains(seen, me) || !slices.Contains(seen, stays) || slices.Contains(seen, first) {
				t.Errorf("%v: %s stays, %s ends, and seen were %v", err, stays, first, seen)
			}
		})
	}
}

// A task that has ended and is not buried yet has no open files to list.
func TestATaskThatIsNotBuried(t *testing.T) {
	c := exec.Command("true")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Wait() }()
	var info unix.Siginfo
	if err := unix.Waitid(unix.P_PID, c.Process.Pid, &info, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
	list := strconv.Itoa(c.Process.Pid)
	err := InCgroup(folder(t, map[string]string{"": list}), func(proc string) error {
		_, err := os.ReadDir(filepath.Join(proc, "map_files", "0-1"))
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// Something else that is missing is an error, and any other one is told as it is.
func TestATaskThatRunsIsNotGone(t *testing.T) {
	for name, walk := range walks {
		for what, wrong := range map[string]error{"what is missing": fs.ErrNotExist, "no process": unix.ESRCH, "another": errors.New("it cannot be read")} {
			if err := walk(t, "", func(string) error { return wrong }); !errors.Is(err, wrong) {
				t.Errorf("%s, %s: %v", name, what, err)
			}
		}
		calls := 0
		if err := walk(t, "", func(string) error { calls++; return fs.SkipAll }); err != nil || calls != 1 {
			t.Errorf("%s: %v after %d calls", name, err, calls)
		}
	}
	if err := InCgroup(filepath.Join(t.TempDir(), "none"), read); !Gone(err) {
		t.Errorf("a cgroup that is not there: %v", err)
	}
}

// Tasks that begin and end all the time.
func TestARaceOfDyingTasks(t *testing.T) {
	group := folder(t, map[string]string{"": "", "below": ""})
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
			}
			c := exec.Command("sh", "-c", "sh -c : & :")
			if c.Start() == nil {
				_ = os.WriteFile(filepath.Join(group, "below/cgroup.procs"), []byte(strconv.Itoa(c.Process.Pid)+"\n"), 0o600)
				_ = c.Wait()
			}
		}
	}()
	defer func() { close(stop); <-done }()
	look := func(proc string) error {
		for _, name := range []string{"status", "environ", "maps", "cgroup"} {
			if _, err := os.ReadFile(filepath.Join(proc, name)); err != nil {
				return err
			}
		}
		if _, err := os.ReadDir(filepath.Join(proc, "fd")); err != nil {
			return err
		}
		return Threads(proc, func(thread string) error {
			_, err := Inside(thread)
			return err
		})
	}
	for n := range 1000 {
		if err := errors.Join(InCgroup(group, look), Descending(me, look)); err != nil {
			t.Fatalf("walk %d: %v", n, err)
		}
	}
}

func TestThreads(t *testing.T) {
	var found []int
	err := Threads("/proc/self", func(thread string) error {
		number, err := Inside(thread)
		found = append(found, number)
		return err
	})
	if err != nil || !slices.Contains(found, os.Getpid()) || len(found) < 2 {
		t.Error(found, err)
	}
	calls := 0
	if err := Threads("/proc/self", func(string) error { calls++; return fs.SkipAll }); err != nil || calls != 1 {
		t.Errorf("%v after %d calls", err, calls)
	}
	pid, end := begin(t, "sleep", "1000")
	end()
	if err := Threads("/proc/"+pid, func(string) error { return errors.New("it has none") }); err != nil {
		t.Error(err)
	}
}

func TestInside(t *testing.T) {
	for text, want := range map[string]int{"Name:\tsh\nNSpid:\t4711\t12\t1\nVmPeak: 1 kB\n": 1, "NSpid:\t17\n": 17, "Name:\tsh\n": 0, "NSpid:\n": 0} {
		task := t.TempDir()
		if err := os.WriteFile(filepath.Join(task, "status"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if number, err := Inside(task); number != want || (err == nil) != (want > 0) {
			t.Errorf("%q: %d, %v", text, number, err)
		}
	}
}
