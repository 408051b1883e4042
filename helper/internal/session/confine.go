package session

import (
	"errors"
	"fmt"
	"path/filepath"

	"kernel.org/pub/linux/libs/security/libcap/cap"

	"github.com/livefleet/handover/helper/internal/confine"
	"github.com/livefleet/handover/helper/internal/session/record"
	"github.com/livefleet/handover/helper/internal/transport"
)

// handoverKeeps are the capabilities that each side of a handover uses itself, and not
// by a program that it starts.
var handoverKeeps = map[record.Role][]cap.Value{
	record.Source: {
		cap.DAC_OVERRIDE, cap.DAC_READ_SEARCH, // trees and folders of the workload's users; handles of fanotify's files
		cap.FOWNER,       // reading them without a new access time
		cap.SYS_ADMIN,    // mounts, freezing file systems, the workload's network namespace, fanotify; the tracker, in place of CAP_BPF and CAP_PERFMON
		cap.SYS_RESOURCE, // memory for the tracker's maps, on older kernels
		cap.NET_ADMIN,    // silence
		cap.NET_RAW,      // announcements, when the workload runs on here
		cap.SYS_PTRACE,   // the workload's open files, mappings and memory
		cap.KILL,         // a hook that takes too long
	},
	record.Destination: {
		cap.DAC_OVERRIDE,
		cap.CHOWN, cap.FOWNER, cap.FSETID, cap.MKNOD, cap.SETFCAP, cap.LINUX_IMMUTABLE, // trees as they were
		cap.SYS_ADMIN,    // mounts, the workload's network namespace
		cap.SYS_RESOURCE, // quotas, and a file system's reserve for others than root
		cap.NET_ADMIN, cap.NET_RAW,
		cap.NET_BIND_SERVICE, // a port below 1024, if it is told to listen there
		cap.SYS_PTRACE,       // the network namespace of the restored tasks
		cap.SYS_NICE,         // the processors of its threads
		cap.KILL,
	},
}

// lower drops, before anything of the peer's is read, the rights that this side of a
// handover never needs. A copy gives up more, and later.
func (o Options) lower(b *record.Session) error {
	if o.Lower == nil || b.Spec.StartsNothing() {
		return nil
	}
	if err := o.Lower(handoverKeeps[b.Spec.Role]...); err != nil {
		return fmt.Errorf("session: %w", err)
	}
	return nil
}

func (o Options) confine(b *record.Session, r confine.Rules) error {
	if o.Confine == nil || !b.Spec.StartsNothing() {
		return nil
	}
	r.Write = append(r.Write, b.Dir)
	err := o.Confine(r)
	if errors.Is(err, confine.ErrNoLandlock) {
		b.Log.Emit("warning", map[string]any{"text": err.Error()})
		return nil
	}
	if err != nil {
		return fmt.Errorf("session: %w", err)
	}
	b.Log.Emit("confined", nil)
	return nil
}

// confineSource leaves it the session's folder, the way to the destination, and the
// places where it is counted among the copies that share a limit, and that take
// turns.
func (s *source) confineSource() error {
	var r confine.Rules
	if at, ok := s.way.(transport.Address); ok {
		r.Connect = at.Port() // a unix socket is opened as a file is
	}
	if s.share != nil {
		r.Write = append(r.Write, filepath.Join(s.RunDir, record.SharesDir))
	}
	if s.queue != nil {
		r.Write = append(r.Write, filepath.Join(s.RunDir, record.TurnsDir))
	}
	return s.options.confine(s.Session, r)
}

// confineDestination leaves it the session's folder; and the images that it has made,
// and the socket that it listens on, may be removed again.
func (d *destination) confineDestination() error {
	var r confine.Rules
	for _, v := range d.images {
		r.Remove = append(r.Remove, filepath.Dir(v.Image))
	}
	if at, err := transport.ParseAddress(d.Spec.Listen); err == nil {
		if path, ok := at.Socket(); ok {
			r.Remove = append(r.Remove, filepath.Dir(path))
		}
	}
	return d.options.confine(d.Session, r)
}
