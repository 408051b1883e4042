// Package store keeps the disks of a workload as they were at certain points in time.
//
// A store is a folder:
//
//	store.json          the index: all points, the layers that their disks are made of,
//	                    and the digest of every file
//	store.copy.json     the same, for when the first is damaged
//	layers/ID.qcow2     a layer: the clusters of one volume that are not as in the layer
//	                    below it. qemu-img and qemu-nbd open each as a whole disk
//	layers/ID-N.sums    the SHA-256 of each cluster of the layer, in the order of the disk
//	files/POINT/NAME    files that were taken along, such as a configuration
//
// A layer has no bitmap of its own: the clusters that it holds are the ones that were
// written between two points, and its tables name them (`qemu-img map` lists them).
//
// # Nothing half
//
// The index is the only truth. It is replaced by a rename when all that it speaks of
// is on the disk, so at every instant the store is as before a change, or as after it.
// A change that gives a file new content under its old name (a merge) writes the
// content beside it, and the index says which renames are still to be done. Whoever
// opens the store for writing does them first, and removes files that the index does
// not know.
//
// One process writes at a time, under a lock. Readers need none: they open all files
// of a point and then look whether the index is still the one that they went by.
package store

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	indexFile = "store.json"
	copyFile  = "store.copy.json"
	lockFile  = ".lock"
	layersDir = "layers"
	filesDir  = "files"
	newSuffix = ".new" // of a file that is not in its place yet
)

// Store is a store that this process may change.
type Store struct {
	dir   string
	index *Index
	lock  *os.File
	disk  disk
	// A change of the index failed in the middle: it may be on the disk, or not.
	unsure error
}

