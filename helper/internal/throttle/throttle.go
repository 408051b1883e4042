// Package throttle takes processor time from the tasks of a cgroup, step by step, and
// gives all of it back.
//
// QEMU calls it auto-converge: a workload that writes faster than the copy is slowed
// down until it no longer does. The first step takes 20 % of the processor time that
// it may use, or that it uses where nothing limits it; each further one 10 % more, and
// the last one leaves it 1 %.
//
// The limit is cpu.max of a cgroup of the second version, or cpu.cfs_quota_us where the
// controller cpu has a hierarchy of the first. A limit that was there is put back
// literally, and then read and compared.
//
// A workload that stays slow would be worse than a move that fails. So, before the first
// limit is written, a record of the one that was there, and of all that may follow, is on
// the disk, and a process waits for the end of this one (Guard). Lift puts back the
// recorded limit; any process that finds a record may call it, at any time and again. A
// limit that another program has set is none of the recorded ones, and stays as it is.
package throttle

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// The steps, in percent of the workload's allowed processor time.
const (
	firstStep = 20
	nextSteps = 10
	lastStep  = 99
)

// leastQuota is the smallest quota that the kernel takes, in microseconds.
const leastQuota = 1000

// step is one limit, as it is written to the kernel and read from it.
type step struct {
	Percent int    `json:"percent"`
	Limit   string `json:"limit"`
}

// record is on the disk for as long as there may be a limit of ours.
type record struct {
	Owner    int    `json:"owner"` // the process that writes the limits
	File     string `json:"file"`
	Original string `json:"original"`
	Steps    []step `json:"steps"`
}

// control is how the limit of a cgroup is said: in which file, and how a quota of so
// many microseconds a period is written there.
type control struct {
	file   string
	period int64
	quota  int64 // 0: none
	write  func(quota int64) string
}

// controlOf finds out which version a cgroup is of, and how it is limited now.
func controlOf(cgroup string) (*control, error) {
	v2, v1 := filepath.Join(cgroup, "cpu.max"), filepath.Join(cgroup, "cpu.cfs_quota_us")
	if now, err := value(v2); err == nil {
		quota, period, _ := strings.Cut(now, " ")
		c := &control{file: v2}
		if c.period, err = strconv.ParseInt(period, 10, 64); err == nil && quota != "max" {
			c.quota, err = strconv.ParseInt(quota, 10, 64)
		}
		if err != nil {
			return nil, fmt.Errorf("throttle: %s says %q, and not a quota and a period", v2, now)
		}
		c.write = func(quota int64) string { return fmt.Sprintf("%d %d", quota, c.period) }
		return c, nil
	} else if !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("throttle: %w", err)
	}
	now, err := value(v1)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("throttle: %s has neither cpu.max nor cpu.cfs_quota_us: the processor time of what is in it cannot be limited", cgroup)
	}
	period := ""
	if err == nil {
		period, err = value(filepath.Join(cgroup, "cpu.cfs_period_us"))
	}
	if err != nil {
		return nil, fmt.Errorf("throttle: %w", err)
	}
	c := &control{file: v1, write: func(quota int64) string { return strconv.FormatInt(quota, 10) }}
	if c.period, err = strconv.ParseInt(period, 10, 64); err == nil {
		c.quota, err = strconv.ParseInt(now, 10, 64)
	}
	if err != nil {
		return nil, fmt.Errorf("throttle: %s: a quota of %q and a period of %q are no numbers", cgroup, now, period)
	}
	c.quota = max(0, c.quota) // -1 is none
	return c, nil
}

// steps are the limits to go through for a workload that keeps so many processors busy.
// Those that would take nothing, and those that are like the one before, are left out.
func (c *control) steps(used float64) (found []step) {
	base := float64(c.period) * used
	if c.quota > 0 {
		base = min(base, float64(c.quota))
	}
	last := c.quota
	for percent := firstStep; ; percent = min(percent+nextSteps, lastStep) {
		quota := max(leastQuota, int64(base*float64(100-percent)/100))
		if last == 0 || quota < last {
			found = append(found, step{percent, c.write(quota)})
			last = quota
		}
		if percent == lastStep {
			return found
		}
	}
}

// Possible returns an error where the processor time of a cgroup cannot be limited.
func Possible(cgroup string) error {
	_, err := controlOf(cgroup)
	return err
}

// Throttle is the way through the steps. Nil is one that has not begun.
type Throttle struct {
	path   string
	record record
	taken  int
	guard  *guard
}

