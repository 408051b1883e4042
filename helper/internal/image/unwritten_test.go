package image

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Preallocated blocks that were never written are holes to SEEK_DATA, and one is data
// from the moment in which its page is written in memory, which FIEMAP cannot say
// before the page is on the disk. So FIEMAP, synced, knows of no block to leave out
// that NextData does not leave out as well; that is why nothing here asks it.
func TestUnwrittenBlocksAreHoles(t *testing.T) {
	for fs, size := range map[string]int64{"ext4": 64 * MiB, "xfs": 320 * MiB} {
		t.Run(fs, func(t *testing.T) {
			if _, err := exec.LookPath("mkfs." + fs); err != nil {
				t.Skip("needs mkfs." + fs)
			}
			dev, mnt := loop(t, size), t.TempDir()
			command(t, "mkfs."+fs, "-q", dev)
			command(t, "mount", dev, mnt)
			t.Cleanup(func() { command(t, "umount", mnt) })
			path := filepath.Join(mnt, "preallocated")
			f, err := os.Create(path)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			const length = 16 * MiB
			if err := unix.Fallocate(int(f.Fd()), 0, 0, length); err != nil {
				t.Fatal(err)
			}
			write := func(off int64) {
				t.Helper()
				if _, err := f.WriteAt(noise(4096), off); err != nil {
					t.Fatal(err)
				}
			}
			onDisk, inMemory := [2]int64{4 * MiB, 4*MiB + 4096}, [2]int64{9 * MiB, 9*MiB + 4096}
			write(onDisk[0])
			if err := f.Sync(); err != nil {
				t.Fatal(err)
			}
			write(inMemory[0])
			found := stretches(t, source(t, path))
			if want := [][2]int64{onDisk, inMemory}; !slices.Equal(found, want) {
				t.Errorf("data are said to be in %v, and are in %v", found, want)
			}
			if allocated := mapped(t, f, 0, true); len(allocated) == 0 || allocated[0][0] != 0 || allocated[len(allocated)-1][1] < length {
				t.Errorf("the blocks were not preallocated, and this test shows nothing: %v", allocated)
			}
			if written := mapped(t, f, fiemapFlagSync, false); !slices.Equal(written, found) {
				t.Errorf("by FIEMAP the data are in %v, and by SEEK_DATA in %v", written, found)
			}
		})
	}
}

// stretches is what NextData finds.
func stretches(t *testing.T, s *Source) (found [][2]int64) {
	t.Helper()
	for off := int64(0); ; {
		start, end, err := s.NextData(off)
		if err == io.EOF {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, [2]int64{start, end})
		off = end
	}
}

// Of linux/fiemap.h.
const (
	fsIocFiemap           = 0xc020660b
	fiemapFlagSync        = 1
	fiemapExtentUnwritten = 0x800
	fiemapHead            = 32
	fiemapExtent          = 56
	fiemapExtents         = 64
)

// mapped is what FIEMAP says of a file: what was written, or all that is allocated.
func mapped(t *testing.T, f *os.File, flags uint32, unwritten bool) (found [][2]int64) {
	t.Helper()
	b, err := fiemap(f, flags)
	if err != nil {
		t.Fatal(err)
	}
	for i := range int(binary.NativeEndian.Uint32(b[20:])) {
		e := b[fiemapHead+i*fiemapExtent:]
		start, length := int64(binary.NativeEndian.Uint64(e)), int64(binary.NativeEndian.Uint64(e[16:]))
		if !unwritten && binary.NativeEndian.Uint32(e[40:])&fiemapExtentUnwritten != 0 {
			continue
		}
		if n := len(found); n > 0 && found[n-1][1] == start {
			found[n-1][1] = start + length
			continue
		}
		found = append(found, [2]int64{start, start + length})
	}
	return found
}

func fiemap(f *os.File, flags uint32) ([]byte, error) {
	b := make([]byte, fiemapHead+fiemapExtents*fiemapExtent)
	binary.NativeEndian.PutUint64(b[8:], 1<<62)
	binary.NativeEndian.PutUint32(b[16:], flags)
	binary.NativeEndian.PutUint32(b[24:], fiemapExtents)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), fsIocFiemap, uintptr(unsafe.Pointer(&b[0]))); errno != 0 {
		return nil, fmt.Errorf("FIEMAP: %w", errno)
	}
	return b, nil
}

// A block device answers neither FIEMAP nor SEEK_DATA, and so the file below a loop
// device is asked; a tmpfs answers only SEEK_DATA.
func TestWhoHasNoFIEMAP(t *testing.T) {
	dev, mnt := loop(t, 16*MiB), t.TempDir()
	command(t, "mount", "-t", "tmpfs", "tmpfs", mnt)
	t.Cleanup(func() { command(t, "umount", mnt) })
	for path, seeks := range map[string]bool{dev: false, filepath.Join(mnt, "file"): true} {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteAt(noise(4096), MiB); err != nil {
			t.Fatal(err)
		}
		if _, err := fiemap(f, fiemapFlagSync); !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.ENOTTY) {
			t.Errorf("%s: %v", path, err)
		}
		if at, err := unix.Seek(int(f.Fd()), 0, unix.SEEK_DATA); (err == nil && at == MiB) != seeks {
			t.Errorf("%s: data at %d, %v", path, at, err)
		}
	}
}
