// Package tracker knows which clusters of a block device were written.
//
// # What a tracker promises
//
// A cluster that was written between two calls of Swap, or between Open and the
// first, is in the map of the second. More clusters may be in it than were
// written, never fewer. Where that promise can no longer be kept, Swap returns
// an error, and keeps returning it: the session fails, it never goes on with a
// hole in its knowledge.
//
// A write counts when it completes, which is after its data are on the device
// and before its submitter is told. So whoever takes a map with Swap and then
// reads the clusters in it, past the page cache, reads all that the map stands
// for. A write that is under way during Swap is in a later map; InFlight counts
// those, for the moment at which there must be none. Discards, secure erase,
// write-zeroes and zone appends are writes. So are writes that fail: part of
// them may have landed.
//
// # The eBPF tracker
//
// Programs on the kernel's block tracepoints mark the clusters in the kernel, by
// an atomic OR into a memory-mapped array; Swap takes them out by atomic
// exchange. Nothing is queued on the way, so nothing can overflow. Nothing has
// to be set up on the device, and any number of trackers can watch it at once.
//
// All devices of one Open share one load of the programs. A table leads from the
// disk of a write to its slots: one for each tracker, of the whole disk or of a
// part, with an array of marks of its own. Slots come and go while the programs
// run. A write to a disk without a slot costs one look into the table. The only slot
// of a disk with a request queue has a front besides, which needs no table: there a
// write is marked, and counted, without a call of any function of the kernel. What
// does not fit into it, and what is of a disk with several slots, is marked as
// before; the marks of a slot are those of both.
//
// The array holds four levels of bits. On level 0 a bit is a cluster, on each
// higher level a bit is a whole word of the level below, so that any range, a
// discard of 4 GiB as well as a write of one sector, takes at most eight ORs,
// with no loop and nothing marked that was not in the range.
//
// On a device with a request queue the completion of each request marks its
// range: the tracepoint block_rq_complete names it. Discards are the exception,
// since one request may hold several ranges that do not touch; for them the
// request's bios are walked.
//
// A device without a request queue (device mapper, md, zram, a multipath NVMe
// head) has bios only, and a completed bio no longer knows where it began. So
// block_bio_queue keeps the range of each bio in a hash, and block_bio_complete
// marks it. A write bio that completes on the device and was never seen before
// (it was under way when tracking began, or came by a way that no tracepoint
// shows) marks the whole device. Some drivers, md and multipath NVMe heads among
// them, hand a bio on to the device below as it is, and then only the lower
// device's request completes: block_bio_remap sees the bio go, and the lower
// completion looks it up.
//
// The kernel skips a program that would run inside itself, when a completion
// interrupt arrives during that very program on the same processor. A mark must
// not be lost to that, so each program that marks a completion is attached three
// times. There are three contexts that can be stacked on a processor (task,
// softirq, hardirq), each is inside at most one copy at a time, and so the
// innermost always finds a copy that is free. A copy that comes to a request that
// another one has dealt with leaves at once. Kernels that let tasks be preempted
// inside a tracepoint can stack more; there, if every copy was skipped at least
// once since the last Swap, the whole device is marked.
//
// There may be completions that no program sees: one kernel was met on which the
// programs on a tracepoint are not run when its event interrupts one particular
// task, and nothing counts them as skipped. So on a device with a request queue
// a write is marked twice, when it is submitted, in its submitter's own context,
// and when it completes. The first mark alone would not do: a cluster may be read
// between the two. Therefore the sectors that were seen to complete are held
// against the kernel's own count of them (/sys/block/X/stat), and when they
// disagree Swap returns what it returned during the last minute once more. How
// that is done so that a device that is never quiet still converges is said in
// unseen.go.
//
// Requests that bypass the block layer's operations (SG_IO, NVMe passthrough)
// and carry data to the device say nothing of a range and mark all of it.
//
// The layout of the kernel's structures is read from the running kernel's own
// BTF when the programs are built.
//
// # The hash tracker
//
// Where programs are not allowed on the block tracepoints, all that is left is to
// read the whole device and to compare it with what was sent. Not with what it was
// at the last Swap: a cluster that was written, read by the copy, and then written
// as it had been before would look untouched, and the copy would have what was in
// between. So whoever copies keeps a digest of each cluster as it was last sent
// (Device.Sent), and a cluster is marked that is not what was sent, or was never
// sent. That is the promise for those who send what they are told.
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
// No such kernel runs where this was written: what is known of it comes from its
// source, and the tests have a stand-in for it.
//
// # What the others do not see
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
)

// Tracker knows which clusters of one device were written.
type Tracker interface {
	// Swap returns the clusters written since the last Swap, or since Open, and
	// forgets them. It returns an error if a mark may have been lost, and then
	// does so for ever: what the caller has copied can no longer be made whole.
	Swap() (*blockmap.Map, error)
	// InFlight returns how many writes the device was given and has not
	// completed yet. On a device with an I/O scheduler, writes that still wait
	// in the scheduler are not counted by all kernels: whoever wants to see zero
	// syncs first.
	InFlight() (int64, error)
	// Kind names the way of tracking, as Open knows it.
	Kind() string
	// Close ends the tracking.
	Close() error
}

// LostError says that it is not known any more what was written, and will not be
// again: whoever needs to know begins anew, with a whole copy.
type LostError struct{ err error }

func (e *LostError) Error() string { return e.err.Error() }

func (e *LostError) Unwrap() error { return e.err }

func lost(format string, args ...any) error { return &LostError{fmt.Errorf(format, args...)} }

// Device is what is tracked.
type Device struct {
	Path    string // of a block device: a whole disk or a partition
	Cluster int    // the size of a cluster in bytes, as blockmap has it
	// Sent reports whether a cluster is what was last sent of it, or zeroes if nothing
	// was. It is called by several goroutines at once. Only the hash tracker needs it.
	Sent func(off int64, data []byte) (same bool, err error)
	// Size is how long the image below a ploop device can become. Only the ploop
	// tracker needs it.
	Size int64
}

// Finding is one thing that Probe found out.
type Finding struct {
	Name string `json:"name"`           // what was looked at
	OK   bool   `json:"ok"`             // whether it is as the tracker needs it
	Text string `json:"text,omitempty"` // in plain words: what was found, and what to do if it is not OK
}

// The kinds of trackers.
const (
	Auto = "auto" // the best that this kernel lets us use: ebpf, or else hash
	EBPF = "ebpf"
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
		if _, err := findDevice(d); err != nil {
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
