package record

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// journald's socket. Its protocol is documented at https://systemd.io/JOURNAL_NATIVE_PROTOCOL/.
var journald = "/run/systemd/journal/socket"

// standing are the states in which the workload may stand still. Their notices wait for the next other state: nothing is said in
// the pause that can be said behind it.
var standing = []State{Frozen, Flushed, Prepared, Released, Refused}

// notices tell the host's log of the states, with the session's name as a field of its own. They are for the eye, as the events are:
// one that journald does not take at once is dropped.
type notices struct {
	dir  string
	late []Record
}

// add tells of a record, now or behind the pause.
func (n *notices) add(r Record) {
	n.late = append(n.late, r)
	if !slices.Contains(standing, r.State) {
		n.tell()
	}
}

// tell sends all that has waited.
func (n *notices) tell() {
	late := n.late
	n.late = nil
	if len(late) == 0 {
		return
	}
	spec, err := LoadSpec(n.dir)
	if err != nil {
		return
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	for _, r := range late {
		if unix.Sendto(fd, notice(spec, r), unix.MSG_NOSIGNAL, &unix.SockaddrUnix{Name: journald}) != nil {
			return
		}
	}
}

// priority is that of syslog: an operator has to act, a move has failed, all else.
func priority(s State) string {
	switch s {
	case InDoubt:
		return "2"
	case Failed, Thawed, Discarded, Refused, Fenced:
		return "4"
	}
	return "6"
}

func notice(spec *Spec, r Record) []byte {
	text := fmt.Sprintf("session %s (%s of %s): %s", spec.ID, spec.Role, spec.Workload, r.State)
	if spec.Workload == "" {
		text = fmt.Sprintf("session %s (%s): %s", spec.ID, spec.Role, r.State)
	}
	if r.Why != "" {
		text += ": " + r.Why
	}
	var b bytes.Buffer
	for _, field := range []struct{ name, value string }{
		{"MESSAGE", text},
		{"PRIORITY", priority(r.State)},
		{"SYSLOG_IDENTIFIER", "pcopy"},
		{"HANDOVER_SESSION", spec.ID},
		{"HANDOVER_ROLE", string(spec.Role)},
		{"HANDOVER_WORKLOAD", spec.Workload},
		{"HANDOVER_STATE", string(r.State)},
		{"HANDOVER_TIME", r.Time.UTC().Format(time.RFC3339Nano)}, // when it was; the log has when it was told
	} {
		if !strings.Contains(field.value, "\n") {
			fmt.Fprintf(&b, "%s=%s\n", field.name, field.value)
			continue
		}
		fmt.Fprintf(&b, "%s\n", field.name)
		b.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(field.value))))
		fmt.Fprintf(&b, "%s\n", field.value)
	}
	return b.Bytes()
}