// Begin prepares the way for a cgroup whose tasks keep so many processors busy. The
// record is at path; the limit of an earlier record there is lifted first. No limit
// is written yet.
func Begin(cgroup string, used float64, path string) (*Throttle, error) {
	if err := Lift(path); err != nil {
		return nil, err
	}
	c, err := controlOf(cgroup)
	if err != nil {
		return nil, err
	}
	original, err := value(c.file)
	if err != nil {
		return nil, fmt.Errorf("throttle: %w", err)
	}
	t := &Throttle{path: path, record: record{Owner: os.Getpid(), File: c.file, Original: original, Steps: c.steps(used)}}
	if err := t.record.save(path); err != nil {
		return nil, err
	}
	if t.guard, err = watch(path); err != nil {
		return nil, errors.Join(err, t.Lift())
	}
	return t, nil
}

// Harder takes the next step: how many percent of its processor time the workload is
// without now, and the limit as the kernel has it; or ErrLast.
func (t *Throttle) Harder() (percent int, limit string, err error) {
	if t.taken == len(t.record.Steps) {
		return 0, "", ErrLast
	}
	before := t.record.Original
	if t.taken > 0 {
		before = t.record.Steps[t.taken-1].Limit
	}
	if now, err := value(t.record.File); err != nil {
		return 0, "", fmt.Errorf("throttle: %w", err)
	} else if now != before {
		return 0, "", fmt.Errorf("throttle: %s was %q, and another program has made it %q: that is kept, and nothing is slowed down further", t.record.File, before, now)
	}
	s := t.record.Steps[t.taken]
	t.taken++
	if err := put(t.record.File, s.Limit); err != nil {
		// The kernel's version of it is none of the limits in the record.
		if e := put(t.record.File, t.record.Original); !gone(e) {
			err = errors.Join(err, e)
		}
		return 0, "", err
	}
	return s.Percent, s.Limit, nil
}

// ErrLast says that there is no further step.
var ErrLast = errors.New("throttle: there is no further step")

// Lift gives all processor time back. It may be called at any time, and again.
func (t *Throttle) Lift() error {
	if t == nil {
		return nil
	}
	if err := Lift(t.path); err != nil {
		return err // the guard stays
	}
	t.guard.dismiss()
	return nil
}

// Lift puts back the limit that the record at path tells of, if one of ours is still
// there, and removes the record. Without a record there is nothing to put back, and a
// cgroup that is gone has no limit.
func Lift(path string) error {
	r, err := load(path)
	if err != nil || r == nil {
		return err
	}
	now, err := value(r.File)
	switch {
	case gone(err):
	case err != nil:
		return fmt.Errorf("throttle: %w", err)
	case slices.ContainsFunc(r.Steps, func(s step) bool { return s.Limit == now }):
		if err := put(r.File, r.Original); err != nil && !gone(err) {
			return fmt.Errorf("%w: the workload stays slowed down: write %q there", err, r.Original)
		}
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("throttle: %w", err)
	}
	return nil
}

// load reads the record at path; nil if there is none.
func load(path string) (*record, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	var r record
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	if err != nil {
		return nil, fmt.Errorf("throttle: the limit that was there before: %s: %w", path, err)
	}
	return &r, nil
}

// save puts the record on the disk, whole or not at all.
func (r *record) save(path string) error {
	b, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("throttle: %w", err)
	}
	fresh := path + ".new"
	f, err := os.OpenFile(fresh, os.O_CREATE|os.O_TRUNC|os.O_WRONLY|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return fmt.Errorf("throttle: %w", err)
	}
	_, err = f.Write(b)
	if err == nil {
		err = unix.Fdatasync(int(f.Fd()))
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(fresh, path)
	}
	if err == nil {
		err = syncDirectory(filepath.Dir(path))
	}
	if err != nil {
		return fmt.Errorf("throttle: %s: %w", path, err)
	}
	return nil
}

func syncDirectory(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// put writes a limit and sees that the kernel has it.
func put(file, limit string) error {
	// Without O_CREATE: a path that is no cgroup must stay an error.
	f, err := os.OpenFile(file, os.O_WRONLY|unix.O_CLOEXEC, 0)
	if err == nil {
		_, err = f.WriteString(limit)
		err = errors.Join(err, f.Close())
	}
	var now string
	if err == nil {
		now, err = value(file)
	}
	if err != nil {
		return fmt.Errorf("throttle: writing the limit %q: %w", limit, err)
	}
	if now != limit {
		return fmt.Errorf("throttle: %s: %q was written, and it says %q", file, limit, now)
	}
	return nil
}

func value(file string) (string, error) {
	b, err := os.ReadFile(file)
	return strings.TrimSpace(string(b)), err
}

// gone reports whether a cgroup has gone with its tasks.
func gone(err error) bool { return errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENODEV) }
