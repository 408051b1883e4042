package pinned

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/blockmap"
	"github.com/livefleet/handover/helper/internal/loop"
	"github.com/livefleet/handover/helper/internal/tracker/blockdev"
	"github.com/livefleet/handover/helper/internal/tracker/blockprobe"
)

const size, cluster = 8 << 20, 64 << 10

// place is a folder of a BPF file system, for one test.
func place(t *testing.T) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root: loop devices and BPF")
	}
	top := t.TempDir()
	if err := unix.Mount("bpf", top, "bpf", 0, ""); errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENODEV) {
		t.Skip("needs a BPF file system: ", err)
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(top, 0); err != nil {
			t.Error(err)
		}
	})
	return filepath.Join(top, "pins")
}

func device(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "disk.img")
	err := os.WriteFile(file, nil, 0o600)
	if err == nil {
		err = os.Truncate(file, size)
	}
	var dev string
	if err == nil {
		dev, err = loop.Attach(file)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := loop.Detach(dev); err != nil {
			t.Error(err)
		}
	})
	return dev
}

// process does something with what is pinned, as a process of its own would: all that
// it has open is closed before the next one comes.
func process(t *testing.T, dir string, do func(k *Trackers) error) {
	t.Helper()
	k, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(do(k), k.Close()); err != nil {
		t.Fatal(err)
	}
}

func start(t *testing.T, dir, dev, id string) (s *State) {
	t.Helper()
	process(t, dir, func(k *Trackers) (err error) {
		s, err = k.Start(dev, cluster, id)
		return err
	})
	return s
}

func write(t *testing.T, dev string, at int64) {
	t.Helper()
	f, err := os.OpenFile(dev, os.O_WRONLY|unix.O_SYNC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte(fmt.Sprintf("%4096d", at)), at*cluster); err != nil {
		t.Fatal(err)
	}
}

func marked(m *blockmap.Map) string {
	var list []string
	for at := range int64(size / cluster) {
		if m.Has(at * cluster) {
			list = append(list, fmt.Sprint(at))
		}
	}
	return strings.Join(list, " ")
}

// What a killed process took is there for the next one, as often as that happens.
func TestWhatWasTakenWithoutDoneIsTakenAgain(t *testing.T) {
	dir, dev := place(t), device(t)
	s := start(t, dir, dev, "a")
	write(t, dev, 1)
	for range 2 {
		process(t, dir, func(k *Trackers) error {
			_, err := k.Swap(s, nil)
			return err
		})
		write(t, dev, 2)
	}
	process(t, dir, func(k *Trackers) error {
		m, err := k.Peek(s)
		if err == nil && marked(m) != "1 2" {
			t.Errorf("a look says %s", marked(m))
		}
		if err != nil {
			return err
		}
		taken, err := k.Swap(s, nil)
		if err != nil {
			return err
		}
		if marked(taken.Marks) != "1 2" {
			t.Errorf("taken were %s", marked(taken.Marks))
		}
		if s = &taken.State; s.Generation != 3 {
			t.Errorf("generation %d", s.Generation)
		}
		return taken.Done()
	})
	write(t, dev, 5)
	process(t, dir, func(k *Trackers) error {
		if n := len(k.slots["a"]); n != 1 {
			t.Errorf("%d slots are left", n)
		}
		taken, err := k.Swap(s, nil)
		if err != nil {
			return err
		}
		if marked(taken.Marks) != "5" {
			t.Errorf("taken were %s", marked(taken.Marks))
		}
		return errors.Join(taken.Done(), k.Stop("a"))
	})
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// Names that somebody removes take the marks of their own tracker along, and say so.
func TestRemovedNames(t *testing.T) {
	dir, dev, other := place(t), device(t), device(t)
	s, o := start(t, dir, dev, "a"), start(t, dir, other, "b")
	write(t, dev, 1)
	write(t, other, 3)
	if err := os.Remove(filepath.Join(dir, "v2", nameOfFront("a", 0))); err != nil {
		t.Fatal(err)
	}
	process(t, dir, func(k *Trackers) error {
		var lost *blockdev.LostError
		if _, err := k.Swap(s, nil); !errors.As(err, &lost) || !strings.Contains(err.Error(), "its marks are gone from the kernel") {
			t.Errorf("a tracker without its front: %v", err)
		}
		m, err := k.Peek(o)
		if err == nil && marked(m) != "3" {
			t.Errorf("the other one says %s", marked(m))
		}
		return err
	})
	// A process that was killed while it pinned links leaves some of them.
	if err := os.Remove(filepath.Join(dir, "v2", nameOfLink(blockprobe.LinkKinds[0], 1))); err != nil {
		t.Fatal(err)
	}
	process(t, dir, func(k *Trackers) error { return k.Stop("b") })
	process(t, dir, func(k *Trackers) error {
		if len(k.IDs()) != 0 {
			t.Errorf("left: %v", k.IDs())
		}
		return os.Remove(k.dir)
	})
}

// A restarted host, and another device, are no longer what was tracked.
func TestAnotherStateIsLost(t *testing.T) {
	dir, dev := place(t), device(t)
	s := start(t, dir, dev, "a")
	for text, change := range map[string]func(*State){
		"the host was restarted":             func(s *State) { s.Boot = "another" },
		"this is another disk":               func(s *State) { s.Disk++ },
		"the device was resized or moved":    func(s *State) { s.Sectors-- },
		"by another version of pcopy":        func(s *State) { s.Layout++ },
		"another medium is in the device":    func(s *State) { s.Diskseq = "0" },
		"its marks are gone from the kernel": func(s *State) { s.Generation++ },
	} {
		process(t, dir, func(k *Trackers) error {
			changed := *s
			change(&changed)
			var lost *blockdev.LostError
			if _, err := k.Peek(&changed); !errors.As(err, &lost) || !strings.Contains(err.Error(), text) {
				t.Errorf("%v; should say %q", err, text)
			}
			return nil
		})
	}
	process(t, dir, func(k *Trackers) error { return k.Stop("a") })
	if _, err := Open(filepath.Join(t.TempDir(), "pins")); err == nil || !strings.Contains(err.Error(), "is in no BPF file system") {
		t.Error(err)
	}
}

func TestNamesOfSlots(t *testing.T) {
	for name, want := range map[string]string{"marks-ab-0": "ab 0 true", "marks-ab-17": "ab 17 true", "front-ab-0": " 0 false", "table": " 0 false", "marks-ab": " 0 false"} {
		id, generation, ok := slotOfName(name)
		if got := fmt.Sprint(id, " ", generation, " ", ok); got != want {
			t.Errorf("%s: %q, should be %q", name, got, want)
		}
	}
	if _, _, ok := slotOfName("marks-ab-x"); ok {
		t.Error("no generation, and taken for a slot")
	}
}
