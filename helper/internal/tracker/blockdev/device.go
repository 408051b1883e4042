// Package blockdev reads sysfs about a tracked block device: where it lies on its
// disk, whether it is still the same, and how many writes the kernel counts. It opens
// nothing and changes nothing.
//
// All kinds of trackers stand on it. LostError is here for the same reason: each of
// them returns it, and so does CheckUnchanged.
package blockdev

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/blockmap"
)

// LostError says that the written clusters are no longer known, and will not be
// again: a new copy has to begin, and a whole one.
type LostError struct{ err error }

func (e *LostError) Error() string { return e.err.Error() }

func (e *LostError) Unwrap() error { return e.err }

// Lost makes a LostError.
func Lost(format string, args ...any) error { return &LostError{fmt.Errorf(format, args...)} }

// Device holds sysfs's facts about one tracked device. Sectors have 512 bytes, even
// if the device's own have more.
type Device struct {
	Path    string // as the caller named it
	Cluster int    // the size of a cluster in bytes

	Name      string // of the disk, as the kernel calls it
	Partition bool
	DiskMajor uint32
	DiskMinor uint32
	BioBased  bool // it has no request queue
	Geometry

	sys  string // its folder under /sys
	disk string // the whole disk's folder: the same, or the one above
}

// Geometry is the part that must not change under a tracker.
type Geometry struct {
	Start   int64 // where a partition begins on its disk
	Sectors int64
	Diskseq string // changes when another medium comes under the same name
}

// Size is its length in bytes.
func (d *Device) Size() int64 { return d.Sectors * 512 }

// DiskKey is how the eBPF programs know the disk.
func (d *Device) DiskKey() uint64 { return uint64(d.DiskMajor)<<32 | uint64(d.DiskMinor) }

// memoryDisks are the drivers that keep the data in memory themselves.
var memoryDisks = []string{"zram", "ram", "pmem", "btt"}

// Named reports whether the name of the disk begins with one of these.
func (d *Device) Named(prefixes ...string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(d.Name, p) })
}

// TakesPages reports whether the driver takes single pages without a bio, on
// kernels that have such a way.
func (d *Device) TakesPages() bool { return d.BioBased && d.Named(memoryDisks...) }

// HandsOnBios reports whether the driver may give a bio to another device as it is.
// Device mapper always makes a clone, and a disk in memory has no device to give it
// to; others (md, a multipath NVMe head) are assumed to do so.
func (d *Device) HandsOnBios() bool { return d.BioBased && !d.Named("dm-") && !d.Named(memoryDisks...) }

// FindTraceable is Find, and refuses a device whose writes the block layer does not
// all see.
func FindTraceable(path string, cluster int) (*Device, error) {
	d, err := Find(path, cluster)
	if err != nil {
		return nil, err
	}
	if dax, err := d.read(d.disk, "queue/dax"); err == nil && dax == "1" {
		return nil, fmt.Errorf("tracker: %s: the device offers DAX, and writes through it leave no trace in the block layer: pass --tracker=hash", d.Path)
	}
	return d, nil
}

// Find finds out everything about a device.
func Find(path string, cluster int) (*Device, error) {
	if err := blockmap.CheckCluster(cluster); err != nil {
		return nil, fmt.Errorf("tracker: %s: %w", path, err)
	}
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return nil, fmt.Errorf("tracker: %s: %w", path, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFBLK {
		return nil, fmt.Errorf("tracker: %s: this is no block device, and only the writes to one can be tracked: name the device that the file system is on", path)
	}
	link := fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(uint64(st.Rdev)), unix.Minor(uint64(st.Rdev)))
	sys, err := filepath.EvalSymlinks(link)
	if err != nil {
		return nil, fmt.Errorf("tracker: %s: the kernel knows no such device: %w", path, err)
	}
	d := &Device{Path: path, Cluster: cluster, sys: sys, disk: sys}
	if _, err := os.Stat(filepath.Join(sys, "partition")); err == nil {
		d.Partition, d.disk = true, filepath.Dir(sys)
	}
	// sysfs writes a slash in a name as '!'.
	d.Name = strings.ReplaceAll(filepath.Base(d.disk), "!", "/")
	number, err := d.read(d.disk, "dev")
	if err != nil {
		return nil, err
	}
	if _, err := fmt.Sscanf(number, "%d:%d", &d.DiskMajor, &d.DiskMinor); err != nil {
		return nil, fmt.Errorf("tracker: %s: %s/dev says %q, which is no device number", d.Path, d.disk, number)
	}
	if d.Geometry, err = d.look(); err != nil {
		return nil, err
	}
	if d.Sectors == 0 {
		return nil, fmt.Errorf("tracker: %s: the device has no medium (its size is 0)", d.Path)
	}
	if _, err := os.Stat(filepath.Join(d.disk, "mq")); errors.Is(err, fs.ErrNotExist) {
		d.BioBased = true
	}
	return d, nil
}

