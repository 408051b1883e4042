package record

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/tree"
)

// A workload's own tmpfs that the session carries is a directory volume, but for its two
// ends: the source follows it in the workload's root, and the destination has it in a tmpfs
// of the session's own until CRIU has mounted the new one.

// TmpfsFolder is the mount in a destination's session folder below which the files wait.
const TmpfsFolder = "tmpfs"

// TmpfsName is the name of a tmpfs among the directory volumes.
func TmpfsName(place string) string { return "tmpfs:" + place }

// Tmpfs are those that the session carries.
func (s *Spec) Tmpfs() []Directory {
	return slices.DeleteFunc(slices.Clone(s.Directories), func(d Directory) bool { return d.Tmpfs == "" })
}

// followTmpfs follows it only if the path leads to the tmpfs that was meant: the workload can
// change the folders above it.
func (d *Directory) followTmpfs() (*tree.Follower, error) {
	var st unix.Stat_t
	var fs unix.Statfs_t
	f, err := tree.Follow(d.Path)
	if err != nil {
		return nil, err
	}
	err = f.AtTop(func(fd int) error { return errors.Join(unix.Fstat(fd, &st), unix.Fstatfs(fd, &fs)) })
	if is := fmt.Sprintf("%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev)); err == nil && (is != d.Device || int64(fs.Type) != unix.TMPFS_MAGIC) {
		err = fmt.Errorf("%s is not the tmpfs %s any more, but on the device %s", d.Path, d.Device, is)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// checkTmpfs is about where a tmpfs can be carried.
func (s *Spec) checkTmpfs(d *Directory) error {
	c := s.Hooks.Freeze
	if s.Role == Destination {
		c = s.Hooks.Restore
	}
	switch {
	case d.Tmpfs == "":
		return nil
	case s.Mode != Live || len(s.Members) > 0:
		return errors.New("a tmpfs is carried beside the dump of one container alone")
	case !c.Given() || c.Gate == "" || c.Hold == "":
		return errors.New("a tmpfs needs a command with a gate, and with what stands in for tar: hold is missing")
	case s.Role == Source && d.Device == "":
		return errors.New("device is missing, by which the tmpfs is known")
	case s.Role == Destination && filepath.Base(filepath.Dir(d.Path)) != TmpfsFolder:
		return fmt.Errorf("path %q is not right below the folder %s of the session", d.Path, TmpfsFolder)
	}
	return nil
}
