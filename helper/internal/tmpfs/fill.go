package tmpfs

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/tree"
)

// Filled is a mount that was filled.
type Filled struct {
	Name string `json:"name"`
	Top  top    `json:"top"`
}

// top identifies the folder at the top of a mount. A tmpfs that has gone leaves its device
// number to the next, so the time at which it was made is a part of that, where the kernel
// tells it.
type top struct {
	Device [2]uint32 `json:"device"`
	Inode  uint64    `json:"inode"`
	Born   int64     `json:"born,omitempty"`
	BornNS uint32    `json:"born_ns,omitempty"`
}

func topOf(path string) (top, error) {
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, path, 0, unix.STATX_INO|unix.STATX_BTIME, &st); err != nil {
		return top{}, fmt.Errorf("tmpfs: %s: %w", path, err)
	}
	t := top{Device: [2]uint32{st.Dev_major, st.Dev_minor}, Inode: st.Ino}
	if st.Mask&unix.STATX_BTIME != 0 {
		t.Born, t.BornNS = st.Btime.Sec, st.Btime.Nsec
	}
	return t, nil
}

// pipeSize is how much of a tree is on its way from one folder to the other.
const pipeSize = 1 << 20

// fill brings the files from the session's folder to CRIU's empty mount, proves that all are
// there, and notes so.
func (l *Laid) fill(ctx context.Context, session, target string) error {
	mount, err := topOf(target)
	if err != nil {
		return err
	}
	if empty, err := tree.Empty(target); err != nil {
		return err
	} else if !empty {
		return fmt.Errorf("tmpfs: %s, which is to be filled with %s, is not empty", target, l.Name)
	}
	if err := copyTree(l.Folder, target); err != nil {
		return err
	}
	digest, err := tree.QuickDigest(ctx, target)
	if err != nil {
		return err
	}
	if digest != l.Digest {
		return fmt.Errorf("tmpfs: %s is not what the frozen source has: its digest is %s, and that one's %s", l.Name, digest, l.Digest)
	}
	return note(session, Filled{Name: l.Name, Top: mount})
}

// copyTree gives the folder to all that the folder from has, and is.
func copyTree(from, to string) (err error) {
	m, err := tree.Open(from)
	if err != nil {
		return err
	}
	defer m.Close()
	r, w := io.Pipe()
	sent := make(chan error, 1)
	go func() {
		b := bufio.NewWriterSize(w, pipeSize)
		_, err := m.Everything(b, tree.Changes{Since: time.Now()})
		err = errors.Join(err, b.Flush())
		w.CloseWithError(err) // nil is the end
		sent <- err
	}()
	err = tree.Unpack(to, bufio.NewReaderSize(r, pipeSize))
	r.CloseWithError(errors.New("the other side has ended"))
	return errors.Join(err, <-sent)
}

// note adds a mount to those that were filled. CRIU asks for one after the other.
func note(session string, filled Filled) error {
	b, err := json.Marshal(filled)
	if err != nil {
		return fmt.Errorf("tmpfs: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(session, filledFile), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = f.Write(append(b, '\n'))
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return fmt.Errorf("tmpfs: %w", err)
	}
	return nil
}

// AllFilled is an error unless each tmpfs of the places, which are by name, was filled once, and the
// restored tasks, whose root folder is named, have it there.
func AllFilled(session, root string, places map[string]string) error {
	b, err := os.ReadFile(filepath.Join(session, filledFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("tmpfs: %w", err)
	}
	found := map[string][]Filled{}
	for line := range bytes.Lines(b) {
		var f Filled
		if err := json.Unmarshal(line, &f); err != nil {
			return fmt.Errorf("tmpfs: what was noted of the filled mounts: %w", err)
		}
		found[f.Name] = append(found[f.Name], f)
	}
	for _, name := range slices.Sorted(maps.Keys(places)) {
		all := found[name]
		if len(all) != 1 {
			return fmt.Errorf("tmpfs: %s was filled %d times, and is to be once: CRIU has not asked the tar of this move", name, len(all))
		}
		there, err := topOf(root + places[name])
		if err != nil {
			return err
		}
		if there != all[0].Top {
			return fmt.Errorf("tmpfs: the restored workload has another file system in the place of %s than the one that was filled", name)
		}
	}
	return nil
}
