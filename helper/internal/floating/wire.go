package floating

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// The messages of the kernel's table of connections (ctnetlink), and their attributes.
const (
	newEntry netlink.HeaderType = unix.NFNL_SUBSYS_CTNETLINK<<8 + iota
	getEntry
	deleteEntry
)

const (
	genericHeader = 4

	ctaOriginal = 1
	ctaReply    = 2
	ctaStatus   = 3
	ctaProtocol = 4
	ctaTimeout  = 7
	ctaMark     = 8
	ctaDestNAT  = 13
	ctaFilter   = 25

	filterOriginal, filterReply = 1, 2
	filterDest                  = 1 << 1

	tupleIP    = 1
	tupleProto = 2

	ip4Source, ip4Dest, ip6Source, ip6Dest          = 1, 2, 3, 4
	protoNumber, protoSource, protoDest             = 1, 2, 3
	protocolTCP                                     = 1
	tcpState, tcpScaleOriginal, tcpScaleReply       = 1, 2, 3
	tcpFlagsOriginal, tcpFlagsReply                 = 4, 5
	natMin4, natMax4, natProto                      = 1, 2, 3
	natMin6, natMax6                                = 4, 5
	natPortMin, natPortMax                          = 1, 2
	carriedFlags                              uint8 = windowScale | selective | closeInit
)

// conn is a way to the table of connections of this host.
type conn struct{ *netlink.Conn }

func dial() (conn, error) {
	c, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return conn{}, fmt.Errorf("floating: %w", err)
	}
	return conn{c}, nil
}

// needsModule names the module that is missing where the kernel does not know the messages.
func needsModule(err error) error {
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf("the kernel does not tell its connections (%w): load the module nf_conntrack_netlink", err)
	}
	return err
}

func (c conn) do(kind netlink.HeaderType, flags netlink.HeaderFlags, family uint8, body []byte) error {
	_, err := c.Execute(netlink.Message{
		Header: netlink.Header{Type: kind, Flags: netlink.Request | netlink.Acknowledge | flags},
		Data:   append(generic(family), body...),
	})
	return err
}

// generic is netfilter's own header.
func generic(family uint8) []byte { return []byte{family, unix.NFNETLINK_V0, 0, 0} }

