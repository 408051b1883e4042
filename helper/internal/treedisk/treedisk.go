// Package treedisk keeps a folder's content as a disk: a copy of it in an ext4 file system,
// in a sparse image. So everything that is done with disks can be done with a folder: a
// store keeps only clusters that differ, and others open a snapshot of it with qemu-img.
//
// A folder has one such disk on a host, below a folder of its own:
//
//	.lock      held by the process that works on it
//	folder     a link to the folder that it is of
//	disk.img   the image, of a file system that was unmounted
//	disk.open  the same while it is written: one that is found was left half written, and
//	           is made again
//
// It is only a copy, and can be removed when no process holds it. It has no journal, for it
// is made again after a loss of power. Its label tells a folder's disk from others.
//
// The file system is mounted for this process alone, and goes with it.
package treedisk

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/loop"
	"github.com/livefleet/handover/helper/internal/store"
)

// Root is the place of these disks.
const Root = "/var/lib/handover/folders"

// Label is the file system's.
const Label = "handover-folder"

const (
	lockFile   = ".lock"
	folderLink = "folder"
	wholeFile  = "disk.img"
	openFile   = "disk.open"
)

// Disk is one that this process holds.
type Disk struct {
	dir   string
	lock  *os.File
	mount *os.File // nil: it is not mounted
}

// Hold takes hold of the disk of a folder, and removes those of folders that are gone.
func Hold(root, folder string) (_ *Disk, err error) {
	if err := os.MkdirAll(root, 0o700); err != nil {
		return nil, fmt.Errorf("treedisk: %w", err)
	}
	if err := sweep(root, folder); err != nil {
		return nil, err
	}
	d := &Disk{dir: filepath.Join(root, fmt.Sprintf("%.8x", sha256.Sum256([]byte(folder))))}
	if err := os.Mkdir(d.dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("treedisk: %w", err)
	}
	if d.lock, err = hold(d.dir); err != nil {
		return nil, err
	}
	if d.lock == nil {
		return nil, fmt.Errorf("treedisk: another process works on the copy of %s in %s: try again when it has ended", folder, d.dir)
	}
	if err := os.Symlink(folder, d.path(folderLink)); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, errors.Join(fmt.Errorf("treedisk: %w", err), d.lock.Close())
	}
	return d, nil
}

// hold locks a disk's folder; nil where another process has it.
func hold(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("treedisk: %w", err)
	}
	for {
		if err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != unix.EINTR {
			break
		}
	}
	if err == nil {
		var here, there unix.Stat_t
		if unix.Fstat(int(f.Fd()), &here) == nil && unix.Stat(f.Name(), &there) == nil && here.Ino == there.Ino {
			return f, nil
		}
		err = unix.EWOULDBLOCK // another process has just removed it
	}
	f.Close()
	if err == unix.EWOULDBLOCK {
		return nil, nil
	}
	return nil, fmt.Errorf("treedisk: locking %s: %w", dir, err)
}

// sweep removes the disks of folders that are gone, but not that of this one.
func sweep(root, folder string) error {
	links, err := filepath.Glob(filepath.Join(root, "*", folderLink))
	if err != nil {
		return fmt.Errorf("treedisk: %w", err)
	}
	for _, link := range links {
		of, err := os.Readlink(link)
		if err != nil || of == folder {
			continue
		}
		// In a rollback the folder is away for a while.
		if there(of) || there(of+Away) {
			continue
		}
		lock, err := hold(filepath.Dir(link))
		if err != nil {
			return err
		}
		if lock != nil {
			err = os.RemoveAll(filepath.Dir(link))
			if err = errors.Join(err, lock.Close()); err != nil {
				return fmt.Errorf("treedisk: %w", err)
			}
		}
	}
	return nil
}

