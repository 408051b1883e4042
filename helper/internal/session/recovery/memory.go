package recovery

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// A container that goes back to the memory of a snapshot has no session. The program that
// takes it back leaves a note with the images, and holds the note's lock for as long as it
// waits for the restore. A note without its program is none: by now its images may be of
// another moment than the disks.

// memoryNotes is the folder of these notes, each by the name of the container's bundle.
const memoryNotes = "memory"

// Memory is a dump that a container goes back to.
type Memory struct {
	Images string `json:"images"`
	Work   string `json:"work"` // for CRIU's log
}

// GoesBack is the memory that the container in a bundle goes back to; nil: to none.
func GoesBack(runDir, bundle string) (*Memory, error) {
	path := filepath.Join(runDir, memoryNotes, filepath.Base(bundle)+".json")
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("session: %w", err)
	}
	defer f.Close()
	switch err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB); {
	case err == nil: // the program is gone
		return nil, nil
	case !errors.Is(err, unix.EWOULDBLOCK):
		return nil, fmt.Errorf("session: %s: %w", path, err)
	}
	var m Memory
	err = json.NewDecoder(f).Decode(&m)
	if err == nil && (m.Images == "" || m.Work == "") {
		err = errors.New("a folder is missing")
	}
	if err != nil {
		return nil, fmt.Errorf("session: %s does not say where the memory is that the container goes back to: %w", path, err)
	}
	return &m, nil
}
