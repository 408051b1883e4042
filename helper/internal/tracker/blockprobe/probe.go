package blockprobe

import (
	"errors"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/tracker/blockdev"
)

// Finding is one thing that Probe found out.
type Finding struct {
	Name string `json:"name"`           // the thing that was tried
	OK   bool   `json:"ok"`             // whether it is as the tracker needs it
	Text string `json:"text,omitempty"` // in plain words: the finding, and the way out if it is not OK
}

// Probe tries the tracker's needs on this kernel: the programs are loaded and
// attached for a moment, for a device that does not exist. The findings stand in the
// order in which one depends on the other; a step that can no longer be tried is left
// out.
func Probe() []Finding {
	var found []Finding
	add := func(name string, err error, good string) bool {
		f := Finding{Name: name, OK: err == nil, Text: good}
		if err != nil {
			f.Text = err.Error()
		}
		found = append(found, f)
		return f.OK
	}

	var u unix.Utsname
	if err := unix.Uname(&u); !add("kernel", err, "Linux "+unix.ByteSliceToString(u.Release[:])) {
		return found
	}
	if level, err := os.ReadFile(lockdownFile); err == nil && !add("lockdown", lockedDown(string(level)), "the kernel is not locked down against reading its memory") {
		return found
	}
	k, err := lookKernel()
	if errors.Is(err, errNoBTF) {
		add("btf", err, "")
		return found
	}
	add("btf", nil, "the kernel describes its own structures")
	if !add("block layer", err, "all structures and tracepoints that are needed are there") {
		return found
	}
	defer k.letGo()
	// No block device has the major number 0, so nothing is ever marked.
	none := &blockdev.Device{Path: "(probe)", Cluster: 64 << 10, Geometry: blockdev.Geometry{Sectors: 1 << 11}}
	add("request queues", tryLoad(k, none), "writes can be tracked on disks, partitions and loop devices")
	bios := *none
	bios.BioBased, bios.Name = true, "md"
	add("stacked devices", tryLoad(k, &bios), "writes can be tracked on devices without a request queue (device mapper, md, zram)")
	return found
}

// lockdownFile is there if securityfs is mounted and the kernel can be locked down.
const lockdownFile = "/sys/kernel/security/lockdown"

// lockedDown says whether a kernel refuses tracing programs, even from root. The
// level in force stands in brackets.
func lockedDown(levels string) error {
	if !strings.Contains(levels, "[confidentiality]") {
		return nil
	}
	return errors.New("the kernel is locked down for confidentiality, and lets no program read its structures: boot it with lockdown=integrity, or with none")
}

func tryLoad(k *kernel, d *blockdev.Device) error {
	l, err := newCollection(k)
	if err != nil {
		return explain([]*blockdev.Device{d}, err)
	}
	s, err := l.add(d, nil)
	if err != nil {
		return explain([]*blockdev.Device{d}, errors.Join(err, l.destroy()))
	}
	return l.remove(s)
}
