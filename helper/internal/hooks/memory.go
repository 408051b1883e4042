package hooks

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/livefleet/handover/helper/internal/tasks"
)

// Memory is how much of the cgroup's tasks a dump carries: the anonymous memory of
// each, and their shared memory without a file, once: as much as the task that has
// most of it.
func (c Cgroup) Memory() (int64, error) {
	var own, shared int64
	err := c.eachStatus(func(proc, status string) error {
		anon, shmem, err := resident(status)
		if err != nil {
			return fmt.Errorf("%s: %w", proc, err)
		}
		own += anon
		shared = max(shared, shmem)
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("hooks: the memory of the container: %w", err)
	}
	return own + shared, nil
}

// MemoryAvailable is how much memory the kernel says that it could give, in bytes.
func MemoryAvailable() (int64, error) {
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, fmt.Errorf("hooks: %w", err)
	}
	found, err := sizes(string(b), "MemAvailable")
	if err != nil {
		return 0, fmt.Errorf("hooks: /proc/meminfo: %w", err)
	}
	if found["MemAvailable"] == 0 {
		return 0, errors.New("hooks: /proc/meminfo does not say how much memory is available")
	}
	return found["MemAvailable"], nil
}

// Forked is how much more memory its tasks would have if each had its own copy of the
// pages that they share since they were forked.
func (c Cgroup) Forked() (more int64, err error) {
	err = c.EachTask(func(proc string) error {
		rollup, err := os.ReadFile(filepath.Join(proc, "smaps_rollup"))
		if tasks.Gone(err) { // or its memory, by which it has begun another program
			return nil
		} else if err != nil {
			return err
		}
		own, err := sizes(string(rollup), "Anonymous", "Pss_Anon")
		if err != nil {
			return fmt.Errorf("%s: %w", proc, err)
		}
		more += own["Anonymous"] - own["Pss_Anon"]
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("hooks: the memory that the container's tasks share: %w", err)
	}
	return more, nil
}

// resident reads RssAnon and RssShmem, in bytes. A task that has ended has none.
func resident(status string) (anon, shmem int64, err error) {
	found, err := sizes(status, "RssAnon", "RssShmem")
	return found["RssAnon"], found["RssShmem"], err
}

// sizes reads lines of a file of /proc, in bytes; what it does not say is nothing.
func sizes(text string, keys ...string) (map[string]int64, error) {
	found := map[string]int64{}
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(line, ":")
		if !slices.Contains(keys, key) {
			continue
		}
		number, unit, _ := strings.Cut(strings.TrimSpace(value), " ")
		kib, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
		if err != nil || unit != "kB" {
			return nil, fmt.Errorf("%s is %q, and not a number of kB", key, strings.TrimSpace(value))
		}
		found[key] = kib << 10
	}
	return found, nil
}
