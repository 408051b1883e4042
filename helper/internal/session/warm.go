package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/livefleet/handover/helper/internal/loop"
	"github.com/livefleet/handover/helper/internal/pagecache"
	"github.com/livefleet/handover/helper/internal/report"
	"github.com/livefleet/handover/helper/internal/session/prefetch"
	"github.com/livefleet/handover/helper/internal/session/protocol"
	"github.com/livefleet/handover/helper/internal/session/record"
)

// A restore looks up data that are new on this host: the directories and inodes of a
// file system that was mounted a moment ago, and programs and libraries from an image
// that came some time ago (mapped.go). Where the disk is slow these reads, block by
// block, are most of the pause. So the source names the data that the restore will
// want when the destination is to begin with it, and the destination reads them into
// memory before it says that it is ready. The workload runs in that time.
//
// Of a file system its source's kernel knows (from 6.5 on it tells): ext4 has its own
// blocks in the page cache of the block device, and those that the workload uses are
// there. The destination reads these clusters into the page cache of the image. Its
// loop device has no direct I/O at first, so that they are found there, and turns to it
// when the workload runs. Later writes to the image go through the page cache or drop
// the replaced pages from it, so the cache is never older than the disk. XFS has a
// cache of its own, which cannot be inspected.
//
// All of it is advice: data that are not named, or not read in time, are read in the
// pause.

// warmAtMost is how long the source waits for this.
const warmAtMost = 10 * time.Second

// mapped names the files that the workload has mapped, where its tasks are known.
func mapped(b *record.Session) []prefetch.File {
	if b.Spec.Hooks.Freeze == nil || b.Spec.Hooks.Freeze.Cgroup == "" {
		return nil
	}
	files, err := prefetch.Mapped(b.Spec.Hooks.Freeze.Cgroup)
	if err != nil {
		b.Log.Emit("warning", map[string]any{"text": "what the destination could read beforehand is not known: " + err.Error()})
	}
	return files
}

// touched are the clusters that the kernel has in memory of the file systems that
// move.
func touched(b *record.Session) (all []protocol.Clusters) {
	for i, v := range b.Spec.Volumes {
		if v.Mountpoint == "" {
			continue
		}
		there, err := touchedOf(v)
		if err != nil && !errors.Is(err, errors.ErrUnsupported) {
			b.Log.Emit("warning", map[string]any{"text": "what the destination could read beforehand is not known: " + err.Error()})
		}
		all = append(all, clustersOf(i, int64(v.Cluster), there, max(1, prefetch.MostRanges/len(b.Spec.Volumes)))...)
	}
	return all
}

func touchedOf(v record.Vol) ([]pagecache.Range, error) {
	f, err := pagecache.Open(v.Device)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.Touched(int64(v.Cluster))
}

// clustersOf makes at most so many ranges of clusters of ascending ranges of bytes: if there are more, the
// gaps between the closest are included.
func clustersOf(volume int, cluster int64, ranges []pagecache.Range, most int) []protocol.Clusters {
	for bridge := int64(1); ; bridge *= 2 {
		var found []protocol.Clusters
		for _, r := range ranges {
			c := protocol.Clusters{Volume: volume, First: r.Offset / cluster, End: (r.Offset + r.Length + cluster - 1) / cluster}
			if n := len(found); n > 0 && c.First-found[n-1].End <= bridge {
				found[n-1].End = c.End
				continue
			}
			found = append(found, c)
		}
		if len(found) <= most {
			return found
		}
	}
}

// warming are the data that the destination has read into memory, or is about to.
type warming struct {
	done   chan struct{}
	cancel func()
	images map[string]bool // of which some is there; to be read when done
}

// has reports whether some of an image is in memory.
func (w *warming) has(image string) bool {
	if w == nil {
		return false
	}
	<-w.done
	return w.images[image]
}

// end returns when nothing is read any more.
func (w *warming) end() {
	if w != nil {
		w.cancel()
		<-w.done
	}
}

// warm begins to read the data that the source has named, as soon as the restore has
// begun: the files of the workload's root are there only then, and pages read earlier
// may be gone again.
func (d *earlyRestore) warm(ctx context.Context, m *protocol.Arm) {
	w := &warming{done: make(chan struct{}), images: map[string]bool{}}
	d.warming = w
	a := d.arming
	ctx, w.cancel = context.WithCancel(ctx)
	go func() {
		defer close(w.done)
		if a != nil {
			<-a.ready
		}
		ctx, cancel := context.WithTimeout(ctx, warmAtMost)
		defer cancel()
		began := time.Now()
		volumes := d.warmVolumes(ctx, m.Warm, w.images)
		took := time.Since(began)
		files, err := int64(0), error(nil)
		if a != nil && a.err == nil {
			files, err = prefetch.Read(ctx, d.Spec.Bundle, m.Mapped)
		}
		why := ""
		if err != nil {
			why = err.Error()
		}
		d.Log.Emit("warm", map[string]any{"volumes": volumes, "volumes_ms": report.MS(took), "files": files, "files_ms": report.MS(time.Since(began) - took), "why": why})
	}()
}

// warmVolumes reads clusters into the page cache, notes of which images, and returns how
// many bytes that were.
func (d *earlyRestore) warmVolumes(ctx context.Context, all []protocol.Clusters, images map[string]bool) (read int64) {
	buffer := make([]byte, 1<<20)
	for _, c := range all {
		if c.Volume < 0 || c.Volume >= len(d.Spec.Volumes) || d.Spec.Volumes[c.Volume].Mountpoint == "" {
			continue
		}
		v, t := d.Spec.Volumes[c.Volume], d.targets[c.Volume]
		end := min(c.End*int64(v.Cluster), t.Size())
		for at := c.First * int64(v.Cluster); at < end && ctx.Err() == nil; {
			n, err := t.ReadAt(buffer[:min(int64(len(buffer)), end-at)], at)
			if err != nil {
				return read // its reader hears of it
			}
			at, read = at+int64(n), read+int64(n)
			images[v.Image] = true
		}
	}
	return read
}

// coolDown has the volumes that were attached with the page cache do direct I/O, as
// all others: their pages are cached once, and not twice. Without, nothing is lost.
func (d *earlyRestore) coolDown() {
	for _, v := range d.Spec.Volumes {
		if !d.warming.has(v.Image) {
			continue
		}
		if err := loop.TurnDirect(v.Image); err != nil {
			d.Log.Emit("warning", map[string]any{"text": fmt.Sprintf("volume %s is cached twice until it is mounted again: %v", v.Name, err)})
		}
	}
}
