package hooks

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// MustStayWritable says why the file systems that are mounted at some places cannot be
// frozen before a dump of the tasks in some cgroups is complete; empty if they can. The
// one harm would be a CRIU that writes to one of them, to give a name to a file that has
// lost its own (NeedsNames). The tasks have to be frozen. A move and a snapshot ask it
// alike. A workload without a file system there has nothing to freeze, and no reason.
func MustStayWritable(mountpoints []string, cgroups ...Cgroup) string {
	devices := map[uint64]bool{}
	for _, m := range mountpoints {
		var st unix.Stat_t
		if err := unix.Stat(m, &st); err != nil {
			return fmt.Sprintf("%s: %v", m, err)
		}
		devices[st.Dev] = true
	}
	for _, c := range cgroups {
		if c == "" {
			return "the tasks are not in a cgroup that is known"
		}
		file, err := c.NeedsNames(devices)
		switch {
		case err != nil:
			return err.Error()
		case file != "":
			return fmt.Sprintf("CRIU gives a name to %s", file)
		}
	}
	return ""
}
