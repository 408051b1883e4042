package changes

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Where the BPF file system is: the host's own, which systemd mounts, or one that
// is mounted for this alone.
const (
	hostsOwn = "/sys/fs/bpf"
	forThis  = "/run/handover/bpf"
	folder   = "handover-track"

	bpfMagic = 0xcafe4a11 // BPF_FS_MAGIC, linux/magic.h
)

// place is where trackers are pinned. Where others are already, they all are.
func (s *Store) place() (string, error) {
	names, err := s.names()
	if err != nil {
		return "", err
	}
	for _, name := range names {
		st, err := s.load(name)
		if err != nil {
			return "", err
		}
		if _, _, err := s.whole(name); err == nil {
			return st.Pins, nil
		}
	}
	if s.pins != "" {
		return s.pins, nil
	}
	if isBPF(hostsOwn) {
		return filepath.Join(hostsOwn, folder), nil
	}
	if !isBPF(forThis) {
		if err := os.MkdirAll(forThis, 0o700); err != nil {
			return "", fmt.Errorf("changes: %w", err)
		}
		if err := unix.Mount("bpf", forThis, "bpf", unix.MS_NODEV|unix.MS_NOEXEC|unix.MS_NOSUID, "mode=0700"); err != nil {
			return "", fmt.Errorf("changes: mounting a BPF file system on %s: %w: run as root, on a kernel with CONFIG_BPF_SYSCALL", forThis, err)
		}
	}
	return filepath.Join(forThis, folder), nil
}

// leave removes a place where nothing is pinned any more, and the BPF file system
// around it if that was mounted for this alone.
func leave(pins string) error {
	switch err := os.Remove(pins); {
	case errors.Is(err, unix.ENOTEMPTY), errors.Is(err, os.ErrNotExist):
		return nil // another program's, or gone with them
	case err != nil:
		return fmt.Errorf("changes: %w", err)
	}
	if filepath.Dir(pins) != forThis {
		return nil
	}
	if err := errors.Join(unix.Unmount(forThis, 0), os.Remove(forThis)); err != nil {
		return fmt.Errorf("changes: %w", err)
	}
	return nil
}

func isBPF(dir string) bool {
	var st unix.Statfs_t
	return unix.Statfs(dir, &st) == nil && st.Type == bpfMagic
}
