package tracker

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

// device is what sysfs says about one tracked device. Sectors have 512 bytes,
// whatever the device's own have.
type device struct {
	path    string
	cluster int

	sys       string // its folder under /sys
	disk      string // the whole disk's folder: the same, or the one above
	name      string // of the disk, as the kernel calls it
	partition bool
	start     int64 // where a partition begins on its disk
	sectors   int64
	diskMajor uint32
	diskMinor uint32
	diskseq   string // changes when another medium comes under the same name
	bio       bool   // it has no request queue
}

func (d *device) size() int64 { return d.sectors * 512 }

// key is how the programs know the disk.
func (d *device) key() uint64 { return uint64(d.diskMajor)<<32 | uint64(d.diskMinor) }

// memoryDisks are the drivers that keep the data in memory themselves.
var memoryDisks = []string{"zram", "ram", "pmem", "btt"}

func (d *device) named(prefixes ...string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(d.name, p) })
}

// takesPages reports whether the driver takes single pages without a bio, on
// kernels that have such a way.
func (d *device) takesPages() bool { return d.bio && d.named(memoryDisks...) }

// handsOn reports whether the driver may give a bio to another device as it is.
// Device mapper always makes a clone, and a disk in memory has nobody to give
// it to; of others (md, a multipath NVMe head) it is taken to be so.
func (d *device) handsOn() bool { return d.bio && !d.named("dm-") && !d.named(memoryDisks...) }

// geometry is what must not change under a tracker.
type geometry struct {
	start, sectors int64
	diskseq        string
}

func (d *device) geometry() geometry { return geometry{d.start, d.sectors, d.diskseq} }

// lookDevice is findDevice, and refuses a device whose writes cannot all be seen.
func lookDevice(dev Device) (*device, error) {
	d, err := findDevice(dev)
	if err != nil {
		return nil, err
	}
	if dax, err := d.read(d.disk, "queue/dax"); err == nil && dax == "1" {
		return nil, fmt.Errorf("tracker: %s: the device offers DAX, and writes through it leave no trace in the block layer: pass --tracker=hash", d.path)
	}
	return d, nil
}

