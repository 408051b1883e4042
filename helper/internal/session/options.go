package session

import (
	"time"

	"kernel.org/pub/linux/libs/security/libcap/cap"

	"github.com/livefleet/handover/helper/internal/busy"
	"github.com/livefleet/handover/helper/internal/confine"
	"github.com/livefleet/handover/helper/internal/lazy"
	"github.com/livefleet/handover/helper/internal/precopy"
	"github.com/livefleet/handover/helper/internal/tracker"
	"github.com/livefleet/handover/helper/internal/transport"
	"github.com/livefleet/handover/helper/internal/wire"
)

// Options say how a process serves a session.
//
// Confine, if it is set, takes from this process all that the rules do not leave it, and
// Lower every privilege that is not named: for ever, so a process sets them only if it serves
// this session alone.
//
// Only a session that starts nothing and mounts nothing is confined, one of mode copy.
// The command by which its peer is reached is started by a process of its own.
// All that a handover starts would inherit that: CRIU, and the containers that it restores,
// which would not be as they were. A handover is lowered, which nothing inherits.
type Options struct {
	Confine func(confine.Rules) error
	Lower   func(keep ...cap.Value) error

	parts
}

// parts are those of a session that a test has fail, or wait, in the place of the real ones.
type parts struct {
	openTrackers func(kind string, devs []tracker.Device) ([]tracker.Tracker, error)
	syncVolumes  func(*places) error
	decode       func(a *arrivedMemory, piece []byte) ([]byte, int64, error)
	serveMemory  func(m *lazy.Memory, c *wire.Conn, known *precopy.Known, count func(int64)) error
	keeper       lazy.Keeper                            // holds the descriptors beside this process: systemd, where it runs this
	dumpAfter    time.Duration                          // file systems stay frozen so long under a dump that is not complete
	howBusy      func() float64                         // how many times as long work takes on this host, since others want the processors too
	copyRate     func() float64                         // bytes a second that this host copies into a tmpfs; 0 where that is not known yet
	lookTakes    func(last time.Duration) time.Duration // the time to find the last writes, by that of the look before; a busy host takes long to begin it
	brakeHold    time.Duration                          // a step of the throttle is given so long to show; the kernel deals out a limited time in tenths of a second
}

// filled has the real part where none is named.
func (o Options) filled() Options {
	if o.openTrackers == nil {
		o.openTrackers = tracker.Open
	}
	if o.syncVolumes == nil {
		o.syncVolumes = (*places).datasync
	}
	if o.decode == nil {
		o.decode = decode
	}
	if o.serveMemory == nil {
		o.serveMemory = (*lazy.Memory).Serve
	}
	if o.keeper == nil {
		o.keeper = transport.Manager{}
	}
	if o.howBusy == nil {
		o.howBusy = new(busy.Meter).Now
	}
	if o.copyRate == nil {
		o.copyRate = new(busy.Copier).Now
	}
	if o.lookTakes == nil {
		o.lookTakes = func(last time.Duration) time.Duration { return last }
	}
	if o.dumpAfter == 0 {
		o.dumpAfter = 2 * time.Second
	}
	if o.brakeHold == 0 {
		o.brakeHold = time.Second
	}
	return o
}
