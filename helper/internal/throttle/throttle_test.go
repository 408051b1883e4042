package throttle

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/livefleet/handover/helper/internal/hooks/cgrouptest"
)

// actThrottle CGROUP RECORD is a process that takes one step and is killed then.
const actThrottle = "act-throttle"

func TestMain(m *testing.M) {
	acts := map[string]func(args []string) error{
		LiftBehindWord: func(args []string) error { return LiftWhenGone(args[0], args[1]) },
		actThrottle: func(args []string) error {
			t, err := Begin(args[0], 1, args[1])
			if err == nil {
				_, _, err = t.Harder()
			}
			fmt.Println(err)
			time.Sleep(time.Hour)
			return err
		},
	}
	if len(os.Args) > 1 && acts[os.Args[1]] != nil {
		if err := acts[os.Args[1]](os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestSteps(t *testing.T) {
	all := []int{20, 30, 40, 50, 60, 70, 80, 90, 99}
	for name, c := range map[string]struct {
		period, quota int64
		used          float64
		percents      []int
		quotas        []int64
	}{
		"of what it uses":                        {100000, 0, 1, all, []int64{80000, 70000, 60000, 50000, 40000, 30000, 20000, 10000, 1000}},
		"of several processors":                  {100000, 0, 2.5, all, []int64{200000, 175000, 150000, 125000, 100000, 75000, 50000, 25000, 2500}},
		"of the quota, if it uses all of that":   {100000, 50000, 0.5, all, []int64{40000, 35000, 30000, 25000, 20000, 15000, 10000, 5000, 1000}},
		"of what it uses, if that is less":       {100000, 400000, 1, all, []int64{80000, 70000, 60000, 50000, 40000, 30000, 20000, 10000, 1000}},
		"of the quota, if it had used more":      {100000, 100000, 1.3, all, []int64{80000, 70000, 60000, 50000, 40000, 30000, 20000, 10000, 1000}},
		"of another period":                      {50000, 0, 1, all, []int64{40000, 35000, 30000, 25000, 20000, 15000, 10000, 5000, 1000}},
		"no less than the kernel takes":          {100000, 0, 0.02, []int{20, 30, 40, 50}, []int64{1600, 1400, 1200, 1000}},
		"of one that does nothing":               {100000, 0, 0, []int{20}, []int64{1000}},
		"none where there is nothing to take":    {100000, 1000, 1, nil, nil},
		"and a quota is never made larger by it": {100000, 1500, 0.015, []int{20, 30, 40}, []int64{1200, 1050, 1000}},
	} {
		k := control{period: c.period, quota: c.quota, write: func(q int64) string { return strconv.FormatInt(q, 10) }}
		var want []step
		for i, p := range c.percents {
			want = append(want, step{p, strconv.FormatInt(c.quotas[i], 10)})
		}
		if got := k.steps(c.used); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, and %v wanted", name, got, want)
		}
	}
}

// Both versions say a limit in their own way; what is no cgroup has none.
func TestWhatLimitsACgroup(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		first string
		said  string
	}{
		"version 2, no limit":   {files: map[string]string{"cpu.max": "max 100000\n"}, first: "80000 100000"},
		"version 2, a quota":    {files: map[string]string{"cpu.max": "50000 100000\n"}, first: "40000 100000"},
		"version 1, no limit":   {files: map[string]string{"cpu.cfs_quota_us": "-1\n", "cpu.cfs_period_us": "100000\n"}, first: "80000"},
		"version 1, a quota":    {files: map[string]string{"cpu.cfs_quota_us": "50000\n", "cpu.cfs_period_us": "100000\n"}, first: "40000"},
		"without a controller":  {said: "has neither cpu.max nor cpu.cfs_quota_us"},
		"version 2, rubbish":    {files: map[string]string{"cpu.max": "much\n"}, said: `cpu.max says "much", and not a quota and a period`},
		"version 1, rubbish":    {files: map[string]string{"cpu.cfs_quota_us": "-1\n", "cpu.cfs_period_us": "long\n"}, said: `a period of "long" are no numbers`},
		"version 1, half of it": {files: map[string]string{"cpu.cfs_quota_us": "-1\n"}, said: "cpu.cfs_period_us: no such file"},
	} {
		dir := t.TempDir()
		for file, text := range c.files {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		k, err := controlOf(dir)
		if c.said != "" {
			if err == nil || !strings.Contains(err.Error(), c.said) {
				t.Errorf("%s: %v", name, err)
			}
			if Possible(dir) == nil {
				t.Errorf("%s: it is said to be possible", name)
			}
		} else if err != nil || k.steps(1)[0].Limit != c.first {
			t.Errorf("%s: %+v %v", name, k, err)
		}
	}
}

// writing starts a process in the cgroup that writes as fast as it can, and returns
// how many bytes it writes in the time that the kernel needs to deal out some limits.
func writing(t *testing.T, dir string) (rate func() int64) {
	t.Helper()
	to := filepath.Join(t.TempDir(), "written")
	cgrouptest.Enter(t, exec.Command("python3", "-c", "b = b'x' * 64\nwith open('"+to+"', 'ab', 0) as to:\n while True: to.write(b)"), dir)
	size := func() int64 {
		i, err := os.Stat(to)
		if err != nil {
			return 0
		}
		return i.Size()
	}
	for size() == 0 {
		time.Sleep(10 * time.Millisecond)
	}
	return func() int64 {
		before := size()
		time.Sleep(500 * time.Millisecond)
		return size() - before
	}
}

func limit(t *testing.T, file, want string) {
	t.Helper()
	if now, err := value(file); err != nil || now != want {
		t.Errorf("%s says %q (%v), and not %q", file, now, err, want)
	}
}

func begin(t *testing.T, dir string, used float64) (*Throttle, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "throttle")
	b, err := Begin(dir, used, path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Lift(); err != nil {
			t.Error(err)
		}
	})
	return b, path
}

