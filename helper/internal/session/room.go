package session

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/diskfull"
	"github.com/livefleet/handover/helper/internal/session/record"
)

// roomStep is how much room is given back at once, before the data for it come.
const roomStep = 4 << 20

// room is held on a file system for a directory volume that is to come. The file that
// holds it has no name: nothing is left of it when this process ends in any way.
type room struct {
	held    *os.File
	size    int64
	arrived int64
	given   int64
}

// holdRoom takes the room that a directory volume needs.
func holdRoom(v *record.Directory) (*room, error) {
	folder := v.Folder()
	f, err := os.OpenFile(folder, os.O_RDWR|unix.O_TMPFILE, 0o600)
	if err == nil {
		if err = unix.Fallocate(int(f.Fd()), 0, 0, v.Size); err != nil {
			f.Close()
		}
	}
	if diskfull.Is(err) {
		return nil, fmt.Errorf("session: volume %s: it needs %d MiB: %w", v.Name, v.Size>>20, diskfull.Explain(folder, err))
	}
	if err != nil {
		return nil, fmt.Errorf("session: volume %s: the file system of %s cannot reserve space: move without that (reserve_space), or keep volumes on ext4 or xfs: %w", v.Name, folder, err)
	}
	return &room{held: f, size: v.Size}, nil
}

// holdRooms takes the room of all directory volumes before anything comes.
func (d *places) holdRooms() error {
	for i := range d.Spec.Directories {
		v := &d.Spec.Directories[i]
		if v.Size == 0 {
			continue
		}
		r, err := holdRoom(v)
		if err != nil {
			return err
		}
		d.rooms[uint32(len(d.Spec.Trees)+i)] = r
	}
	return nil
}

// give makes way for n bytes that have come.
func (r *room) give(n int) error {
	r.arrived += int64(n)
	if r.arrived <= r.given {
		return nil
	}
	r.given = r.arrived + roomStep
	return r.held.Truncate(max(r.size-r.given, 0))
}

// arrive makes way for a piece of a stream. When the first pass of a directory volume
// has come, that has all of its room itself.
func (d *places) arrive(stream uint32, bytes int, last bool) error {
	r := d.rooms[stream]
	if r == nil {
		return nil
	}
	if last {
		delete(d.rooms, stream)
		return r.held.Close()
	}
	return r.give(bytes)
}

// leaveRooms gives back the room of all that has not come.
func (d *places) leaveRooms() {
	for stream, r := range d.rooms {
		r.held.Close()
		delete(d.rooms, stream)
	}
}
