package session

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"

	"github.com/livefleet/handover/helper/internal/tree"
	"github.com/livefleet/handover/helper/internal/wire"
)

// Directory is a volume that is a plain directory: it is followed while the
// workload uses it, so that a pass costs what was touched. On the destination it
// is there and empty when the session begins.
type Directory struct {
	Name string `json:"name"`
	Path string `json:"path"`
	Size int64  `json:"size,omitempty"` // source: about how much that is, for those who watch
	File bool   `json:"file,omitempty"` // it is a single file, empty on the destination when the session begins
}

// byPath reports whether it is a file or folder of the host's, which has its path for
// a name.
func (d *Directory) byPath() bool { return d.Name == d.Path && filepath.Clean(d.Path) == d.Path }

// folder is the one that it is, or that it lies in.
func (d *Directory) folder() string {
	if d.File {
		return filepath.Dir(d.Path)
	}
	return d.Path
}

// tree is where the destination lays it down.
func (d *Directory) tree() *Tree {
	t := &Tree{Name: d.Name, Path: d.folder()}
	if d.File {
		t.only = filepath.Base(d.Path)
	}
	return t
}

func (d *Directory) follow() (*tree.Follower, error) {
	if d.File {
		return tree.FollowFile(d.Path)
	}
	return tree.Follow(d.Path)
}

func (d *Directory) empty() (bool, error) {
	if d.File {
		return tree.EmptyFile(d.Path)
	}
	return tree.Empty(d.Path)
}

func (d *Directory) clear() error {
	if d.File {
		return tree.ClearFile(d.Path)
	}
	return tree.Clear(d.Path)
}

func (d *Directory) digest(ctx context.Context) (string, int64, error) {
	if d.File {
		return tree.DigestFile(ctx, d.Path)
	}
	return tree.Digest(ctx, d.Path)
}

func (d *Directory) check() error {
	switch {
	case !filepath.IsAbs(d.Path):
		return fmt.Errorf("path %q is not absolute", d.Path)
	case d.Size < 0:
		return fmt.Errorf("size %d bytes", d.Size)
	}
	return nil
}

// directory is a directory volume on its way.
type directory struct {
	Directory
	stream   uint32
	follower *tree.Follower
	round    int   // the one in which its last pass ended
	entries  int   // that the next pass will look at
	bytes    int64 // about how much that is
}

// follow begins to watch the directory volumes. Their streams come after those
// of the trees.
func (s *source) follow() error {
	for i, spec := range s.spec.Directories {
		f, err := spec.follow()
		if err != nil {
			return fmt.Errorf("session: volume %s: %w", spec.Name, err)
		}
		s.directories = append(s.directories, &directory{
			Directory: spec, stream: uint32(len(s.spec.Trees) + i), follower: f, entries: 1, bytes: spec.Size,
		})
		s.update(false, func(st *Status) {
			st.TotalBytes += spec.Size
			if st.Tracker == "" {
				st.Tracker = "fanotify"
			}
		})
	}
	return nil
}

// collect takes what was touched since the last time.
func (d *directory) collect() (err error) {
	if d.follower.First() {
		return nil
	}
	if d.entries, d.bytes, err = d.follower.Collect(); err != nil {
		return fmt.Errorf("session: volume %s: %w", d.Name, err)
	}
	return nil
}

// send sends what was touched, if anything was. What it returns is why every
// entry was looked at, if that was so.
func (d *directory) send(ctx context.Context, s *source) (tree.Stats, string, error) {
	if d.entries == 0 {
		return tree.Stats{}, "", nil
	}
	d.follower.Count = s.count
	d.round = math.MaxInt // unless all of it goes out
	var sent tree.Stats
	var why string
	err := s.stream(ctx, d.stream, func(w *bufio.Writer) (err error) {
		// From the freeze on nobody uses it: what is mapped need not be written back.
		sent, why, err = d.follower.Pass(w, !s.t0.IsZero())
		return err
	})
	if err != nil {
		return sent, why, fmt.Errorf("session: volume %s: %w", d.Name, err)
	}
	d.round = s.copy.Round()
	d.entries, d.bytes = 0, 0
	s.log.Emit("directory", map[string]any{"volume": d.Name, "entries": sent.Entries, "removed": sent.Removed, "bytes": sent.Bytes, "everything": why})
	if why != "" {
		s.log.Emit("warning", map[string]any{"text": fmt.Sprintf("volume %s: every entry had to be looked at: %s", d.Name, why)})
	}
	return sent, why, nil
}

// stream writes what give gives as one byte stream, to its end.
func (s *source) stream(ctx context.Context, number uint32, give func(*bufio.Writer) error) error {
	w := &chunkWriter{ctx: ctx, conn: s.conn, pace: s.pace, stream: number}
	b := bufio.NewWriterSize(w, chunkSize)
	err := give(b)
	if err := errors.Join(err, b.Flush()); err != nil {
		return s.explain(err)
	}
	return s.conn.Write(&wire.Frame{Type: wire.Chunk, Stream: number, Flags: flagLast, Pos: w.pos})
}

// undisturbed demands that nothing has touched the directory volumes since their
// last pass.
func (s *source) undisturbed() error {
	for _, d := range s.directories {
		if err := d.follower.Quiet(); err != nil {
			return fmt.Errorf("session: volume %s: %w", d.Name, err)
		}
	}
	return nil
}

// findDirectories sees to it that what arrives finds a place, and nothing in it.
func (d *destination) findDirectories() error {
	for _, v := range d.spec.Directories {
		if empty, err := v.empty(); err != nil {
			return fmt.Errorf("session: volume %s: %w", v.Name, err)
		} else if !empty {
			return fmt.Errorf("session: volume %s: %s is not empty, and what is in it is never overwritten: move it away", v.Name, v.Path)
		}
		d.filled = append(d.filled, v)
	}
	return nil
}

// syncDirectories puts on the disk what has come into the directory volumes.
func (d *destination) syncDirectories() error {
	for _, v := range d.spec.Directories {
		if _, err := tree.WriteBack(v.folder()); err != nil {
			return fmt.Errorf("session: volume %s: %w", v.Name, err)
		}
	}
	return nil
}