// look reads the geometry.
func (d *Device) look() (Geometry, error) {
	var g Geometry
	var err error
	if d.Partition {
		if g.Start, err = d.readInt(d.sys, "start"); err != nil {
			return g, err
		}
	}
	if g.Sectors, err = d.readInt(d.sys, "size"); err != nil {
		return g, err
	}
	// Kernels before 5.15 have no diskseq; nothing else tells two media apart.
	if s, err := d.read(d.disk, "diskseq"); err == nil {
		g.Diskseq = s
	}
	return g, nil
}

// CheckUnchanged returns an error if the device is no longer the same.
func (d *Device) CheckUnchanged() error {
	g, err := d.look()
	if err != nil {
		return err
	}
	switch was := d.Geometry; {
	case g.Diskseq != was.Diskseq:
		return Lost("tracker: %s: another medium is in the device than when tracking began", d.Path)
	case g != was:
		return Lost("tracker: %s: the device was resized or moved while it was tracked: from %d sectors at %d to %d at %d",
			d.Path, was.Sectors, was.Start, g.Sectors, g.Start)
	}
	return nil
}

// Accounted reports whether the kernel counts the device's I/O.
func (d *Device) Accounted() (bool, error) {
	s, err := d.read(d.disk, "queue/iostats")
	return s == "1", err
}

// NotAccounted is the error where it does not.
func (d *Device) NotAccounted() error {
	return fmt.Errorf("tracker: %s: writes under way cannot be counted, since the kernel's accounting is off: echo 1 > %s/queue/iostats", d.Path, d.disk)
}

// InFlight is the kernel's own count of writes under way, of the part that is tracked.
func (d *Device) InFlight() (int64, error) { return d.inFlight(d.sys) }

// DiskInFlight is that of the whole disk.
func (d *Device) DiskInFlight() (int64, error) { return d.inFlight(d.disk) }

func (d *Device) inFlight(dir string) (int64, error) {
	n, err := d.numbers(dir, "inflight", 2)
	if err != nil {
		return 0, err
	}
	return n[1], nil
}

// The columns of a disk's stat; Documentation/block/stat.rst in the kernel.
const (
	statWriteSectors   = 6
	statInFlight       = 8
	statDiscardSectors = 13
	statColumns        = 14
)

// SectorsWritten reads the kernel's count of sectors whose writing completed, by write
// or by discard, on the whole disk.
func (d *Device) SectorsWritten() (int64, error) {
	n, err := d.numbers(d.disk, "stat", statColumns)
	if err != nil {
		return 0, err
	}
	return n[statWriteSectors] + n[statDiscardSectors], nil
}

// Waiting reports whether a request, be it a read, may wait to be given to the
// device. Kernels before 6.16 do not say.
func (d *Device) Waiting() (waits, known bool, err error) {
	if major, minor := KernelVersion(); major < 6 || major == 6 && minor < 16 {
		return false, false, nil
	}
	n, err := d.numbers(d.disk, "stat", statColumns)
	if err != nil {
		return false, false, err
	}
	return n[statInFlight] != 0, true, nil
}

// numbers reads at least so many numbers from a file below /sys.
func (d *Device) numbers(dir, name string, least int) ([]int64, error) {
	s, err := d.read(dir, name)
	if err != nil {
		return nil, err
	}
	fields := strings.Fields(s)
	if len(fields) < least {
		return nil, fmt.Errorf("tracker: %s: %s/%s says %q, which are not %d numbers", d.Path, dir, name, s, least)
	}
	n := make([]int64, len(fields))
	for i, f := range fields {
		if n[i], err = strconv.ParseInt(f, 10, 64); err != nil {
			return nil, fmt.Errorf("tracker: %s: %s/%s: %w", d.Path, dir, name, err)
		}
	}
	return n, nil
}

func (d *Device) read(dir, name string) (string, error) {
	b, err := os.ReadFile(filepath.Join(dir, name))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		if _, gone := os.Stat(dir); gone != nil {
			return "", fmt.Errorf("tracker: %s: the device is gone", d.Path)
		}
	}
	if err != nil {
		return "", fmt.Errorf("tracker: %s: %w", d.Path, err)
	}
	return strings.TrimSpace(string(b)), nil
}

func (d *Device) readInt(dir, name string) (int64, error) {
	n, err := d.numbers(dir, name, 1)
	if err != nil {
		return 0, err
	}
	return n[0], nil
}

// KernelVersion is the running kernel's, or 0 if it does not say.
func KernelVersion() (major, minor int) {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return 0, 0
	}
	if _, err := fmt.Sscanf(unix.ByteSliceToString(u.Release[:]), "%d.%d", &major, &minor); err != nil {
		return 0, 0
	}
	return major, minor
}
