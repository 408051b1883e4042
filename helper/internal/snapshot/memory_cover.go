package snapshot

import (
	"errors"
	"fmt"
	"os"
	"os/exec"

	"github.com/livefleet/handover/helper/internal/hooks"
	"github.com/livefleet/handover/helper/internal/loop"
)

// roomFor says whether a dump may lie in memory: it is a little larger than the tasks' own, and half is the host's.
var roomFor = func(memory, available int64) bool { return memory+memory/4 <= available/2 }

// cover puts a tmpfs where CRIU writes, as a move does: on a disk that has just taken a first
// pass the dump takes twice as long. With little memory it is the disk nevertheless.
func (d *dump) cover() error {
	if d.Ends { // it is read where it is, by the engine, which then removes the folder
		return nil
	}
	memory, err := d.Dump.Cgroup.Memory()
	available, e := hooks.MemoryAvailable()
	if err = errors.Join(err, e); err != nil || !roomFor(memory, available) {
		return err
	}
	d.covered = true
	return loop.MountTmpfs(d.Dump.Gate)
}

// takeImages brings the dump to its place on the disk.
func (d *dump) takeImages(to string) error {
	if !d.covered {
		return os.Rename(d.Dump.Gate, to)
	}
	if out, err := exec.Command("cp", "--archive", "--sparse=always", d.Dump.Gate, to).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return loop.Unmount(d.Dump.Gate)
}
