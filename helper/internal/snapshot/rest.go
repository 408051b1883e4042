package snapshot

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// stamp is a file at a moment, such that each later write to it makes another one: the
// kernel gives a file that is written a new time of change, which no program can set.
//
// That time is as coarse as the kernel's clock. So a file that was changed a moment ago
// has no stamp yet: another write could leave its time as it is.
type stamp struct {
	Dev   uint64 `json:"dev"`
	Ino   uint64 `json:"ino"`
	Size  int64  `json:"size"`
	Mtime int64  `json:"mtime"` // nanoseconds since 1970
	Ctime int64  `json:"ctime"`
}

// The kernel's clock ticks every 10 ms at the least. Old inodes count whole seconds.
const (
	tick      = 50 * time.Millisecond
	wholeTick = time.Second + tick
	longest   = 5 * time.Second
)

// telling are the file systems that are known to note each write in the time of change,
// also one to mapped memory, which tmpfs does not; and of which this host alone is the user.
var telling = map[int64]bool{
	unix.EXT4_SUPER_MAGIC: true, unix.XFS_SUPER_MAGIC: true, unix.BTRFS_SUPER_MAGIC: true, unix.F2FS_SUPER_MAGIC: true,
}

// stampNow is the file as it is, be it that it was changed a moment ago.
func stampNow(path string) (stamp, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return stamp{}, fmt.Errorf("snapshot: %s: %w", path, err)
	}
	return stamp{Dev: st.Dev, Ino: st.Ino, Size: st.Size, Mtime: st.Mtim.Nano(), Ctime: st.Ctim.Nano()}, nil
}

// stampOf waits until the file has a stamp. why is there if it can have none.
func stampOf(path string) (s stamp, why string, err error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(path, &fs); err != nil {
		return s, "", fmt.Errorf("snapshot: %s: %w", path, err)
	}
	if !telling[fs.Type] {
		return s, "the file system of " + path + " is not known to tell of each write", nil
	}
	for end := time.Now().Add(longest); ; {
		if s, err = stampNow(path); err != nil {
			return s, "", err
		}
		left := s.left(time.Now())
		switch {
		case left <= 0:
			return s, "", nil
		case left > wholeTick:
			return s, "the time of change of " + path + " is one to come: the clock was set back", nil
		case time.Now().Add(left).After(end):
			return s, path + " is written all the time", nil
		}
		time.Sleep(left)
	}
}

// left is how long it takes until the next write has another time than the last one.
func (s stamp) left(now time.Time) time.Duration {
	grain := tick
	if s.Ctime%int64(time.Second) == 0 {
		grain = wholeTick
	}
	return grain - now.Sub(s.time())
}

func (s stamp) time() time.Time { return time.Unix(0, s.Ctime) }
