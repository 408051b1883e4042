package undump

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/criuimage"
)

// settable are the flags of an open file that fcntl sets.
const settable = unix.O_APPEND | unix.O_ASYNC | unix.O_DIRECT | unix.O_NOATIME | unix.O_NONBLOCK

// arriveLimit is how long the kernel may take to bring what was written to the other end.
const arriveLimit = time.Second

// putBackTerminals queues what was queued, and then lets files block that did: a write
// to one of them must not wait.
func putBackTerminals(found criuimage.Terminals, inside map[int]int, r *Report) (err error) {
	open := map[criuimage.Terminal]int{}
	flags := map[int]int{}
	defer func() {
		for fd := range flags {
			unix.Close(fd)
		}
	}()
	for _, f := range found.Open {
		fd, e := descriptor(inside[f.Process], f.Descriptor)
		if gone(e) {
			continue
		} else if e != nil {
			err = errors.Join(err, fmt.Errorf("undump: descriptor %d of process %d: %w", f.Descriptor, f.Process, e))
			continue
		}
		open[f.Terminal] = fd
		flags[fd] = f.Flags
	}
	for terminal, data := range found.Queued {
		if found.Packets[terminal] && len(data) > 0 && data[0] == unix.TIOCPKT_DATA { // it is before each piece that is read so
			data = data[1:]
		}
		at, hasAt := open[terminal]
		other, hasOther := open[terminal.Other()]
		if !hasAt || !hasOther {
			continue // whoever had it has ended
		}
		n, e := requeue(other, at, terminal.Master(), data)
		r.Bytes += n
		if e != nil {
			err = errors.Join(err, fmt.Errorf("undump: %d of %d bytes that were queued in a terminal are queued again: %w", n, len(data), e))
		}
	}
	for fd, wanted := range flags {
		now, e := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
		if e == nil && (now^wanted)&settable != 0 {
			if _, e = unix.FcntlInt(uintptr(fd), unix.F_SETFL, wanted); e == nil {
				r.Terminals++
			}
		}
		if e != nil {
			err = errors.Join(err, fmt.Errorf("undump: the flags of a terminal: %w", e))
		}
	}
	return err
}

// descriptor is a copy of what a process has open.
func descriptor(process, number int) (int, error) {
	if process == 0 {
		return -1, unix.ESRCH
	}
	pidfd, err := unix.PidfdOpen(process, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(pidfd)
	return unix.PidfdGetfd(pidfd, number, 0)
}

// requeue writes data to one end, so that it can be read at the other as it was before:
// the terminal has edited and echoed it already.
func requeue(from, at int, output bool, data []byte) (n int, err error) {
	was, err := unix.IoctlGetTermios(from, unix.TCGETS)
	if err != nil {
		return 0, err
	}
	plain := *was
	plain.Oflag &^= unix.OPOST
	// IXON alone stays: without it a terminal that was stopped would start.
	plain.Iflag &= unix.IXON
	plain.Lflag &= unix.ICANON // lines stay lines
	plain.Cc = [len(plain.Cc)]uint8{}
	text := data
	if end := unused(data); !output && plain.Lflag&unix.ICANON != 0 && len(data) > 0 && data[len(data)-1] != '\n' && end != 0 {
		plain.Cc[unix.VEOF] = end // as it was ended before
		text = append(slices.Clone(data), end)
	}
	before, err := unix.IoctlGetInt(at, unix.TIOCINQ)
	if err != nil {
		return 0, err
	}
	if _, err := unix.FcntlInt(uintptr(from), unix.F_SETFL, unix.O_NONBLOCK); err != nil {
		return 0, err
	}
	if err := unix.IoctlSetTermios(from, unix.TCSETS, &plain); err != nil {
		return 0, err
	}
	n, err = unix.Write(from, text)
	n = min(max(n, 0), len(data))
	if err == nil && n < len(data) {
		err = unix.EAGAIN
	}
	// The kernel edits input when it arrives, which is later.
	for until := time.Now().Add(arriveLimit); !output && n > 0 && time.Now().Before(until); {
		if now, e := unix.IoctlGetInt(at, unix.TIOCINQ); e != nil || now >= before+n {
			break
		}
		time.Sleep(time.Millisecond)
	}
	return n, errors.Join(err, unix.IoctlSetTermios(from, unix.TCSETS, was))
}

// unused is a character that is not in data; 0 if all are.
func unused(data []byte) byte {
	for c := 255; c > 0; c-- {
		if !slices.Contains(data, byte(c)) {
			return byte(c)
		}
	}
	return 0
}
