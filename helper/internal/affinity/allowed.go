package affinity

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/tasks"
)

// limits knows the processors that cgroups leave their tasks.
type limits struct {
	place string // where the hierarchy with the controller cpuset is mounted; empty: there is none
	old   bool   // it is one of the first version
	known map[string]unix.CPUSet
}

// The processors that a cgroup leaves its tasks, by the version of its hierarchy.
var effective = map[bool]string{false: "cpuset.cpus.effective", true: "cpuset.effective_cpus"}

func newLimits() (l limits, err error) {
	mounts, err := os.ReadFile("/proc/self/mounts")
	for line := range strings.Lines(string(mounts)) {
		f := strings.Fields(line)
		old := len(f) > 3 && f[2] == "cgroup" && slices.Contains(strings.Split(f[3], ","), "cpuset")
		if old || len(f) > 3 && f[2] == "cgroup2" && !l.old {
			l.place, l.old = f[1], old
		}
	}
	l.known = map[string]unix.CPUSet{}
	return l, err
}

// of are those of a task, by its folder in /proc. Where no cgroup says it, all that are online
// are left.
func (l limits) of(task string) (set unix.CPUSet, err error) {
	text, err := os.ReadFile(filepath.Join(task, "cgroup"))
	if err != nil {
		return set, err
	}
	cgroup := ""
	for line := range strings.Lines(string(text)) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(f) == 3 && (l.old && slices.Contains(strings.Split(f[1], ","), "cpuset") || !l.old && f[0] == "0") {
			cgroup = f[2]
		}
	}
	if set, ok := l.known[cgroup]; ok {
		return set, nil
	}
	list, err := l.read(cgroup)
	if err == nil {
		set, err = parse(list)
	}
	if err == nil {
		l.known[cgroup] = set
	}
	return set, err
}

// read finds the cgroup with the controller, which may be one above.
func (l limits) read(cgroup string) (list string, err error) {
	for at := filepath.Join("/", cgroup); l.place != ""; at = filepath.Dir(at) {
		b, err := os.ReadFile(filepath.Join(l.place, at, effective[l.old]))
		if err != nil && !tasks.Gone(err) && !errors.Is(err, unix.ENODEV) {
			return "", err
		}
		if len(strings.TrimSpace(string(b))) > 0 {
			return string(b), nil
		}
		if at == "/" {
			break
		}
	}
	b, err := os.ReadFile("/sys/devices/system/cpu/online")
	return string(b), err
}

// parse reads the kernel's lists of numbers: 0-3,7.
func parse(list string) (set unix.CPUSet, err error) {
	for _, part := range strings.Split(strings.TrimSpace(list), ",") {
		from, to, is := strings.Cut(part, "-")
		if !is {
			to = from
		}
		first, err1 := strconv.Atoi(from)
		last, err2 := strconv.Atoi(to)
		if err1 != nil || err2 != nil || first > last {
			return set, fmt.Errorf("%q is no list of processors", list)
		}
		for p := first; p <= last; p++ {
			set.Set(p)
		}
	}
	return set, nil
}

// common are the processors of both sets.
func common(a, b *unix.CPUSet) (both unix.CPUSet) {
	for i := range both {
		both[i] = a[i] & b[i]
	}
	return both
}
