package treedisk

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/diskfull"
	"github.com/livefleet/handover/helper/internal/store"
	"github.com/livefleet/handover/helper/internal/tree"
)

// Away is the end of a folder's name while it is written in place. A workload that looks
// for the folder does not find it, and does not start on a half of it.
const Away = ".handover-rollback"

// Begun is an error where a rollback of a folder was begun and has not ended.
func Begun(folder string) error {
	if there(folder + Away) {
		return fmt.Errorf("treedisk: a rollback of the folder %s was begun, and has not ended: run it again", folder)
	}
	return nil
}

// TakeAway gives a folder its name for the time in which it is written. One that has it
// already is left by a rollback that was killed.
func TakeAway(folder string) error {
	away := folder + Away
	if there(away) {
		// An empty folder in its place was made by a program that looked for it.
		if err := os.Remove(folder); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("treedisk: %s and %s are both there: a rollback was begun, and something was written since: remove the one that is not needed", folder, away)
		}
		return syncDir(filepath.Dir(folder))
	}
	if err := os.Rename(folder, away); errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("treedisk: %s is a mount point, and cannot be taken away while it is written: write the snapshot to another folder", folder)
	} else if err != nil {
		return fmt.Errorf("treedisk: %w", err)
	}
	return syncDir(filepath.Dir(folder))
}

// BringBack ends TakeAway.
func BringBack(folder string) error {
	if err := os.Rename(folder+Away, folder); err != nil {
		return fmt.Errorf("treedisk: %w", err)
	}
	return syncDir(filepath.Dir(folder))
}

// Restored counts the work of a restore.
type Restored struct {
	Volume string `json:"volume"`
	Path   string `json:"path"`
	Read   int64  `json:"read"` // bytes of files that were compared
}

// Look demands that a folder has room for the files of a snapshot.
func Look(folder string, v *store.View) error {
	at := folder
	if !there(folder) {
		at = folder + Away
	}
	used, _, err := Weigh(at)
	if err != nil {
		return err
	}
	var st unix.Statfs_t
	if err := unix.Statfs(at, &st); err != nil {
		return fmt.Errorf("treedisk: %s: %w", at, err)
	}
	if free, need := int64(st.Bavail)*st.Frsize, v.Data()-used; free < need {
		return fmt.Errorf("treedisk: %s: the files of the snapshot take up to %d MiB more there, and %d MiB are free: free %d MiB", folder, need>>20, free>>20, (need-free)>>20+1)
	}
	return nil
}

// WriteTo gives a folder the disk's files, and no others; those that are the same already
// are left alone. It is on the host's disk afterwards.
func (d *Disk) WriteTo(ctx context.Context, folder string) (read int64, err error) {
	if err := d.Mount(true); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, d.Unmount()) }()
	m, err := tree.Open(d.Folder())
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	m.Filled = true
	err = Pour(folder, func(w io.Writer) error {
		stats, err := m.Everything(contextWriter{ctx, w}, tree.Changes{Since: time.Now()})
		read = stats.Bytes
		return err
	})
	if err == nil {
		_, err = tree.WriteBack(folder)
	}
	return read, diskfull.Explain(folder, err)
}

// contextWriter ends with its context.
type contextWriter struct {
	ctx context.Context
	w   io.Writer
}

func (c contextWriter) Write(p []byte) (int, error) {
	if err := context.Cause(c.ctx); err != nil {
		return 0, err
	}
	return c.w.Write(p)
}

// Pour lays down in a folder all that give writes, a pass of package tree.
func Pour(folder string, give func(io.Writer) error) error {
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := tree.Unpack(folder, r)
		r.CloseWithError(err) // nil ends a writer, too
		done <- err
	}()
	b := bufio.NewWriterSize(w, 256<<10)
	err := give(b)
	if err == nil {
		err = b.Flush()
	}
	w.CloseWithError(err)
	laid := <-done
	if laid != nil {
		return laid // the reason why it could not be written
	}
	return err
}

// Weigh is about how many bytes a folder has, in how many entries.
func Weigh(folder string) (bytes, entries int64, err error) {
	err = filepath.WalkDir(folder, func(path string, _ fs.DirEntry, err error) error {
		var st unix.Stat_t
		if err == nil {
			err = unix.Lstat(path, &st)
		}
		if errors.Is(err, fs.ErrNotExist) && path != folder {
			return nil // it went meanwhile
		}
		entries++
		bytes += st.Blocks * 512
		return err
	})
	if err != nil {
		return 0, 0, fmt.Errorf("treedisk: %s: %w", folder, err)
	}
	return bytes, entries, nil
}
