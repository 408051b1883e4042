package hooks

import (
	"fmt"
	"strconv"
	"strings"
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

// resident reads RssAnon and RssShmem, in bytes. A task that has ended has none.
func resident(status string) (anon, shmem int64, err error) {
	for line := range strings.Lines(status) {
		key, value, _ := strings.Cut(line, ":")
		into := map[string]*int64{"RssAnon": &anon, "RssShmem": &shmem}[key]
		if into == nil {
			continue
		}
		number, unit, _ := strings.Cut(strings.TrimSpace(value), " ")
		if *into, err = strconv.ParseInt(number, 10, 64); err != nil || unit != "kB" {
			return 0, 0, fmt.Errorf("%s is %q, and not a number of kB", key, strings.TrimSpace(value))
		}
		*into <<= 10
	}
	return anon, shmem, nil
}
