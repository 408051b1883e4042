package session

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/livefleet/handover/helper/internal/session/record"
	"github.com/livefleet/handover/helper/internal/tree"
	"github.com/livefleet/handover/helper/internal/wire"
)

// directory is a directory volume on its way.
type directory struct {
	record.Directory
	stream   uint32
	follower *tree.Follower
	round    int   // the one in which its last pass ended
	entries  int   // that the next pass will look at
	bytes    int64 // about how much that is
	looked   bool  // in the pause: from now on every write is an event
	passes   int   // that sent anything
	digest   digestOf
}

// due says whether a pass has to look at the volume. Writes through a mapping and
// asynchronous ones are no events, so the first pass in the pause looks at the files
// that are in use, also where nothing was touched.
func (d *directory) due(paused bool) bool { return d.entries > 0 || paused && !d.looked }

// follow begins to watch the directory volumes. Their streams come after those
// of the trees.
func (s *outgoing) startWatching() error {
	for i, spec := range s.Spec.Directories {
		f, err := spec.Follow()
		if err != nil {
			return fmt.Errorf("session: volume %s: %w", spec.Name, err)
		}
		if err := s.comparesFiles(spec, f); err != nil {
			return errors.Join(err, f.Close())
		}
		s.directories = append(s.directories, &directory{
			Directory: spec, stream: uint32(len(s.Spec.Trees) + i), follower: f, entries: 1, bytes: spec.Size,
		})
		s.Update(false, func(st *record.Status) {
			st.TotalBytes += spec.Size
			if st.Tracker == "" {
				st.Tracker = "fanotify"
			}
		})
	}
	return s.leaveTmpfs()
}

// comparesFiles reports the cost of a file that is compared, and refuses if that would be a longer pause than was allowed.
func (s *outgoing) comparesFiles(spec record.Directory, f *tree.Follower) error {
	bytes, err := f.UnseenBytes()
	if err != nil {
		return fmt.Errorf("session: volume %s: %w", spec.Name, err)
	}
	if bytes == 0 {
		return nil
	}
	text := fmt.Sprintf("volume %s: the kernel tells of no write to the top layer of %s: %d bytes are read for each pass, also in the pause", spec.Name, spec.Ploop, bytes)
	if limit := s.Spec.Policy.HashLimit; limit > 0 && bytes > limit {
		return fmt.Errorf("session: %s, and hash_limit allows %d: allow more, or move it offline", text, limit)
	}
	s.Log.Emit("warning", map[string]any{"text": text})
	return nil
}

// collect takes the entries touched since the last time.
func (d *directory) collect(paused bool) (err error) {
	if d.follower.First() {
		return nil
	}
	if d.entries, d.bytes, err = d.follower.Collect(); err != nil {
		return fmt.Errorf("session: volume %s: %w", d.Name, err)
	}
	if paused { // the last pass looks by itself, once
		return nil
	}
	unseen, err := d.follower.Look()
	if err != nil {
		return fmt.Errorf("session: volume %s: %w", d.Name, err)
	}
	if unseen > 0 {
		d.entries, d.bytes = d.entries+1, d.bytes+unseen
	}
	return nil
}

// send sends the entries that were changed, if there may be any. It returns the reason
// why every entry was looked at, if that was so.
func (d *directory) send(ctx context.Context, s *outgoing) (tree.Stats, string, error) {
	paused := !s.t0.IsZero()
	if !d.due(paused) {
		return tree.Stats{}, "", nil
	}
	d.follower.Count = s.count
	d.round = math.MaxInt // unless all of it goes out
	var sent tree.Stats
	var why string
	err := s.stream(ctx, d.stream, func(w *bufio.Writer) (err error) {
		// From the freeze on it is not used: mapped pages need not be written back.
		sent, why, err = d.follower.Pass(w, paused)
		return err
	})
	if err != nil {
		return sent, why, fmt.Errorf("session: volume %s: %w", d.Name, err)
	}
	d.round = s.copy.Round()
	d.passes++
	d.entries, d.bytes, d.looked = 0, 0, paused && !d.follower.Async()
	s.Log.Emit("directory", map[string]any{"volume": d.Name, "entries": sent.Entries, "removed": sent.Removed, "bytes": sent.Bytes, "everything": why})
	if why != "" {
		s.Log.Emit("warning", map[string]any{"text": fmt.Sprintf("volume %s: every entry had to be looked at: %s", d.Name, why)})
	}
	return sent, why, nil
}

// stream writes the output of give as one byte stream, to its end.
func (s *outgoing) stream(ctx context.Context, number uint32, give func(*bufio.Writer) error) error {
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
func (s *outgoing) undisturbed() error {
	for _, d := range s.directories {
		if err := d.follower.Quiet(); err != nil {
			return fmt.Errorf("session: volume %s: %w", d.Name, err)
		}
	}
	return nil
}

// findDirectories makes sure that arriving folders find an empty place.
func (d *places) findDirectories() error {
	for _, v := range d.Spec.Directories {
		if v.Tmpfs != "" { // its folder is made, see makeTmpfs
			continue
		}
		if empty, err := v.Empty(); err != nil {
			return fmt.Errorf("session: volume %s: %w", v.Name, err)
		} else if !empty {
			return fmt.Errorf("session: volume %s: %s is not empty, and what is in it is never overwritten: move it away", v.Name, v.Path)
		}
		d.filled = append(d.filled, v)
	}
	return nil
}

// syncDirectories syncs the data received in the directory volumes.
func (d *places) syncDirectories() error {
	for _, v := range d.Spec.Directories {
		if _, err := tree.WriteBack(v.Folder()); err != nil {
			return fmt.Errorf("session: volume %s: %w", v.Name, err)
		}
	}
	return nil
}