func familyOf(a netip.Addr) uint8 {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

func (f Flow) family() uint8 { return familyOf(f.Public.Addr()) }

// tuple is one direction of a connection.
func tuple(ae *netlink.AttributeEncoder, kind uint16, protocol uint8, from, to netip.AddrPort) {
	ae.Nested(kind, func(ae *netlink.AttributeEncoder) error {
		ae.Nested(tupleIP, func(ae *netlink.AttributeEncoder) error {
			source, dest := uint16(ip6Source), uint16(ip6Dest)
			if from.Addr().Is4() {
				source, dest = ip4Source, ip4Dest
			}
			ae.Bytes(source, from.Addr().AsSlice())
			ae.Bytes(dest, to.Addr().AsSlice())
			return nil
		})
		ae.Nested(tupleProto, func(ae *netlink.AttributeEncoder) error {
			ae.Uint8(protoNumber, protocol)
			ae.Uint16(protoSource, from.Port())
			ae.Uint16(protoDest, to.Port())
			return nil
		})
		return nil
	})
}

// onlyTo has the kernel, from Linux 5.8 on, list only the connections to one address; an
// older one lists all. A host may have very many, and the workload is frozen. Of IPv6
// kernels are known that list all others instead, so that all are asked for.
func onlyTo(a netip.Addr) ([]byte, error) {
	if !a.Is4() {
		return nil, nil
	}
	ae := netlink.NewAttributeEncoder()
	ae.Nested(ctaOriginal, func(ae *netlink.AttributeEncoder) error {
		ae.Nested(tupleIP, func(ae *netlink.AttributeEncoder) error {
			ae.Bytes(ip4Dest, a.AsSlice())
			return nil
		})
		return nil
	})
	ae.Nested(ctaFilter, func(ae *netlink.AttributeEncoder) error {
		ae.Uint32(filterOriginal, filterDest)
		ae.Uint32(filterReply, 0)
		return nil
	})
	return ae.Encode()
}

// original is the direction by which the kernel finds the entry.
func (f Flow) original() ([]byte, error) {
	ae := netlink.NewAttributeEncoder()
	ae.ByteOrder = binary.BigEndian // inherited by nested attributes
	tuple(ae, ctaOriginal, f.Protocol, f.Client, f.Public)
	return ae.Encode()
}

// encode is the entry as the kernel makes it. The reply is that of a connection that is
// led nowhere, for the kernel leads it by itself where it is told the destination.
func (f Flow) encode() ([]byte, error) {
	ae := netlink.NewAttributeEncoder()
	ae.ByteOrder = binary.BigEndian
	tuple(ae, ctaOriginal, f.Protocol, f.Client, f.Public)
	tuple(ae, ctaReply, f.Protocol, f.Public, f.Client)
	ae.Uint32(ctaStatus, f.Status&(seenReply|assured)|confirmed)
	ae.Uint32(ctaTimeout, max(f.Timeout, 1))
	if f.Mark != 0 {
		ae.Uint32(ctaMark, f.Mark)
	}
	ae.Nested(ctaDestNAT, func(ae *netlink.AttributeEncoder) error {
		least, most := uint16(natMin6), uint16(natMax6)
		if f.Inner.Addr().Is4() {
			least, most = natMin4, natMax4
		}
		ae.Bytes(least, f.Inner.Addr().AsSlice())
		ae.Bytes(most, f.Inner.Addr().AsSlice())
		ae.Nested(natProto, func(ae *netlink.AttributeEncoder) error {
			ae.Uint16(natPortMin, f.Inner.Port())
			ae.Uint16(natPortMax, f.Inner.Port())
			return nil
		})
		return nil
	})
	if f.TCP != nil {
		ae.Nested(ctaProtocol, func(ae *netlink.AttributeEncoder) error {
			ae.Nested(protocolTCP, func(ae *netlink.AttributeEncoder) error {
				ae.Uint8(tcpState, f.TCP.State)
				ae.Uint8(tcpScaleOriginal, f.TCP.Scales[0])
				ae.Uint8(tcpScaleReply, f.TCP.Scales[1])
				// This kernel has not seen the windows of the connection. A packet that
				// it took for one outside of them would not be led to the workload, and
				// the host itself would answer it with a reset.
				ae.Bytes(tcpFlagsOriginal, flags(f.TCP.Flags[0]))
				ae.Bytes(tcpFlagsReply, flags(f.TCP.Flags[1]))
				return nil
			})
			return nil
		})
	}
	return ae.Encode()
}

// flags are those of one direction, and which of them are set.
func flags(of uint8) []byte {
	return []byte{of&carriedFlags | liberal, carriedFlags | liberal}
}

// decode reads an entry.
func decode(b []byte) (f Flow, err error) {
	if len(b) < genericHeader {
		return f, errors.New("a short answer of the kernel's")
	}
	ad, err := netlink.NewAttributeDecoder(b[genericHeader:])
	if err != nil {
		return f, err
	}
	ad.ByteOrder = binary.BigEndian
	for ad.Next() {
		switch ad.Type() {
		case ctaOriginal:
			ad.Nested(func(ad *netlink.AttributeDecoder) error {
				f.Protocol, f.Client, f.Public, err = readTuple(ad)
				return err
			})
		case ctaReply:
			ad.Nested(func(ad *netlink.AttributeDecoder) error {
				_, f.Inner, _, err = readTuple(ad)
				return err
			})
		case ctaStatus:
			f.Status = ad.Uint32()
		case ctaTimeout:
			f.Timeout = ad.Uint32()
		case ctaMark:
			f.Mark = ad.Uint32()
		case ctaProtocol:
			ad.Nested(func(ad *netlink.AttributeDecoder) error {
				for ad.Next() {
					if ad.Type() == protocolTCP {
						f.TCP = &TCP{}
						ad.Nested(f.TCP.read)
					}
				}
				return ad.Err()
			})
		}
	}
	return f, ad.Err()
}

func (s *TCP) read(ad *netlink.AttributeDecoder) error {
	for ad.Next() {
		switch ad.Type() {
		case tcpState:
			s.State = ad.Uint8()
		case tcpScaleOriginal:
			s.Scales[0] = ad.Uint8()
		case tcpScaleReply:
			s.Scales[1] = ad.Uint8()
		case tcpFlagsOriginal:
			s.Flags[0] = first(ad.Bytes())
		case tcpFlagsReply:
			s.Flags[1] = first(ad.Bytes())
		}
	}
	return ad.Err()
}

func first(b []byte) uint8 {
	if len(b) == 0 {
		return 0
	}
	return b[0]
}

// readTuple reads one direction of a connection; other protocols than TCP and UDP have no
// ports.
func readTuple(ad *netlink.AttributeDecoder) (protocol uint8, from, to netip.AddrPort, err error) {
	var source, dest netip.Addr
	var sourcePort, destPort uint16
	for ad.Next() {
		switch ad.Type() {
		case tupleIP:
			ad.Nested(func(ad *netlink.AttributeDecoder) error {
				for ad.Next() {
					switch ad.Type() {
					case ip4Source, ip6Source:
						source, _ = netip.AddrFromSlice(ad.Bytes())
					case ip4Dest, ip6Dest:
						dest, _ = netip.AddrFromSlice(ad.Bytes())
					}
				}
				return ad.Err()
			})
		case tupleProto:
			ad.Nested(func(ad *netlink.AttributeDecoder) error {
				for ad.Next() {
					switch ad.Type() {
					case protoNumber:
						protocol = ad.Uint8()
					case protoSource:
						sourcePort = ad.Uint16()
					case protoDest:
						destPort = ad.Uint16()
					}
				}
				return ad.Err()
			})
		}
	}
	return protocol, netip.AddrPortFrom(source, sourcePort), netip.AddrPortFrom(dest, destPort), ad.Err()
}