// findDevice finds out everything about a device.
func findDevice(dev Device) (*device, error) {
	if err := blockmap.CheckCluster(dev.Cluster); err != nil {
		return nil, fmt.Errorf("tracker: %s: %w", dev.Path, err)
	}
	var st unix.Stat_t
	if err := unix.Stat(dev.Path, &st); err != nil {
		return nil, fmt.Errorf("tracker: %s: %w", dev.Path, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFBLK {
		return nil, fmt.Errorf("tracker: %s: this is no block device, and only the writes to one can be tracked: name the device that the file system is on", dev.Path)
	}
	link := fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(uint64(st.Rdev)), unix.Minor(uint64(st.Rdev)))
	sys, err := filepath.EvalSymlinks(link)
	if err != nil {
		return nil, fmt.Errorf("tracker: %s: the kernel knows no such device: %w", dev.Path, err)
	}
	d := &device{path: dev.Path, cluster: dev.Cluster, sys: sys, disk: sys}
	if _, err := os.Stat(filepath.Join(sys, "partition")); err == nil {
		d.partition, d.disk = true, filepath.Dir(sys)
	}
	// sysfs writes a slash in a name as '!'.
	d.name = strings.ReplaceAll(filepath.Base(d.disk), "!", "/")
	number, err := d.read(d.disk, "dev")
	if err != nil {
		return nil, err
	}
	if _, err := fmt.Sscanf(number, "%d:%d", &d.diskMajor, &d.diskMinor); err != nil {
		return nil, fmt.Errorf("tracker: %s: %s/dev says %q, which is no device number", d.path, d.disk, number)
	}
	g, err := d.look()
	if err != nil {
		return nil, err
	}
	d.start, d.sectors, d.diskseq = g.start, g.sectors, g.diskseq
	if d.sectors == 0 {
		return nil, fmt.Errorf("tracker: %s: the device has no medium (its size is 0)", d.path)
	}
	if _, err := os.Stat(filepath.Join(d.disk, "mq")); errors.Is(err, fs.ErrNotExist) {
		d.bio = true
	}
	return d, nil
}

// look reads what must not change.
func (d *device) look() (geometry, error) {
	var g geometry
	var err error
	if d.partition {
		if g.start, err = d.readInt(d.sys, "start"); err != nil {
			return g, err
		}
	}
	if g.sectors, err = d.readInt(d.sys, "size"); err != nil {
		return g, err
	}
	// Kernels before 5.15 have no diskseq; nothing else tells two media apart.
	if s, err := d.read(d.disk, "diskseq"); err == nil {
		g.diskseq = s
	}
	return g, nil
}

// unchanged returns an error if the device is not any more what it was.
func (d *device) unchanged() error {
	g, err := d.look()
	if err != nil {
		return err
	}
	switch was := d.geometry(); {
	case g.diskseq != was.diskseq:
		return lost("tracker: %s: another medium is in the device than when tracking began", d.path)
	case g != was:
		return lost("tracker: %s: the device was resized or moved while it was tracked: from %d sectors at %d to %d at %d",
			d.path, was.sectors, was.start, g.sectors, g.start)
	}
	return nil
}

// accounted reports whether the kernel counts the device's I/O.
func (d *device) accounted() (bool, error) {
	s, err := d.read(d.disk, "queue/iostats")
	return s == "1", err
}

func (d *device) uncounted() error {
	return fmt.Errorf("tracker: %s: writes under way cannot be counted, since the kernel's accounting is off: echo 1 > %s/queue/iostats", d.path, d.disk)
}

// inFlight reads the kernel's own count of writes under way, of the disk or of
// the part that is tracked: the folder says which.
func (d *device) inFlight(dir string) (int64, error) {
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

// written reads the kernel's count of sectors whose writing completed, by write
// or by discard, on the whole disk.
func (d *device) written() (int64, error) {
	n, err := d.numbers(d.disk, "stat", statColumns)
	if err != nil {
		return 0, err
	}
	return n[statWriteSectors] + n[statDiscardSectors], nil
}

// waits reports whether a request, be it a read, may wait to be given to the
// device. Kernels before 6.16 do not say.
func (d *device) waits() (waits, known bool, err error) {
	if major, minor := kernelVersion(); major < 6 || major == 6 && minor < 16 {
		return false, false, nil
	}
	n, err := d.numbers(d.disk, "stat", statColumns)
	if err != nil {
		return false, false, err
	}
	return n[statInFlight] != 0, true, nil
}

// numbers reads at least so many numbers from a file below /sys.
func (d *device) numbers(dir, name string, least int) ([]int64, error) {
	s, err := d.read(dir, name)
	if err != nil {
		return nil, err
	}
	fields := strings.Fields(s)
	if len(fields) < least {
		return nil, fmt.Errorf("tracker: %s: %s/%s says %q, which are not %d numbers", d.path, dir, name, s, least)
	}
	n := make([]int64, len(fields))
	for i, f := range fields {
		if n[i], err = strconv.ParseInt(f, 10, 64); err != nil {
			return nil, fmt.Errorf("tracker: %s: %s/%s: %w", d.path, dir, name, err)
		}
	}
	return n, nil
}

func (d *device) read(dir, name string) (string, error) {
	b, err := os.ReadFile(filepath.Join(dir, name))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		if _, gone := os.Stat(dir); gone != nil {
			return "", fmt.Errorf("tracker: %s: the device is gone", d.path)
		}
	}
	if err != nil {
		return "", fmt.Errorf("tracker: %s: %w", d.path, err)
	}
	return strings.TrimSpace(string(b)), nil
}

func (d *device) readInt(dir, name string) (int64, error) {
	n, err := d.numbers(dir, name, 1)
	if err != nil {
		return 0, err
	}
	return n[0], nil
}
