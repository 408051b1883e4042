package hooks

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

func TestResident(t *testing.T) {
	for text, want := range map[string][2]int64{
		"Name:\tsh\nRssAnon:\t     104 kB\nRssFile:\t 9 kB\nRssShmem:\t       8 kB\n": {104 << 10, 8 << 10},
		"Name:\tsh\nState:\tZ (zombie)\n":                                             {0, 0},
	} {
		anon, shmem, err := resident(text)
		if err != nil || anon != want[0] || shmem != want[1] {
			t.Errorf("%q: %d and %d (%v), %v wanted", text, anon, shmem, err, want)
		}
	}
	for _, text := range []string{"RssAnon:\t12 MB\n", "RssShmem:\tmany kB\n"} {
		if _, _, err := resident(text); err == nil {
			t.Errorf("%q was taken", text)
		}
	}
}

// What two tasks share counts once, and what each has for itself counts.
func TestMemoryOfACgroup(t *testing.T) {
	dir := t.TempDir() // its files are all that is read of a cgroup
	segment := filepath.Join("/dev/shm", "handover-test-"+strconv.Itoa(os.Getpid()))
	t.Cleanup(func() { os.Remove(segment) })
	if err := os.WriteFile(segment, make([]byte, 16<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	hold := `import mmap,sys,time
own = bytearray(b"x") * (8 << 20)
f = open(sys.argv[1], "r+b"); m = mmap.mmap(f.fileno(), 0); m[::4096]
print("ready", flush=True); time.sleep(600)`
	procs := ""
	for range 2 {
		cmd := exec.Command("python3", "-c", hold, segment)
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		b := make([]byte, 6)
		if _, err := out.Read(b); err != nil {
			t.Fatal(err)
		}
		procs += strconv.Itoa(cmd.Process.Pid) + "\n"
	}
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(procs+"99999999\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	time.Sleep(10 * time.Millisecond)
	got, err := Cgroup(dir).Memory()
	if least := int64(2*8+16) << 20; err != nil || got < least || got > least+24<<20 {
		t.Errorf("%d bytes (%v), at least %d wanted and not 16 MiB twice", got, err, least)
	}
}