func there(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

func (d *Disk) path(name string) string { return filepath.Join(d.dir, name) }

// Image is the file of a disk that is not mounted.
func (d *Disk) Image() string { return d.path(wholeFile) }

// Folder is where the files of a mounted disk are, for this process.
func (d *Disk) Folder() string { return fmt.Sprintf("/proc/self/fd/%d", d.mount.Fd()) }

// The least size of a disk. It doubles until the folder fits twice, so that it has to be
// changed rarely: a disk of another size is stored as a whole once more.
const leastSize = 256 << 20

// Fit makes a disk for a folder with so many bytes in so many entries, unless there is
// one that is whole and large enough.
func (d *Disk) Fit(ctx context.Context, bytes, entries int64) error {
	const perEntry, onDisk = 4 << 10, 512 // an inode for each block of the disk; and its bytes
	need := bytes + entries*perEntry
	size := int64(leastSize)
	for size < 2*need {
		size *= 2
	}
	had, used, err := d.whole()
	if err != nil {
		return err
	}
	if err := d.room(bytes + entries*onDisk - used); err != nil {
		return err
	}
	if had >= need+need/4 {
		return nil
	}
	if err := d.begin(); err != nil {
		return err
	}
	if err := d.empty(size); err != nil {
		return err
	}
	// -i: an inode for each block. No journal: see above. ea_inode: attributes of up to 64 KiB.
	mkfs := exec.CommandContext(ctx, "mke2fs", "-q", "-F", "-t", "ext4", "-b", "4096", "-I", "256", "-i", "4096", "-m", "0", "-L", Label,
		"-O", "^has_journal,^resize_inode,ea_inode,large_dir", "-E", "lazy_itable_init=1,nodiscard", d.path(openFile))
	if out, err := mkfs.CombinedOutput(); err != nil {
		return fmt.Errorf("treedisk: making a file system in %s: %w: %s", d.path(openFile), err, strings.TrimSpace(string(out)))
	}
	return d.end()
}

// whole is the size of the disk, and its bytes on the host's; nothing where none is whole.
func (d *Disk) whole() (size, used int64, err error) {
	var st unix.Stat_t
	err = unix.Stat(d.Image(), &st)
	if errors.Is(err, unix.ENOENT) {
		return 0, 0, nil
	}
	if err != nil {
		return 0, 0, fmt.Errorf("treedisk: %s: %w", d.Image(), err)
	}
	return st.Size, st.Blocks * 512, nil
}

// room demands that so many bytes more fit.
func (d *Disk) room(need int64) error {
	var st unix.Statfs_t
	if err := unix.Statfs(d.dir, &st); err != nil {
		return fmt.Errorf("treedisk: %s: %w", d.dir, err)
	}
	if free := int64(st.Bavail) * st.Frsize; free < need {
		of, _ := os.Readlink(d.path(folderLink))
		return fmt.Errorf("treedisk: %s: the copy of the folder %s takes up to %d MiB more there, and %d MiB are free: free %d MiB", d.dir, of, need>>20, free>>20, (need-free)>>20+1)
	}
	return nil
}

func (d *Disk) empty(size int64) error {
	f, err := os.OpenFile(d.path(openFile), os.O_CREATE|os.O_TRUNC|os.O_WRONLY|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return fmt.Errorf("treedisk: %w", err)
	}
	return errors.Join(f.Truncate(size), f.Close())
}

// begin notes on the disk that the image is not whole any more.
func (d *Disk) begin() error {
	err := os.Rename(d.path(wholeFile), d.path(openFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("treedisk: %w", err)
	}
	return d.sync()
}

// end notes that it is.
func (d *Disk) end() error {
	f, err := os.OpenFile(d.path(openFile), os.O_RDWR|unix.O_CLOEXEC, 0)
	if err == nil {
		err = errors.Join(unix.Fdatasync(int(f.Fd())), f.Close())
	}
	if err == nil {
		err = os.Rename(d.path(openFile), d.path(wholeFile))
	}
	if err != nil {
		return fmt.Errorf("treedisk: %w", err)
	}
	return d.sync()
}

func (d *Disk) sync() error { return syncDir(d.dir) }

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err == nil {
		err = errors.Join(f.Sync(), f.Close())
	}
	if err != nil {
		return fmt.Errorf("treedisk: %w", err)
	}
	return nil
}

// Become makes it the disk of a snapshot. Only clusters that differ are written.
func (d *Disk) Become(ctx context.Context, v *store.View) error {
	size, used, err := d.whole()
	if err != nil {
		return err
	}
	if err := d.room(v.Data() - used); err != nil {
		return err
	}
	if err := d.begin(); err != nil {
		return err
	}
	if size != v.Size() {
		if err := d.empty(v.Size()); err != nil {
			return err
		}
	}
	if _, err := v.WriteTo(ctx, d.path(openFile)); err != nil {
		return err
	}
	return d.end()
}

// Mount mounts it. For writing, it is not whole until Unmount has returned.
func (d *Disk) Mount(readOnly bool) (err error) {
	image, options := d.path(wholeFile), map[string]string{"errors": "remount-ro"}
	if !readOnly {
		if err := d.begin(); err != nil {
			return err
		}
		// Freed blocks become holes, so that a snapshot does not keep them. Tables of unused
		// inodes stay holes.
		image, options["discard"], options["noinit_itable"] = d.path(openFile), "", ""
	}
	d.mount, err = loop.OpenImage(image, "ext4", readOnly, options)
	return err
}

// detached is how long the kernel may take to give the device back.
const detached = 60 * time.Second

// Unmount ends Mount. Afterwards a disk that was written is whole, and on the host's disk.
func (d *Disk) Unmount() error {
	if d.mount == nil {
		return nil
	}
	err := unix.Syncfs(int(d.mount.Fd()))
	err = errors.Join(err, d.mount.Close())
	d.mount = nil
	if err != nil {
		return fmt.Errorf("treedisk: writing the files to %s: %w", d.dir, err)
	}
	if there(d.path(wholeFile)) {
		return nil // it was only read
	}
	if err := awaitDetached(d.path(openFile)); err != nil {
		return err
	}
	return d.end()
}

// Remove removes it, and ends the hold.
func (d *Disk) Remove() error {
	err := d.leave()
	if e := os.RemoveAll(d.dir); e != nil {
		err = errors.Join(err, fmt.Errorf("treedisk: %w", e))
	}
	return errors.Join(err, d.lock.Close())
}

// Close lets go. One that is still mounted for writing is made again the next time.
func (d *Disk) Close() error { return errors.Join(d.leave(), d.lock.Close()) }

func (d *Disk) leave() (err error) {
	if d.mount != nil {
		err = d.mount.Close()
		d.mount = nil
	}
	return err
}

// IsOne reports whether a disk is one of a folder.
func IsOne(disk io.ReaderAt) (bool, error) {
	const at, magicAt, labelAt = 1024, 0x38, 0x78 // of the superblock of ext4
	b := make([]byte, 256)
	if _, err := disk.ReadAt(b, at); err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	return b[magicAt] == 0x53 && b[magicAt+1] == 0xef && strings.TrimRight(string(b[labelAt:labelAt+16]), "\x00") == Label, nil
}
