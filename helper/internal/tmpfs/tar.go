package tmpfs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/hooks"
)

// program is the name by which CRIU looks for it in PATH.
const program = "tar"

// Call is one call of tar by CRIU: its words, and the three standard files.
type Call struct {
	Args   []string
	In     *os.File
	Out    *os.File
	RunDir string // where the gates are
}

// Held is the stand-in for tar: the program own, called with args. It returns when it has
// carried out the call, or with an error: otherwise it has become the real tar.
func Held(ctx context.Context, own string, c Call) error {
	done, err := c.carry(ctx)
	if done || err != nil {
		return err
	}
	real, err := hooks.RealProgram(own, program)
	if err != nil {
		return err
	}
	if err := unix.Exec(real, append([]string{program}, c.Args...), os.Environ()); err != nil {
		return fmt.Errorf("tmpfs: %s: %w", real, err)
	}
	return nil
}

// carry carries out a call that is about a tmpfs of a session's; done says whether it was one.
func (c *Call) carry(ctx context.Context) (done bool, err error) {
	switch {
	case slices.Contains(c.Args, "--create"):
		return c.create()
	case slices.Contains(c.Args, "--extract"):
		return c.extract(ctx)
	}
	return false, nil
}

// create puts a mark in the place of the archive of a followed tmpfs, whose top folder CRIU
// gives as standard input.
func (c *Call) create() (bool, error) {
	session, images, l, err := c.list(c.Out)
	if err != nil || l == nil {
		return false, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(c.In.Fd()), &st); err != nil {
		return false, fmt.Errorf("tmpfs: the folder that CRIU packs: %w", err)
	}
	i := slices.IndexFunc(l.Followed, func(f Followed) bool { return f.Device == st.Dev })
	if i < 0 {
		return false, nil
	}
	f := l.Followed[i]
	if f.Images != images {
		return false, fmt.Errorf("tmpfs: CRIU packs %s in %s, and session %s follows it for the dump in %s", f.Name, images, filepath.Base(session), f.Images)
	}
	if f.Inode != st.Ino {
		return false, fmt.Errorf("tmpfs: CRIU packs another folder of %s than the one that session %s follows", f.Name, filepath.Base(session))
	}
	if _, err := io.WriteString(c.Out, markOf(l.Session, f.Name)); err != nil {
		return false, fmt.Errorf("tmpfs: the mark of %s: %w", f.Name, err)
	}
	return true, nil
}

// extract fills the folder that the archive is to be unpacked in, if it is a mark.
func (c *Call) extract(ctx context.Context) (bool, error) {
	id, name, marked, err := readMark(c.In)
	if err != nil || !marked {
		return false, err
	}
	session, images, l, err := c.list(c.In)
	if err != nil {
		return false, err
	}
	i := -1
	if l != nil && l.Session == id {
		i = slices.IndexFunc(l.Laid, func(each Laid) bool { return each.Name == name && each.Images == images })
	}
	if i < 0 {
		return false, fmt.Errorf("tmpfs: nothing of %s was laid down for %s, or not all of it: session %s is not as far", name, images, id)
	}
	at := slices.Index(c.Args, "--directory") + 1
	if at == 0 || at == len(c.Args) {
		return false, errors.New("tmpfs: CRIU does not say where to unpack")
	}
	return true, l.Laid[i].fill(ctx, session, c.Args[at])
}

// list is that of the session which has a gate before the folder of this archive, images.
func (c *Call) list(archive *os.File) (session, images string, l *List, err error) {
	path, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", archive.Fd()))
	if err != nil {
		return "", "", nil, fmt.Errorf("tmpfs: the archive: %w", err)
	}
	images = filepath.Dir(path)
	reg, err := hooks.Lookup(c.RunDir, images)
	if err != nil || reg == nil {
		return "", "", nil, err
	}
	l, err = read(reg.Session)
	return reg.Session, images, l, err
}
