package tree

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/pagecache"
)

// A file system may have no O_DIRECT, or take the flag and read through its cache all the
// same, as ext4 with data=journal does. The cache keeps all that was read through it once, and a
// write past the file system changes the disk alone. So the cached pages are dropped before
// each look, and the next read of them is the disk's. Where the file system reads past its
// cache that costs nothing.

// Pages under way somewhere are not dropped: they are asked for again a moment later.
const (
	dropTries = 10
	dropPause = 20 * time.Millisecond
)

// forgetCached has the next reads of a file come from the disk. direct says that O_DIRECT
// is taken.
func forgetCached(path string, direct bool) (err error) {
	f, err := pagecache.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	trusted := readsPast(path, direct)
	left := int64(0)
	for range dropTries {
		if err := f.Drop(); err != nil || trusted {
			return err
		}
		if left, _, err = f.Resident(f.Clip(f.Whole())); err != nil || left == 0 {
			return err
		}
		time.Sleep(dropPause)
	}
	return fmt.Errorf("it is written past its file system, which has no O_DIRECT and keeps %d bytes of it in its cache: what the disk has cannot be seen", left)
}

// readsPast reports whether reads with O_DIRECT go past the cache, as the file system itself
// says. Kernels before 6.1 do not tell, and there the flag is believed.
func readsPast(path string, direct bool) bool {
	var st unix.Statx_t
	if unix.Statx(unix.AT_FDCWD, path, 0, unix.STATX_DIOALIGN, &st) == nil && st.Mask&unix.STATX_DIOALIGN != 0 {
		return direct && st.Dio_offset_align != 0
	}
	return direct
}