// newID makes a name for a point, a layer or a store.
func newID() string {
	b := make([]byte, idBytes)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// Open takes hold of a store, until Close. With create, a folder that is missing or
// empty becomes one.
func Open(dir string, create bool) (*Store, error) { return open(dir, create, disk{}) }

func open(dir string, create bool, d disk) (_ *Store, err error) {
	dir, err = filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	s := &Store{dir: dir, disk: d}
	if create {
		if err := s.prepare(); err != nil {
			return nil, err
		}
	} else if _, err := os.Stat(s.path(indexFile)); errors.Is(err, fs.ErrNotExist) {
		if err := errors.Join(lost(dir), Mounted(dir)); err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("store: %s: there is no store here: name the folder of one, or take a first snapshot", dir)
	}
	if s.lock, err = hold(s.path(lockFile)); err != nil {
		return nil, err
	}
	if err := s.load(create); err != nil {
		return nil, errors.Join(err, s.lock.Close())
	}
	return s, nil
}

// prepare makes the folders. One with other things in it is no place for a store.
func (s *Store) prepare() error {
	entries, err := os.ReadDir(s.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("store: %w", err)
	}
	begun := false
	for _, e := range entries {
		begun = begun || e.Name() == lockFile || e.Name() == indexFile
	}
	if len(entries) > 0 && !begun {
		return fmt.Errorf("store: %s: there are other things in this folder: name a new or an empty one", s.dir)
	}
	if err := Mounted(s.dir); err != nil {
		return err
	}
	// The lock comes first: it tells a store that was begun from another folder.
	if err := s.disk.mkdir(s.dir); err != nil {
		return err
	}
	f, err := os.OpenFile(s.path(lockFile), os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	for _, name := range []string{layersDir, filesDir} {
		if err := s.disk.mkdir(s.path(name)); err != nil {
			return err
		}
	}
	return nil
}

// hold locks a store, and leaves this process's number for those that find it locked.
func hold(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	for {
		if err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != unix.EINTR {
			break
		}
	}
	if err == unix.EWOULDBLOCK {
		b := make([]byte, 32)
		n, _ := f.ReadAt(b, 0)
		f.Close()
		return nil, fmt.Errorf("store: %s: process %s works on it: try again when it has ended", filepath.Dir(path), strings.TrimSpace(string(b[:n])))
	}
	if err == nil {
		err = f.Truncate(0)
	}
	if err == nil {
		_, err = fmt.Fprintf(f, "%d\n", os.Getpid())
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("store: locking %s: %w", path, err)
	}
	return f, nil
}

// load reads the index, and ends what a killed process had begun.
func (s *Store) load(create bool) (err error) {
	s.index, err = readIndex(s.dir)
	if errors.Is(err, fs.ErrNotExist) && create {
		s.index = &Index{ID: newID()}
		return s.commit()
	}
	if err != nil {
		return err
	}
	if len(s.index.Pending) > 0 {
		if err := s.finish(); err != nil {
			return err
		}
	}
	if err := s.sweep(); err != nil {
		return err
	}
	// A process may have been killed between the two.
	one, err := os.ReadFile(s.path(indexFile))
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	if two, err := os.ReadFile(s.path(copyFile)); err == nil && bytes.Equal(one, two) {
		return nil
	}
	return s.replace(copyFile, one)
}

// Close lets go.
func (s *Store) Close() error { return s.lock.Close() }

// Dir is the store's folder.
func (s *Store) Dir() string { return s.dir }

// Index is the index as it is now. It is not to be changed.
func (s *Store) Index() *Index { return s.index }

func (s *Store) path(names ...string) string {
	return filepath.Join(append([]string{s.dir}, names...)...)
}

// commit makes the index the store's. It speaks of files that are on the disk already.
func (s *Store) commit() error {
	if err := s.writeIndex(); err != nil {
		return err
	}
	if len(s.index.Pending) == 0 {
		return nil
	}
	return s.finish()
}

func (s *Store) writeIndex() (err error) {
	if s.unsure != nil {
		return s.unsure
	}
	defer func() {
		if err != nil {
			s.unsure = fmt.Errorf("store: %s: the last change may be whole or not have been (%w): open the store again", s.dir, err)
		}
	}()
	s.index.Generation++
	s.index.Written = time.Now().UTC()
	b, err := s.index.encode()
	if err != nil {
		return err
	}
	if err := s.replace(indexFile, b); err != nil {
		return err
	}
	return s.replace(copyFile, b)
}

// replace gives a file of the store's folder new content.
func (s *Store) replace(name string, b []byte) error {
	if err := s.disk.put(s.path(name+newSuffix), b); err != nil {
		return err
	}
	if err := s.disk.rename(s.path(name+newSuffix), s.path(name)); err != nil {
		return err
	}
	return s.disk.syncDir(s.dir)
}

// finish does the renames that the index has announced, and takes them off it.
func (s *Store) finish() error {
	for _, name := range s.index.Pending {
		to := s.path(layersDir, name)
		if _, err := os.Lstat(to + newSuffix); errors.Is(err, fs.ErrNotExist) {
			continue // done before
		} else if err != nil {
			return fmt.Errorf("store: %w", err)
		}
		if err := s.disk.rename(to+newSuffix, to); err != nil {
			return err
		}
	}
	if err := s.disk.syncDir(s.path(layersDir)); err != nil {
		return err
	}
	s.index.Pending = nil
	return s.writeIndex()
}

// sweep removes the files that no point needs.
func (s *Store) sweep() error {
	if s.unsure != nil {
		return nil // the next process knows which index it is
	}
	known := map[string]bool{}
	for _, l := range s.index.Layers {
		known[s.path(layersDir, l.File())], known[s.path(layersDir, l.Sums.Name)] = true, true
	}
	for _, p := range s.index.Points {
		known[s.path(filesDir, p.ID)] = true
	}
	for _, dir := range []string{s.path(layersDir), s.path(filesDir)} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return fmt.Errorf("store: %w", err)
		}
		for _, e := range entries {
			path := filepath.Join(dir, e.Name())
			// A file that was put here by others is left to them.
			if known[path] || !ours.MatchString(e.Name()) {
				continue
			}
			if err := s.disk.removeAll(path); err != nil {
				return err
			}
		}
	}
	return nil
}

// Peek reads the index of a store without holding it.
func Peek(dir string) (*Index, error) {
	index, err := readIndex(dir)
	if errors.Is(err, fs.ErrNotExist) {
		if err := Mounted(dir); err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("store: %s: there is no store here: name the folder of one", dir)
	}
	return index, err
}

// Is reports whether a folder has a store, be its index lost.
func Is(dir string) (bool, error) {
	for _, name := range []string{indexFile, copyFile} {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			return true, nil
		} else if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTDIR) {
			return false, fmt.Errorf("store: %w", err)
		}
	}
	return false, nil
}
