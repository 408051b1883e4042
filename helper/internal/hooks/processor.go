package hooks

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// tick is the unit in which the kernel tells processor times in /proc, on every
// architecture that is built for (USER_HZ).
const tick = 10 * time.Millisecond

// ProcessorTime is the processor time of the cgroup's tasks, and of those of their
// children that have ended. A task that ends takes its own along unless a task of the
// cgroup was waiting for it.
func (c Cgroup) ProcessorTime() (time.Duration, error) {
	var sum time.Duration
	err := c.EachTask(func(proc string) error {
		stat, err := os.ReadFile(filepath.Join(proc, "stat"))
		if err != nil {
			return err
		}
		had, err := processorTime(string(stat))
		if err != nil {
			return fmt.Errorf("%s: %w", proc, err)
		}
		sum += had
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("hooks: the processor time of the container: %w", err)
	}
	return sum, nil
}

// processorTime reads utime, stime, cutime and cstime, the 14th field and those that
// follow. The second is the name, in brackets, and may hold blanks and brackets itself.
func processorTime(stat string) (sum time.Duration, err error) {
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) < 15 {
		return 0, fmt.Errorf("%d fields follow the name of the process, and 15 are needed", len(fields))
	}
	for _, field := range fields[11:15] {
		ticks, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("a processor time is %q, and not a number", field)
		}
		sum += time.Duration(ticks) * tick
	}
	return sum, nil
}
