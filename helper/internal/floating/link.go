package floating

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// listed is an address as the kernel lists it.
type listed struct {
	Address
	secondary bool
}

// ifaddrmsg is the header of the kernel's messages on addresses.
const ifaddrmsg = unix.SizeofIfAddrmsg

// addresses are those of this host.
func addresses() (all []listed, err error) {
	c, err := netlink.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		return nil, fmt.Errorf("floating: %w", err)
	}
	defer c.Close()
	answers, err := c.Execute(netlink.Message{
		Header: netlink.Header{Type: unix.RTM_GETADDR, Flags: netlink.Request | netlink.Dump},
		Data:   make([]byte, ifaddrmsg),
	})
	if err != nil {
		return nil, fmt.Errorf("floating: this host's addresses: %w", err)
	}
	names := map[uint32]string{}
	for _, m := range answers {
		l, index, err := readAddress(m.Data)
		if err != nil {
			return nil, fmt.Errorf("floating: this host's addresses: %w", err)
		}
		if names[index] == "" {
			i, err := net.InterfaceByIndex(int(index))
			if err != nil { // gone since
				continue
			}
			names[index] = i.Name
		}
		l.Interface = names[index]
		if l.Label == l.Interface {
			l.Label = ""
		}
		if l.Prefix.IsValid() {
			all = append(all, l)
		}
	}
	return all, nil
}

func readAddress(b []byte) (l listed, index uint32, err error) {
	if len(b) < ifaddrmsg {
		return l, 0, errors.New("a short answer of the kernel's")
	}
	bits, flags := int(b[1]), uint32(b[2])
	index = binary.NativeEndian.Uint32(b[4:])
	ad, err := netlink.NewAttributeDecoder(b[ifaddrmsg:])
	if err != nil {
		return l, 0, err
	}
	var own, local netip.Addr
	for ad.Next() {
		switch ad.Type() {
		case unix.IFA_ADDRESS: // of a point-to-point link the peer's
			own, _ = netip.AddrFromSlice(ad.Bytes())
		case unix.IFA_LOCAL:
			local, _ = netip.AddrFromSlice(ad.Bytes())
		case unix.IFA_BROADCAST:
			l.Broadcast, _ = netip.AddrFromSlice(ad.Bytes())
		case unix.IFA_LABEL:
			l.Label = ad.String()
		case unix.IFA_FLAGS:
			flags = ad.Uint32()
		}
	}
	if local.IsValid() {
		own = local
	}
	if own.IsValid() {
		l.Prefix = netip.PrefixFrom(own, bits)
	}
	l.secondary = own.Is4() && flags&unix.IFA_F_SECONDARY != 0
	l.NoPrefix = flags&unix.IFA_F_NOPREFIXROUTE != 0
	return l, index, ad.Err()
}

// change adds or removes an address.
func change(kind netlink.HeaderType, flags netlink.HeaderFlags, a Address) error {
	i, err := net.InterfaceByName(a.Interface)
	if err != nil {
		return err
	}
	family := byte(unix.AF_INET6)
	if a.Prefix.Addr().Is4() {
		family = unix.AF_INET
	}
	header := []byte{family, byte(a.Prefix.Bits()), 0, unix.RT_SCOPE_UNIVERSE, 0, 0, 0, 0}
	binary.NativeEndian.PutUint32(header[4:], uint32(i.Index))
	ae := netlink.NewAttributeEncoder()
	ae.Bytes(unix.IFA_LOCAL, a.Prefix.Addr().AsSlice())
	ae.Bytes(unix.IFA_ADDRESS, a.Prefix.Addr().AsSlice())
	if kind == unix.RTM_NEWADDR {
		// IPv6 would ask the segment for a second whether another host has it.
		set := uint32(unix.IFA_F_NODAD)
		if a.NoPrefix {
			set |= unix.IFA_F_NOPREFIXROUTE
		}
		ae.Uint32(unix.IFA_FLAGS, set)
		if a.Label != "" {
			ae.String(unix.IFA_LABEL, a.Label)
		}
		if a.Broadcast.IsValid() {
			ae.Bytes(unix.IFA_BROADCAST, a.Broadcast.AsSlice())
		}
	}
	attributes, err := ae.Encode()
	if err != nil {
		return err
	}
	c, err := netlink.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.Execute(netlink.Message{
		Header: netlink.Header{Type: kind, Flags: netlink.Request | netlink.Acknowledge | flags},
		Data:   append(header, attributes...),
	})
	return err
}
