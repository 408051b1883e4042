package session

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/loop"
	"github.com/livefleet/handover/helper/internal/report"
	"github.com/livefleet/handover/helper/internal/session/engine"
	"github.com/livefleet/handover/helper/internal/session/record"
	"github.com/livefleet/handover/helper/internal/tmpfs"
	"github.com/livefleet/handover/helper/internal/tree"
)

// A workload's own tmpfs is followed as a directory volume is, and lies complete in a folder
// of the destination's before CRIU mounts the new one there: package tmpfs. CRIU itself may
// make files in it while it dumps (names for open files that have lost theirs), so the last
// pass, and the digest, come after the dump.

// digestOf is a directory volume's digest in the pause, and after how many of its passes.
type digestOf struct {
	sum    string
	passes int
}

// followedTmpfs is the list for the dumps; images are the folders of all of them, as CRIU has them.
func (s *outgoing) followedTmpfs() (l *tmpfs.List, images []string, err error) {
	l, at := &tmpfs.List{Session: s.Spec.ID}, map[string]string{}
	if len(s.Spec.Tmpfs()) == 0 {
		return l, nil, nil
	}
	for _, part := range s.Spec.Parts() {
		folder, err := filepath.EvalSymlinks(part.Freeze.Gate)
		if err != nil {
			return nil, nil, fmt.Errorf("session: the folder of CRIU's images: %w", err)
		}
		at[part.Name], images = folder, append(images, folder)
	}
	for _, d := range s.directories {
		if d.Tmpfs == "" {
			continue
		}
		var st unix.Stat_t
		if err := d.follower.AtTop(func(fd int) error { return unix.Fstat(fd, &st) }); err != nil {
			return nil, nil, fmt.Errorf("session: volume %s: %w", d.Name, err)
		}
		l.Followed = append(l.Followed, tmpfs.Followed{Name: d.Name, Images: at[d.Member], Device: st.Dev, Inode: st.Ino})
	}
	return l, images, nil
}

// leaveTmpfs has the dumps leave out the tmpfs that the session follows.
func (s *outgoing) leaveTmpfs() error {
	l, _, err := s.followedTmpfs()
	if err != nil || len(l.Followed) == 0 {
		return err
	}
	return l.Write(s.Dir)
}

// leftTmpfs is an error where the complete dumps have not left them out as agreed.
func (s *outgoing) leftTmpfs() error {
	l, images, err := s.followedTmpfs()
	if err != nil || len(l.Followed) == 0 {
		return err
	}
	for _, folder := range images {
		err = errors.Join(err, l.Marked(folder))
	}
	return err
}

// digestEarly begins to read the frozen files beside the dump; the function that it returns
// waits for the end. Where that fails, or CRIU makes another file, it is done again when the
// dump is complete.
func (s *outgoing) digestEarly(ctx context.Context) (wait func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, d := range s.directories {
			if d.Tmpfs != "" {
				_ = d.reread(ctx)
			}
		}
	}()
	return func() { <-done }
}

// reread takes the digest, unless that of the last pass is known.
func (d *directory) reread(ctx context.Context) error {
	if d.digest.sum != "" && d.digest.passes == d.passes {
		return nil
	}
	passes := d.passes
	sum, err := tree.QuickDigest(ctx, d.Path)
	if err != nil {
		d.digest = digestOf{}
		return fmt.Errorf("session: volume %s: %w", d.Name, err)
	}
	d.digest = digestOf{sum, passes}
	return nil
}

// digestTmpfs are the digests of the frozen tmpfs after their last pass.
func (s *outgoing) digestTmpfs(ctx context.Context) (map[string]string, error) {
	began, all := time.Now(), map[string]string{}
	for _, d := range s.directories {
		if d.Tmpfs == "" {
			continue
		}
		if err := d.reread(ctx); err != nil {
			return nil, err
		}
		all[d.Name] = d.digest.sum
	}
	if len(all) > 0 {
		s.Log.Emit("tmpfs", map[string]any{"tmpfs": len(all), "ms": report.MS(time.Since(began))})
	}
	return all, nil
}

// makeTmpfs makes the folders in which the files wait: in memory, as the tmpfs themselves are.
// mounted are the mounts that it has made.
func (d *places) makeTmpfs() (mounted []string, err error) {
	all := d.Spec.Tmpfs()
	if len(all) == 0 {
		return nil, nil
	}
	top := filepath.Join(d.Dir, record.TmpfsFolder)
	if there, err := loop.Mounted(top); err != nil {
		return nil, err
	} else if there {
		return nil, fmt.Errorf("session: something is mounted on %s, left by an earlier process? Unmount it", top)
	}
	if err := loop.MountTmpfs(top); err != nil {
		return nil, err
	}
	return []string{top}, d.makeFolders(top, all)
}

func (d *places) makeFolders(top string, all []record.Directory) error {
	for _, v := range all {
		if filepath.Dir(v.Path) != top {
			return fmt.Errorf("session: volume %s: %s is not in %s", v.Name, v.Path, top)
		}
		if err := os.MkdirAll(v.Path, 0o700); err != nil {
			return fmt.Errorf("session: volume %s: %w", v.Name, err)
		}
		if empty, err := v.Empty(); err != nil {
			return fmt.Errorf("session: volume %s: %w", v.Name, err)
		} else if !empty {
			return fmt.Errorf("session: volume %s: %s is not empty", v.Name, v.Path)
		}
		d.filled = append(d.filled, v)
	}
	return nil
}

// offerTmpfs lets the restore fill its mounts: all has come.
func (d *places) offerTmpfs(digests map[string]string) error {
	all := d.Spec.Tmpfs()
	if len(all) != len(digests) {
		return fmt.Errorf("session: the source sent digests of %d tmpfs, and %d are carried", len(digests), len(all))
	}
	for _, v := range all {
		if digests[v.Name] == "" {
			return fmt.Errorf("session: the source sent no digest of %s", v.Name)
		}
	}
	if len(all) == 0 {
		return nil
	}
	l, err := engine.LaidTmpfs(d.Spec, digests)
	if err != nil {
		return err
	}
	return l.Write(d.Dir)
}
