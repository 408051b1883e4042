package changes

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/livefleet/handover/helper/internal/blockmap"
)

// The user of a tracker keeps things beside its marks: a bitmap that belongs to one
// generation, and a note about all that was written. They go when the tracker does.
//
//	unread-N.bitmap   the clusters that were not read at generation N
//	rest.json         the note of the user when the device is about to go
const (
	unreadFile = "unread-%d.bitmap"
	noteFile   = "rest.json"
)

// KeepUnread keeps the clusters that the user of a tracker did not read at a generation.
// Those of other generations go, but for the one before.
func (s *Store) KeepUnread(name string, generation, before uint64, unread *blockmap.Map) error {
	st, err := s.load(name)
	if err != nil {
		return err
	}
	b := &Bitmap{Header: Header{ID: st.Kept.ID, Boot: st.Kept.Boot, From: generation, To: generation, Taken: st.Kept.Taken}, Map: unread}
	if err := s.keepBitmap(name, unreadFile, b, unread); err != nil {
		return err
	}
	found, err := filepath.Glob(s.file(name, "unread-*.bitmap"))
	stay := []string{s.file(name, fmt.Sprintf(unreadFile, generation)), s.file(name, fmt.Sprintf(unreadFile, before))}
	for _, path := range found {
		if !slices.Contains(stay, path) {
			err = errors.Join(err, os.Remove(path))
		}
	}
	if err != nil {
		return fmt.Errorf("changes: %w", err)
	}
	return nil
}

// Unread are the clusters that were not read at a generation; nil: nothing was kept.
func (s *Store) Unread(name string, generation uint64) (*blockmap.Map, error) {
	st, err := s.load(name)
	if err != nil {
		return nil, err
	}
	then := *st
	then.Kept.Generation = generation
	m, _, err := s.bitmap(name, unreadFile, &then)
	return m, err
}

// SetNote keeps a note with a tracker, in the place of the one before.
func (s *Store) SetNote(name string, note any) error {
	if _, err := s.load(name); err != nil {
		return err
	}
	return replaceJSON(s.file(name, noteFile), note)
}

// Note reads the note of a tracker. The device may be gone.
func Note(root, name string, note any) (there bool, err error) {
	if !isName(name) {
		return false, fmt.Errorf("changes: %q is no name of a tracker", name)
	}
	path := filepath.Join(root, name, noteFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err == nil {
		err = json.Unmarshal(data, note)
	}
	if err != nil {
		return false, fmt.Errorf("changes: %s: %w", path, err)
	}
	return true, nil
}
