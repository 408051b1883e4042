// Package tmpfs has a workload's own tmpfs carried beside CRIU's dump.
//
// CRIU packs each tmpfs with `tar --create --gzip` while the workload is frozen, and
// unpacks it with `tar --extract --gzip` when it has mounted a new one. A session follows
// the files while the workload runs instead, and lays them down in a folder of the
// destination's. A program tar, in the PATH of this dump and of this restore alone, stands
// between:
//
//   - of a followed tmpfs it puts a mark in the place of the archive. It knows the tmpfs by
//     the device and the inode of the folder that CRIU has opened. Any other archive is made
//     by the real tar, with the same words.
//   - of a mark it fills CRIU's new mount from the session's folder, and compares the digest
//     with the frozen source's. Any other archive is unpacked by the real tar.
//
// A mark is no archive, so a real tar that meets one fails, and CRIU with it. The source
// looks into the dump before it says that all is flushed: each followed tmpfs has one mark
// there. The destination looks before it says prepared: each was filled once, and is the one
// in its place. So a CRIU that does not ask, or asks another tar, ends the
// move before the release.
package tmpfs

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Followed is a tmpfs that the source's session carries, by the folder at its top. Images is the
// folder of the dump that would have its archive: a session may have several dumps.
type Followed struct {
	Name   string `json:"name"`
	Images string `json:"images"`
	Device uint64 `json:"device"`
	Inode  uint64 `json:"inode"`
}

// Laid is one whose files lie in a folder of the destination's, all of them. Images is the
// folder of the dump that has its mark.
type Laid struct {
	Name   string `json:"name"`
	Images string `json:"images"`
	Folder string `json:"folder"`
	Digest string `json:"digest"` // the quick one of package tree, of the frozen source
}

// List is all that tar's stand-in knows of a session.
type List struct {
	Session  string     `json:"session"`
	Followed []Followed `json:"followed,omitempty"`
	Laid     []Laid     `json:"laid,omitempty"`
}

// listFile and filledFile are in the session's folder.
const (
	listFile   = "tmpfs.json"
	filledFile = "tmpfs-filled.json"
)

// Write puts the list into a session's folder, and forgets the notes of an earlier one.
func (l *List) Write(session string) error {
	b, err := json.Marshal(l)
	if err == nil {
		err = forgetFilled(session)
	}
	path := filepath.Join(session, listFile)
	if err == nil { // whole or not at all: another process reads it
		err = errors.Join(os.WriteFile(path+".new", b, 0o600), os.Rename(path+".new", path))
	}
	if err != nil {
		return fmt.Errorf("tmpfs: %w", err)
	}
	return nil
}

func forgetFilled(session string) error {
	err := os.Remove(filepath.Join(session, filledFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// read is the list of a session; nil: it has none.
func read(session string) (*List, error) {
	b, err := os.ReadFile(filepath.Join(session, listFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var l List
	if err == nil {
		err = json.Unmarshal(b, &l)
	}
	if err != nil {
		return nil, fmt.Errorf("tmpfs: %w", err)
	}
	return &l, nil
}

// A mark is a line of three words: this one, the session's ID, and the tmpfs's name.
const (
	markWord = "handover-tmpfs"
	markMost = 8 << 10
)

func markOf(session, name string) string { return markWord + " " + session + " " + name + "\n" }

// readMark looks at the beginning of an archive.
func readMark(f io.ReaderAt) (session, name string, marked bool, err error) {
	b := make([]byte, markMost)
	n, err := f.ReadAt(b, 0)
	if errors.Is(err, unix.ESPIPE) { // none of a dump that lies in files
		return "", "", false, nil
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return "", "", false, fmt.Errorf("tmpfs: the archive: %w", err)
	}
	text, word := string(b[:n]), markWord+" "
	if !strings.HasPrefix(text, word) {
		return "", "", false, nil
	}
	session, name, found := strings.Cut(strings.TrimPrefix(text, word), " ")
	name, ended := strings.CutSuffix(name, "\n")
	if !found || !ended {
		return "", "", false, errors.New("tmpfs: the mark in the place of an archive is broken")
	}
	return session, name, true, nil
}

// archives are the names of CRIU's files of all tmpfs.
const archives = "tmpfs-*.img"

// Marked is an error unless the dump in the folder images has one mark of each tmpfs that is
// followed for it, and no other.
func (l *List) Marked(images string) error {
	paths, err := filepath.Glob(filepath.Join(images, archives))
	if err != nil {
		return fmt.Errorf("tmpfs: %w", err)
	}
	seen := map[string]int{}
	for _, path := range paths {
		session, name, marked, err := markIn(path)
		if err != nil {
			return err
		}
		if marked && session != l.Session {
			return fmt.Errorf("tmpfs: %s has the mark of session %s, and this one is %s", path, session, l.Session)
		}
		if marked {
			seen[name]++
		}
	}
	for _, f := range l.Followed {
		if f.Images != images {
			continue
		}
		if seen[f.Name] != 1 {
			return fmt.Errorf("tmpfs: CRIU's dump has %d marks in the place of the archive of %s, where one is due: CRIU has not asked the tar of this move", seen[f.Name], f.Name)
		}
		delete(seen, f.Name)
	}
	for name := range seen {
		return fmt.Errorf("tmpfs: CRIU's dump in %s has a mark of %s, which is not carried beside it", images, name)
	}
	return nil
}

func markIn(path string) (session, name string, marked bool, err error) {
	f, err := os.Open(path)
	if err != nil {
		return "", "", false, fmt.Errorf("tmpfs: %w", err)
	}
	defer f.Close()
	return readMark(f)
}
