package network

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// A peer that sends into the silence is not heard, and asks again after 0.2, 0.6, 1.4
// s and so on: a pause of 0.9 s is one of 1.7 for it, since until its next attempt it
// does not know that the socket is back. A peer that has seen a zero window sends
// nothing, and so has nothing to retransmit. It sends its waiting data at once when
// the window is opened.
//
// Both windows are sent in segments without data, as the connection's own kernel
// would send them: a peer that ignores them is no worse off. A peer with a zero
// window probes it now and then, so that one that misses the second message continues
// as well.

// CloseWindows tells the peers of connections, in a namespace that is silent or about
// to be, that there is no room for more.
func CloseWindows(path string, all []Connection) error { return tell(path, all, false) }

// ReopenWindows tells them that there is room again.
func ReopenWindows(path string, all []Connection) error { return tell(path, all, true) }

func tell(path string, all []Connection, room bool) error {
	if len(all) == 0 {
		return nil
	}
	return Inside(path, func() error {
		four, err := rawSocket(unix.AF_INET)
		if err != nil {
			return fmt.Errorf("network: %w", err)
		}
		defer unix.Close(four)
		six, err := rawSocket(unix.AF_INET6)
		if err != nil && !errors.Is(err, unix.EAFNOSUPPORT) {
			return fmt.Errorf("network: %w", err)
		}
		defer unix.Close(six)
		var failed error
		for _, c := range all {
			to, window := c.Remote.Addr(), uint16(0)
			if room {
				window = c.Window
			}
			if to.Is4() {
				err = unix.Sendto(four, packet(c, window), 0, &unix.SockaddrInet4{Addr: to.As4()})
			} else {
				err = unix.Sendto(six, packet(c, window), 0, &unix.SockaddrInet6{Addr: to.As16()})
			}
			if err != nil {
				failed = errors.Join(failed, fmt.Errorf("network: telling %s about its window: %w", c.Remote, err))
			}
		}
		return failed
	})
}

// rawSocket takes whole packets. They pass by a silence, as CRIU's own do.
func rawSocket(family int) (int, error) {
	s, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return -1, err
	}
	if err := unix.SetsockoptInt(s, unix.SOL_SOCKET, unix.SO_MARK, criuMark); err != nil {
		unix.Close(s)
		return -1, err
	}
	return s, nil
}

// packet is an acknowledgement (RFC 9293, 3.1) of the last data received, with this
// window.
func packet(c Connection, window uint16) []byte {
	const size, ack, hops = 20, 0x10, 64
	from, to := c.Local.Addr(), c.Remote.Addr()
	n := binary.BigEndian
	t := n.AppendUint16(nil, c.Local.Port())
	t = n.AppendUint16(t, c.Remote.Port())
	t = n.AppendUint32(t, c.Sent)
	t = n.AppendUint32(t, c.Heard)
	t = append(t, size/4<<4, ack)
	t = n.AppendUint16(t, window)
	t = append(t, 0, 0, 0, 0) // checksum, urgent
	pseudo := append(append([]byte{}, from.AsSlice()...), to.AsSlice()...)
	pseudo = append(pseudo, 0, unix.IPPROTO_TCP, 0, size)
	n.PutUint16(t[16:], checksum(append(pseudo, t...)))

	var header []byte
	if to.Is4() {
		// The kernel fills in length, number and checksum.
		header = []byte{4<<4 | 5, 0, 0, 0, 0, 0, 0, 0, hops, unix.IPPROTO_TCP, 0, 0}
	} else {
		header = []byte{6 << 4, 0, 0, 0, 0, size, unix.IPPROTO_TCP, hops}
	}
	return append(append(append(header, from.AsSlice()...), to.AsSlice()...), t...)
}

// Own reports whether the namespace at path has all of these addresses.
func Own(path string, all []Connection) error {
	return Inside(path, func() error {
		have, err := addresses()
		if err != nil {
			return err
		}
		for _, c := range all {
			if !have[c.Local.Addr()] {
				return fmt.Errorf("network: a connection is said to be of %s, which is not the workload's", c.Local)
			}
		}
		return nil
	})
}

// Addresses are those of the namespace at path.
func Addresses(path string) (have map[netip.Addr]bool, err error) {
	err = Inside(path, func() (err error) {
		have, err = addresses()
		return err
	})
	return have, err
}

func addresses() (map[netip.Addr]bool, error) {
	have := map[netip.Addr]bool{}
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("network: %w", err)
	}
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			have[p.Addr()] = true
		}
	}
	return have, nil
}
