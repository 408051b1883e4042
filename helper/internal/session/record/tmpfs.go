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

// TmpfsName is the name of a tmpfs among the directory volumes. Members may have one in the same
// place, and no name of a member has a colon.
func TmpfsName(member, place string) string {
	if member != "" {
		place = member + ":" + place
	}
	return "tmpfs:" + place
}

// Tmpfs are those that the session carries.
func (s *Spec) Tmpfs() []Directory {
	return slices.DeleteFunc(slices.Clone(s.Directories), func(d Directory) bool { return d.Tmpfs == "" })
}

// TmpfsOf are those of one part.
func (s *Spec) TmpfsOf(part Member) []Directory {
	return slices.DeleteFunc(s.Tmpfs(), func(d Directory) bool { return d.Member != part.Name })
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
	if d.Tmpfs == "" {
		return nil
	}
	at := slices.IndexFunc(s.Parts(), func(m Member) bool { return m.Name == d.Member })
	if at < 0 {
		return fmt.Errorf("member %q, whose tmpfs it is, is none of the workload's", d.Member)
	}
	c := s.Parts()[at].Freeze
	if s.Role == Destination {
		c = s.Parts()[at].Restore
	}
	switch {
	case s.Mode != Live:
		return fmt.Errorf("a tmpfs is carried beside a dump, and mode %s makes none that travels", s.Mode)
	case !c.Given() || c.Gate == "" || c.Hold == "":
		return errors.New("a tmpfs needs a command with a gate, and with what stands in for tar: hold is missing")
	case s.Role == Source && d.Device == "":
		return errors.New("device is missing, by which the tmpfs is known")
	case s.Role == Source && slices.ContainsFunc(s.Directories, func(other Directory) bool { return other.Device == d.Device && other.Name != d.Name }):
		return fmt.Errorf("device %s is that of another tmpfs, too: CRIU packs it in one dump alone", d.Device)
	case s.Role == Destination && filepath.Base(filepath.Dir(d.Path)) != TmpfsFolder:
		return fmt.Errorf("path %q is not right below the folder %s of the session", d.Path, TmpfsFolder)
	}
	return nil
}
