package tree

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// A single file that a workload mounts by its path is a tree of one entry, in the
// folder that it lies in. Nothing else of that folder is looked at, sent or changed,
// and events do not matter: each pass sends the file whole.

// FollowFile begins with a file of which the other side holds nothing.
func FollowFile(path string) (*Follower, error) {
	m, err := Open(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	m.only = filepath.Base(path)
	if _, err := m.regular(); err != nil {
		m.Close()
		return nil, err
	}
	return &Follower{Mirror: m, first: true}, nil
}

// regular returns the stat of the file, which must be a regular one.
func (m *Mirror) regular() (*unix.Stat_t, error) {
	st, err := m.stat(m.only)
	if err == nil && st.Mode&unix.S_IFMT != unix.S_IFREG {
		err = errors.New("it is no regular file any more")
	}
	return st, m.error(m.only, err)
}

// single sends the file.
func (p *pass) single() error {
	st, err := p.regular()
	if err != nil {
		return err
	}
	if st.Nlink > 1 {
		return p.error(p.only, errors.New("it has further names, which would be files of their own on the other side: mount a copy of it"))
	}
	before := p.stats.Entries
	if err := p.entry(p.root, p.only, p.only, st); err != nil {
		return err
	}
	if p.stats.Entries == before {
		return p.error(p.only, errors.New("another file took its name while it was sent"))
	}
	return nil
}

// weighFile is how many bytes a pass over the single file sends.
func (m *Mirror) weighFile() (int64, error) {
	st, err := m.regular()
	if err != nil {
		return 0, err
	}
	return min(st.Size, st.Blocks*512), nil
}

// undisturbed demands that the file is as it was last sent.
func (m *Mirror) undisturbed() error {
	st, err := m.regular()
	if err != nil {
		return err
	}
	if h, ok := m.held[st.Ino]; !ok || h.mark&^markBits != m.mark(st) {
		return m.error(m.only, errors.New("something outside of the workload writes to it"))
	}
	return nil
}

// DigestFile is a digest of all of a file that travels, and its size.
func DigestFile(ctx context.Context, path string) (digest string, size int64, err error) {
	m, err := Open(filepath.Dir(path))
	if err != nil {
		return "", 0, err
	}
	defer m.Close()
	m.only = filepath.Base(path)
	st, err := m.regular()
	if err != nil {
		return "", 0, err
	}
	d := &digester{Mirror: m, ctx: ctx, read: (*digester).content, first: map[uint64]string{}}
	d.files, d.ctx = errgroup.WithContext(ctx)
	if err = errors.Join(d.entry(m.root, m.only, m.only, st), d.files.Wait()); err != nil {
		return "", 0, fmt.Errorf("tree: a digest of %s: %w", path, err)
	}
	sum := sha256.Sum256(bytes.Join([][]byte{d.lines[0].about, d.lines[0].content}, nil))
	return hex.EncodeToString(sum[:]), st.Size, nil
}

// EmptyFile reports whether a file is there and holds nothing.
func EmptyFile(path string) (bool, error) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return false, fmt.Errorf("tree: %s: %w", path, err)
	}
	return st.Mode&unix.S_IFMT == unix.S_IFREG && st.Size == 0, nil
}

// ClearFile removes a file's content. It stays, empty, as it was before the first
// pass.
func ClearFile(path string) error {
	dir, err := openRoot(filepath.Dir(path))
	if errors.Is(err, unix.ENOENT) {
		return nil
	} else if err != nil {
		return err
	}
	defer unix.Close(dir)
	base := filepath.Base(path)
	if err := removeAt(dir, base); errors.Is(err, unix.ENOENT) {
		return nil
	} else if err != nil {
		return fmt.Errorf("tree: emptying %s: %w", path, err)
	}
	fd, err := unix.Openat(dir, base, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return fmt.Errorf("tree: emptying %s: %w", path, err)
	}
	return unix.Close(fd)
}

// never is before any change: no change time is trusted.
var never = time.Unix(0, 0)