func TestABusyProcessIsSlowedDownAndLetGo(t *testing.T) {
	dir, file := cgrouptest.Limitable(t)
	rate := writing(t, dir)
	original, err := value(file)
	if err != nil {
		t.Fatal(err)
	}
	before := rate()
	b, path := begin(t, dir, 1)
	limit(t, file, original) // nothing is written yet
	var percents []int
	for {
		percent, said, err := b.Harder()
		if errors.Is(err, ErrLast) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		limit(t, file, said)
		percents = append(percents, percent)
	}
	if want := []int{20, 30, 40, 50, 60, 70, 80, 90, 99}; !reflect.DeepEqual(percents, want) {
		t.Errorf("the steps were %v", percents)
	}
	slow := rate()
	for range 2 { // every way out may call it
		if err := b.Lift(); err != nil {
			t.Fatal(err)
		}
	}
	limit(t, file, original)
	after := rate()
	t.Logf("%d bytes before, %d slowed down, %d after", before, slow, after)
	if slow > before/3 || after < 3*slow {
		t.Errorf("it wrote %d bytes before, %d when it was slowed down by 99 %%, and %d after", before, slow, after)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the record is still there: %v", err)
	}
}

// What was there before comes back to the letter.
func TestAQuotaIsScaledAndComesBack(t *testing.T) {
	dir, file := cgrouptest.Limitable(t)
	c, err := controlOf(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := put(file, c.write(30000)); err != nil {
		t.Fatal(err)
	}
	b, _ := begin(t, dir, 1)
	if _, _, err := b.Harder(); err != nil {
		t.Fatal(err)
	}
	limit(t, file, c.write(24000))
	if err := b.Lift(); err != nil {
		t.Fatal(err)
	}
	limit(t, file, c.write(30000))
}

// What somebody else sets meanwhile is his.
func TestWhatSomebodyElseSetStays(t *testing.T) {
	dir, file := cgrouptest.Limitable(t)
	c, err := controlOf(dir)
	if err != nil {
		t.Fatal(err)
	}
	b, _ := begin(t, dir, 1)
	if _, _, err := b.Harder(); err != nil {
		t.Fatal(err)
	}
	if err := put(file, c.write(33333)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := b.Harder(); err == nil || !strings.Contains(err.Error(), "another program has made it") {
		t.Errorf("the next step: %v", err)
	}
	if err := b.Lift(); err != nil {
		t.Fatal(err)
	}
	limit(t, file, c.write(33333))
}

// A process that is killed leaves a guard behind, which gives back what it took.
func TestAKilledProcessLeavesNoLimit(t *testing.T) {
	dir, file := cgrouptest.Limitable(t)
	original, err := value(file)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "throttle")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := exec.Command(self, actThrottle, dir, path)
	out, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cgrouptest.Enter(t, p)
	if said, err := bufio.NewReader(out).ReadString('\n'); err != nil || said != "<nil>\n" {
		t.Fatalf("it said %q (%v)", said, err)
	}
	r, err := load(path)
	if err != nil || r == nil || r.Owner != p.Process.Pid || r.Original != original {
		t.Fatalf("the record: %+v (%v)", r, err)
	}
	limit(t, file, r.Steps[0].Limit)
	if err := p.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for range 300 {
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
			limit(t, file, original)
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	now, _ := value(file)
	t.Fatalf("three seconds after its death the limit is %q, and was %q", now, original)
}

// A guard that comes late has nothing to do with what a later process has begun.
func TestAGuardKnowsWhoseRecordItIs(t *testing.T) {
	dir, file := cgrouptest.Limitable(t)
	b, path := begin(t, dir, 1)
	_, said, err := b.Harder()
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		owner int
		want  string
	}{{1, said}, {os.Getpid(), b.record.Original}} {
		if out, err := exec.Command(self, LiftBehindWord, path, strconv.Itoa(c.owner)).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		limit(t, file, c.want)
	}
}

func TestNothingToLift(t *testing.T) {
	path := filepath.Join(t.TempDir(), "throttle")
	if err := Lift(path); err != nil {
		t.Errorf("without a record: %v", err)
	}
	if err := (*Throttle)(nil).Lift(); err != nil {
		t.Errorf("not begun: %v", err)
	}
	r := record{File: filepath.Join(t.TempDir(), "gone", "cpu.max"), Original: "max 100000", Steps: []step{{20, "80000 100000"}}}
	if err := r.save(path); err != nil {
		t.Fatal(err)
	}
	if err := Lift(path); err != nil {
		t.Errorf("the cgroup went with its tasks: %v", err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the record is still there: %v", err)
	}
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Lift(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a record that cannot be read: %v", err)
	}
}

// A limit that the kernel did not take is no limit that was put back.
func TestWhatIsPutBackIsCompared(t *testing.T) {
	file := filepath.Join(t.TempDir(), "cpu.max") // as a file it keeps what was longer
	if err := os.WriteFile(file, []byte("80000 100000"), 0o600); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "throttle")
	r := record{File: file, Original: "max 1000", Steps: []step{{20, "80000 100000"}}}
	if err := r.save(path); err != nil {
		t.Fatal(err)
	}
	err := Lift(path)
	if err == nil || !strings.Contains(err.Error(), `"max 1000" was written, and it says`) || !strings.Contains(err.Error(), "the workload stays slowed down") {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Errorf("the record is gone, and the limit is not lifted: %v", err)
	}
}
