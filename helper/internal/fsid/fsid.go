// Package fsid tells file systems apart, also across a restart of the host, where
// device numbers and loop devices change.
//
// An Identity is the lasting part: the UUID in the superblock (ext2 to ext4, XFS,
// Btrfs), and for a loop device the path of the image below it. A copy of a file
// system has the UUID of the first, but another image. Where neither is known, as for
// a file system of another kind on a disk, the device's path is all there is.
package fsid

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Identity is which file system something is. Empty fields are not known.
type Identity struct {
	UUID   string `json:"uuid,omitempty"`
	Image  string `json:"image,omitempty"`
	Device string `json:"device,omitempty"`
}

// Same reports whether both are one file system: every field that both know is alike,
// and there is one other than the device, or the device itself is alike.
func (i Identity) Same(o Identity) bool {
	if i.UUID != "" && o.UUID != "" && i.UUID != o.UUID || i.Image != "" && o.Image != "" && i.Image != o.Image {
		return false
	}
	if i.UUID != "" && o.UUID != "" || i.Image != "" && o.Image != "" {
		return true
	}
	return i.Device != "" && i.Device == o.Device
}

// String names it in an error.
func (i Identity) String() string {
	for _, name := range []string{i.Image, i.Device} {
		if name != "" {
			return name
		}
	}
	return "the file system " + i.UUID
}

// Of returns the identity of the file system on a block device.
func Of(device string) (Identity, error) {
	id := Identity{Device: device}
	var st unix.Stat_t
	if err := unix.Stat(device, &st); err != nil {
		return id, fmt.Errorf("fsid: %s: %w", device, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFBLK {
		return id, fmt.Errorf("fsid: %s is not a block device", device)
	}
	image, err := os.ReadFile(fmt.Sprintf("/sys/dev/block/%d:%d/loop/backing_file", unix.Major(st.Rdev), unix.Minor(st.Rdev)))
	if err == nil {
		id.Image = strings.TrimSuffix(strings.TrimRight(string(image), "\n"), " (deleted)")
	} else if !errors.Is(err, os.ErrNotExist) {
		return id, fmt.Errorf("fsid: %s: %w", device, err)
	}
	f, err := os.Open(device)
	if err != nil {
		return id, fmt.Errorf("fsid: %w", err)
	}
	defer f.Close()
	id.UUID, err = uuidOf(f)
	if err != nil {
		return id, fmt.Errorf("fsid: %s: %w", device, err)
	}
	return id, nil
}

// A superblock's magic number, and where it and the UUID are.
// Sources: ext4's ext4_super_block, XFS's xfs_dsb, Btrfs's btrfs_super_block in the kernel.
var superblocks = []struct {
	magic    string
	at, uuid int64
}{
	{"\x53\xef", 1024 + 0x38, 1024 + 0x68},
	{"XFSB", 0, 32},
	{"_BHRfS_M", 0x10040, 0x10020},
}

// uuidOf is the UUID in the superblock, or empty for a file system that is not known here.
func uuidOf(r io.ReaderAt) (string, error) {
	for _, s := range superblocks {
		magic, uuid := make([]byte, len(s.magic)), make([]byte, 16)
		if _, err := r.ReadAt(magic, s.at); errors.Is(err, io.EOF) {
			continue
		} else if err != nil {
			return "", err
		}
		if string(magic) != s.magic {
			continue
		}
		if _, err := r.ReadAt(uuid, s.uuid); err != nil {
			return "", err
		}
		if bytes.Equal(uuid, make([]byte, 16)) {
			return "", nil
		}
		return hex.EncodeToString(uuid), nil
	}
	return "", nil
}

// ErrNotMounted says that nothing is mounted on a folder.
var ErrNotMounted = errors.New("nothing is mounted there")

// Mounted returns the identity of the file system that is mounted exactly on dir.
// The error is ErrNotMounted where none is.
func Mounted(dir string) (Identity, error) {
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return Identity{}, fmt.Errorf("fsid: %w", err)
	}
	source, ok := mountedOn(string(table), dir)
	if !ok {
		return Identity{}, fmt.Errorf("fsid: %s: %w", dir, ErrNotMounted)
	}
	var at, dev unix.Stat_t
	if err := unix.Stat(dir, &at); err != nil {
		return Identity{}, fmt.Errorf("fsid: %s: %w", dir, err)
	}
	// Of a file system that is on no block device, as a tmpfs, nothing is known.
	if unix.Stat(source, &dev) != nil || dev.Mode&unix.S_IFMT != unix.S_IFBLK || dev.Rdev != at.Dev {
		return Identity{}, nil
	}
	return Of(source)
}

// mountedOn finds the source of the topmost mount on dir, the last of the table.
func mountedOn(table, dir string) (source string, ok bool) {
	for line := range strings.Lines(table) {
		// ID, parent, device, root, mount point, options, optional fields, "-", type, source, …
		f := strings.Fields(line)
		sep := 6
		for sep < len(f) && f[sep] != "-" {
			sep++
		}
		if sep+2 < len(f) && unescape(f[4]) == dir {
			source, ok = unescape(f[sep+2]), true
		}
	}
	return source, ok
}

// unescape reads the kernel's way to write blanks and backslashes in a mount table.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace
