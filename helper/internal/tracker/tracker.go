// Package tracker knows which clusters of a block device were written.
//
// # The promise of a tracker
//
// A cluster that was written between two calls of Swap, or between Open and the
// first, is in the map of the second. More clusters may be in it than were
// written, never fewer. Where that promise can no longer be kept, Swap returns
// an error, and keeps returning it: the session fails, it never goes on with a
// hole in its knowledge.
//
// A write counts when it completes, which is after its data are on the device and
// before its submitter is told. So a caller that takes a map with Swap and then reads
// the clusters in it, past the page cache, reads all that the map stands for. A write
// that is under way during Swap is in a later map; InFlight counts those, for the
// moment at which there must be none. Discards, secure erase, write-zeroes and zone
// appends are writes. So are writes that fail: part of them may have landed.
//
// # The eBPF tracker
//
// The package blockprobe: programs on the kernel's block tracepoints mark the written
// clusters. It is the best one wherever the kernel takes the programs. The package
// pinned keeps such programs in the kernel without a process.
//
// # The hash tracker
//
// Where programs are not allowed on the block tracepoints, the only way is to read
// the whole device and to compare it with the sent data. Not with its content at the
// last Swap: a cluster that was written, read by the copy, and then written as it had
// been before would look untouched, and the copy would have the content in between.
// So the copy keeps a digest of each cluster as it was last sent (Device.Sent), and a
// cluster is marked that differs from it, or was never sent. The promise holds for a
// copy that sends every marked cluster.
//
// It costs a whole read for each Swap, also for those under the freeze: there the
// pause is longer by several whole reads of the device. Writes past the block
// layer are seen, too.
//
// # The ploop tracker
//
// An OpenVZ kernel tracks a ploop device itself, and tells by ioctl which extents of
// the image below it were written. Where nothing is left to tell it answers EAGAIN;
// where it had no memory for a mark it answers ECONNABORTED, and the session fails.
// Behind the freeze Settle has the kernel write what it has accepted.
// No such kernel runs where this was written: our knowledge of it comes from its
// source, and the tests have a stand-in for it.
//
// # Writes that the others do not see
//
// A write that does not go through the block layer is out of sight: DAX, and on
// kernels before 6.3 pages that are given to zram, brd or pmem directly. Open
// refuses devices where that can happen. It goes without saying that the backing
// file of a loop device must not be written behind the device's back.
package tracker

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/livefleet/handover/helper/internal/blockmap"
	"github.com/livefleet/handover/helper/internal/tracker/blockdev"
	"github.com/livefleet/handover/helper/internal/tracker/blockprobe"
)

// Tracker knows which clusters of one device were written.
type Tracker interface {
	// Swap returns the clusters written since the last Swap, or since Open, and
	// forgets them. It returns an error if a mark may have been lost, and then does
	// so forever: the caller's copy can no longer be made whole.
	Swap() (*blockmap.Map, error)
	// InFlight returns how many writes the device was given and has not completed
	// yet. On a device with an I/O scheduler, writes that still wait in the scheduler
	// are not counted by all kernels: a caller that wants to see zero syncs first.
	InFlight() (int64, error)
	// Kind names the way of tracking, as Open knows it.
	Kind() string
	// Close ends the tracking.
	Close() error
}

// Settler is a tracker of which the last writes before a freeze have to be waited for:
// Settle comes after the freeze and before the last Swap.
type Settler interface{ Settle() error }

// Device is a tracked device.
type Device struct {
	Path    string // of a block device: a whole disk or a partition
	Cluster int    // the size of a cluster in bytes, as blockmap has it
	// Sent reports whether a cluster is as it was last sent, or zeroes if it never
	// was. It is called by several goroutines at once. Only the hash tracker needs it.
	Sent func(off int64, data []byte) (same bool, err error)
	// Size is how long the image below a ploop device can become. Only the ploop
	// tracker needs it.
	Size int64
}

// The kinds of trackers.
const (
	Auto = "auto" // the best that this kernel lets us use: ebpf, or else hash
	EBPF = blockprobe.Kind
	Hash = "hash"
	// Ploop is the kernel's own, on a ploop device of OpenVZ. Its map is not of the
	// device but of the image that lies below it.
	Ploop = "ploop"
)

// kinds is how each kind is opened.
var kinds = map[string]func([]Device) ([]Tracker, error){
	Auto:  openAuto,
	EBPF:  openEBPF,
	Ploop: openPloop,
	Hash:  func(devs []Device) ([]Tracker, error) { return openHash(devs, "") },
}

// Kinds are those that Open knows.
func Kinds() []string { return slices.Sorted(maps.Keys(kinds)) }

// Open starts to track all devices, in the order given. They share one load of
// the programs. When Open returns, every write that is not complete yet will be in
// a map that Swap returns.
func Open(kind string, devs []Device) ([]Tracker, error) {
	open, ok := kinds[kind]
	if !ok {
		return nil, fmt.Errorf("tracker: there is no tracker of the kind %q: choose one of %s", kind, strings.Join(Kinds(), ", "))
	}
	return open(devs)
}

// openAuto takes hash where the kernel refuses the programs. A device that is none,
// or is gone, is an error for both.
func openAuto(devs []Device) ([]Tracker, error) {
	for _, d := range devs {
		if _, err := blockdev.Find(d.Path, d.Cluster); err != nil {
			return nil, err
		}
	}
	trackers, err := openEBPF(devs)
	if err == nil {
		return trackers, nil
	}
	for _, d := range devs {
		if d.Sent == nil { // then nothing else is left
			return nil, err
		}
	}
	trackers, herr := openHash(devs, err.Error())
	if herr != nil {
		return nil, errors.Join(err, herr)
	}
	return trackers, nil
}

// openEBPF finds all devices before it loads anything.
func openEBPF(devs []Device) ([]Tracker, error) {
	found := make([]*blockdev.Device, len(devs))
	for i, d := range devs {
		var err error
		if found[i], err = blockdev.FindTraceable(d.Path, d.Cluster); err != nil {
			return nil, err
		}
	}
	probes, err := blockprobe.Open(found)
	if err != nil {
		return nil, err
	}
	trackers := make([]Tracker, len(probes))
	for i, p := range probes {
		trackers[i] = p
	}
	return trackers, nil
}
