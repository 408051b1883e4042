package network

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Announce tells each segment that the namespace is on where its addresses are now: a
// gratuitous ARP request for each IPv4 address, an unsolicited neighbour
// advertisement for each IPv6 address. Switches and bridges learn the way from the
// frames' sender; neighbours from their content. It bypasses a silence.
func Announce(path string) error {
	return Inside(path, func() error {
		interfaces, err := net.Interfaces()
		if err != nil {
			return fmt.Errorf("network: %w", err)
		}
		var failed error
		for _, i := range interfaces {
			if i.Flags&net.FlagLoopback != 0 || i.Flags&net.FlagUp == 0 || len(i.HardwareAddr) != 6 {
				continue
			}
			addresses, err := i.Addrs()
			if err != nil {
				return fmt.Errorf("network: %s: %w", i.Name, err)
			}
			var frames [][]byte
			for _, a := range addresses {
				if p, err := netip.ParsePrefix(a.String()); err == nil {
					frames = append(frames, announcement(i.HardwareAddr, p.Addr()))
				}
			}
			if err := put(i.Index, frames); err != nil {
				failed = errors.Join(failed, fmt.Errorf("network: announcing on %s: %w", i.Name, err))
			}
		}
		return failed
	})
}

// AnnounceOn tells the segment of one interface, in the caller's namespace, that these
// addresses are on it now.
func AnnounceOn(name string, all ...netip.Addr) error {
	i, err := net.InterfaceByName(name)
	if err != nil {
		return fmt.Errorf("network: announcing on %s: %w", name, err)
	}
	if i.Flags&net.FlagUp == 0 || len(i.HardwareAddr) != 6 { // no Ethernet: no neighbour has a wrong entry
		return nil
	}
	var frames [][]byte
	for _, a := range all {
		frames = append(frames, announcement(i.HardwareAddr, a))
	}
	if err := put(i.Index, frames); err != nil {
		return fmt.Errorf("network: announcing on %s: %w", name, err)
	}
	return nil
}

// put puts frames on the wire.
func put(index int, frames [][]byte) error {
	s, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	// Behind the caller's back: to close it the kernel waits until no processor uses
	// it any more, 10 to 20 ms, and its frames are out.
	defer func() { go unix.Close(s) }()
	for _, f := range frames {
		if err := unix.Sendto(s, f, 0, &unix.SockaddrLinklayer{Ifindex: index}); err != nil {
			return err
		}
	}
	return nil
}

func announcement(from net.HardwareAddr, address netip.Addr) []byte {
	if address.Is4() {
		return gratuitousARP(from, address)
	}
	return neighbourAdvertisement(from, address)
}

const (
	etherARP  = 0x0806
	etherIPv6 = 0x86dd
)

func ethernet(to, from net.HardwareAddr, kind uint16) []byte {
	return binary.BigEndian.AppendUint16(append(append([]byte{}, to...), from...), kind)
}

// gratuitousARP is RFC 5227's announcement: a request by the address for itself.
func gratuitousARP(from net.HardwareAddr, address netip.Addr) []byte {
	f := ethernet(net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, from, etherARP)
	f = append(f, 0, 1, 8, 0, 6, 4, 0, 1) // Ethernet, IPv4, lengths 6 and 4, request
	f = append(append(f, from...), address.AsSlice()...)
	return append(append(f, 0, 0, 0, 0, 0, 0), address.AsSlice()...)
}

// neighbourAdvertisement is RFC 4861's, unsolicited, to all nodes, overriding their
// entries.
func neighbourAdvertisement(from net.HardwareAddr, address netip.Addr) []byte {
	const (
		protocol   = unix.IPPROTO_ICMPV6
		hops       = 255 // a router cannot have passed it on
		override   = 0x20
		targetLink = 2 // the option that carries the hardware address, 1 × 8 bytes
	)
	allNodes := netip.MustParseAddr("ff02::1")
	body := append([]byte{136, 0, 0, 0, override, 0, 0, 0}, address.AsSlice()...)
	body = append(append(body, targetLink, 1), from...)

	header := append(address.AsSlice(), allNodes.AsSlice()...)
	pseudo := append(append([]byte{}, header...), 0, 0, 0, byte(len(body)), 0, 0, 0, protocol)
	binary.BigEndian.PutUint16(body[2:], checksum(append(pseudo, body...)))

	f := ethernet(net.HardwareAddr{0x33, 0x33, 0, 0, 0, 1}, from, etherIPv6)
	f = append(f, 6<<4, 0, 0, 0, 0, byte(len(body)), protocol, hops)
	return append(append(f, header...), body...)
}

// checksum is the Internet's, of an even number of bytes.
func checksum(b []byte) uint16 {
	var sum uint32
	for i := 0; i < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}
