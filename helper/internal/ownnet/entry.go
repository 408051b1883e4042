package ownnet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// kind is a kind of entry: its messages, and the layout of their bodies.
type kind struct {
	kind     string
	get      netlink.HeaderType
	add      netlink.HeaderType
	remove   netlink.HeaderType
	header   int      // bytes before the attributes
	link     int      // where in these a number of an interface is, or none
	volatile []uint16 // attributes that do not define the entry
	links    []uint16 // attributes that are numbers of interfaces
	ours     func(header []byte, attributes []netlink.Attribute) bool
	name     func(header []byte, attributes []netlink.Attribute, links []string) string
}

const none = -1

// Attributes by number, as linux/if_addr.h, linux/rtnetlink.h and linux/fib_rules.h have them.
const (
	ifaAddress, ifaLocal, ifaCacheinfo, ifaFlags                       = 1, 2, 6, 8
	rtaDst, rtaIif, rtaOif, rtaGateway, rtaPriority, rtaMultipath      = 1, 3, 4, 5, 6, 9
	rtaCacheinfo, rtaTable, rtaVia, rtaExpires, rtaNexthop             = 12, 15, 18, 23, 30
	fraPriority, fraTable                                              = 6, 15
	ifaPermanent, ifaKeptFlags                                    uint = 0x80, 0x02 | 0x10 | 0x100 | 0x200 | 0x400
	onlink                                                             = 4
	rulePermanent, ruleInvert                                          = 1, 2
	hopLen                                                             = 8 // struct rtnexthop
)

var (
	address = kind{
		kind: "address", get: unix.RTM_GETADDR, add: unix.RTM_NEWADDR, remove: unix.RTM_DELADDR, header: unix.SizeofIfAddrmsg, link: 4,
		volatile: []uint16{ifaCacheinfo}, ours: ourAddress,
		name: func(h []byte, a []netlink.Attribute, links []string) string {
			local := find(a, ifaLocal)
			if local == nil {
				local = find(a, ifaAddress)
			}
			return fmt.Sprintf("the address %s/%d on %s", ip(local), h[1], links[0])
		},
	}
	route = kind{
		kind: "route", get: unix.RTM_GETROUTE, add: unix.RTM_NEWROUTE, remove: unix.RTM_DELROUTE, header: unix.SizeofRtMsg, link: none,
		volatile: []uint16{rtaCacheinfo}, links: []uint16{rtaIif, rtaOif}, ours: ourRoute, name: nameRoute,
	}
	rule = kind{
		kind: "rule", get: unix.RTM_GETRULE, add: unix.RTM_NEWRULE, remove: unix.RTM_DELRULE, header: unix.SizeofRtMsg, link: none,
		ours: func(h []byte, _ []netlink.Attribute) bool { return h[0] == unix.AF_INET || h[0] == unix.AF_INET6 },
		name: func(h []byte, a []netlink.Attribute, _ []string) string {
			return fmt.Sprintf("the rule %d of %s for the table %d", number(find(a, fraPriority)), family(h[0]), number(find(a, fraTable)))
		},
	}
)

func find(attributes []netlink.Attribute, kind uint16) []byte {
	for _, a := range attributes {
		if a.Type == kind {
			return a.Data
		}
	}
	return nil
}

func number(b []byte) uint32 {
	if len(b) != 4 {
		return 0
	}
	return binary.NativeEndian.Uint32(b)
}

func ip(b []byte) string {
	a, _ := netip.AddrFromSlice(b)
	return a.String()
}

func family(f byte) string {
	if f == unix.AF_INET6 {
		return "IPv6"
	}
	return "IPv4"
}

// ourAddress leaves out addresses that the kernel itself makes, or for a time.
func ourAddress(h []byte, a []netlink.Attribute) bool {
	if h[0] != unix.AF_INET && h[0] != unix.AF_INET6 {
		return false
	}
	flags := uint(h[2])
	if f := find(a, ifaFlags); f != nil {
		flags = uint(number(f))
	}
	local, _ := netip.AddrFromSlice(find(a, ifaAddress))
	return flags&ifaPermanent != 0 && !(h[0] == unix.AF_INET6 && local.IsLinkLocalUnicast())
}

// ourRoute leaves out those that follow from addresses, but for IPv4's to a link, which
// a workload may take away, and those that advertisements bring.
func ourRoute(h []byte, a []netlink.Attribute) bool {
	const protocol, scope, kind, flags = 5, 6, 7, 8
	if h[0] != unix.AF_INET && h[0] != unix.AF_INET6 || number(h[flags:])&unix.RTM_F_CLONED != 0 || find(a, rtaExpires) != nil {
		return false
	}
	switch h[protocol] {
	case unix.RTPROT_REDIRECT, unix.RTPROT_RA:
		return false
	case unix.RTPROT_KERNEL:
		return h[0] == unix.AF_INET && h[kind] == unix.RTN_UNICAST && h[scope] == unix.RT_SCOPE_LINK
	}
	return true
}

func nameRoute(h []byte, a []netlink.Attribute, links []string) string {
	to := "default"
	if dst := find(a, rtaDst); dst != nil {
		to = fmt.Sprintf("%s/%d", ip(dst), h[1])
	} else if h[0] == unix.AF_INET6 {
		to = "default (IPv6)"
	}
	name := "the route to " + to
	if gateway := find(a, rtaGateway); gateway != nil {
		name += " via " + ip(gateway)
	} else if find(a, rtaVia) != nil || find(a, rtaMultipath) != nil {
		name += " via others"
	}
	if len(links) > 0 {
		name += " on " + links[0]
	}
	if table := number(find(a, rtaTable)); table != unix.RT_TABLE_MAIN {
		name += fmt.Sprintf(" in the table %d", table)
	}
	return name
}

// rank is what an IPv4 route has in common with those among which the order decides: where it
// goes to, its table and its metric. It is empty for a route of IPv6, which has no equals:
// such routes become one with several hops.
func (e Entry) rank() string {
	const tos = 3
	if len(e.Body) < route.header || e.Body[0] != unix.AF_INET {
		return ""
	}
	attributes, err := netlink.UnmarshalAttributes(e.Body[route.header:])
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%s/%d tos %d table %d metric %d", ip(find(attributes, rtaDst)), e.Body[1], e.Body[tos], number(find(attributes, rtaTable)), number(find(attributes, rtaPriority)))
}

// entries are those of a kind that count.
func (c *conn) entries(k kind) (found []Entry, err error) {
	messages, err := c.Execute(netlink.Message{Header: netlink.Header{Type: k.get, Flags: netlink.Request | netlink.Dump}, Data: make([]byte, k.header)})
	if err != nil {
		return nil, fmt.Errorf("each %s: %w", k.kind, err)
	}
	for _, m := range messages {
		if len(m.Data) < k.header || m.Header.Type != k.add {
			continue
		}
		header := slices.Clone(m.Data[:k.header])
		attributes, err := netlink.UnmarshalAttributes(m.Data[k.header:])
		if err != nil {
			return nil, fmt.Errorf("each %s: %w", k.kind, err)
		}
		if !k.ours(header, attributes) {
			continue
		}
		e, err := c.entry(k, header, attributes)
		if len(c.only) > 0 && (errors.Is(err, errNextHop) || slices.ContainsFunc(e.Links, func(link string) bool { return !c.carries(link) })) {
			continue
		}
		if err != nil {
			return nil, err
		}
		found = append(found, e)
	}
	return found, nil
}

var errNextHop = errors.New("it has a route by a next hop of its own (`ip nexthop`), which is not carried: make the route without it, or move the workload offline")

// entry is one, without numbers that mean something on this host only.
func (c *conn) entry(k kind, header []byte, attributes []netlink.Attribute) (e Entry, err error) {
	lift := func(b []byte) error { // b is a number of an interface
		n := number(b)
		name, ok := c.names[int(n)]
		if n != 0 && !ok {
			return errors.New("an interface came or went while the network was read: try again")
		}
		e.Links = append(e.Links, name)
		clear(b)
		return nil
	}
	if k.link != none {
		if err := lift(header[k.link:][:4]); err != nil {
			return e, err
		}
	}
	still(k, header)
	kept := attributes[:0]
	for _, a := range attributes {
		a.Data = slices.Clone(a.Data)
		switch {
		case slices.Contains(k.volatile, a.Type):
			continue
		case k.kind == address.kind && a.Type == ifaFlags:
			binary.NativeEndian.PutUint32(a.Data, uint32(uint(number(a.Data))&ifaKeptFlags))
		case slices.Contains(k.links, a.Type):
			err = lift(a.Data)
		case k.kind == route.kind && a.Type == rtaMultipath:
			err = eachHop(a.Data, lift)
		case k.kind == route.kind && a.Type == rtaNexthop:
			err = errNextHop
		}
		if err != nil {
			return e, err
		}
		kept = append(kept, a)
	}
	packed, err := netlink.MarshalAttributes(kept)
	if err != nil {
		return e, err
	}
	e.Name, e.Body = k.name(header, kept, e.Links), append(header, packed...)
	return e, nil
}

// still clears the flags of a header that are an entry's state and not its
// definition.
func still(k kind, header []byte) {
	flags := header[unix.SizeofRtMsg-4:]
	switch k.kind {
	case address.kind:
		header[2] &= byte(ifaKeptFlags & 0xff)
	case route.kind:
		binary.NativeEndian.PutUint32(flags, number(flags)&onlink)
	case rule.kind:
		binary.NativeEndian.PutUint32(flags, number(flags)&(rulePermanent|ruleInvert))
	}
}

// eachHop gives f the number of the interface of each hop of a route that has several.
func eachHop(b []byte, f func([]byte) error) error {
	for len(b) >= hopLen {
		n := int(binary.NativeEndian.Uint16(b))
		if n < hopLen || n > len(b) {
			break
		}
		if err := f(b[4:8]); err != nil {
			return err
		}
		b[2] &= onlink // its flags
		b = b[min((n+3)&^3, len(b)):]
	}
	return nil
}

// numbered is the entry with the numbers that its interfaces have here.
func (e Entry) numbered(k kind, names map[int]string) ([]byte, error) {
	links := e.Links
	put := func(b []byte) error {
		if len(links) == 0 {
			return errors.New("the source sent an entry with fewer interfaces than it needs")
		}
		name := links[0]
		links = links[1:]
		if name == "" {
			return nil
		}
		for n, each := range names {
			if each == name {
				binary.NativeEndian.PutUint32(b, uint32(n))
				return nil
			}
		}
		return fmt.Errorf("%s needs the interface %s, which the workload does not have here: have the engine make it, or move the workload offline", e.Name, name)
	}
	body := slices.Clone(e.Body)
	if len(body) < k.header {
		return nil, errors.New("the source sent an entry that is none")
	}
	if k.link != none {
		if err := put(body[k.link:][:4]); err != nil {
			return nil, err
		}
	}
	attributes, err := netlink.UnmarshalAttributes(body[k.header:])
	if err != nil {
		return nil, err
	}
	for _, a := range attributes {
		switch {
		case slices.Contains(k.links, a.Type) && len(a.Data) == 4:
			err = put(a.Data)
		case k.kind == route.kind && a.Type == rtaMultipath:
			err = eachHop(a.Data, put)
		}
		if err != nil {
			return nil, err
		}
	}
	packed, err := netlink.MarshalAttributes(attributes)
	return append(body[:k.header:k.header], packed...), err
}

// standIn makes an interface that stands for one of the workload's, or brings up the
// loopback.
func (c *conn) standIn(name string) error {
	header := make([]byte, unix.SizeofIfInfomsg)
	binary.NativeEndian.PutUint32(header[8:], unix.IFF_UP)
	binary.NativeEndian.PutUint32(header[12:], unix.IFF_UP)
	flags := netlink.Request | netlink.Acknowledge
	e := netlink.NewAttributeEncoder()
	e.String(unix.IFLA_IFNAME, name)
	if name == "lo" {
		binary.NativeEndian.PutUint32(header[4:], 1)
	} else {
		flags |= netlink.Create | netlink.Excl
		e.Nested(unix.IFLA_LINKINFO, func(e *netlink.AttributeEncoder) error {
			e.String(unix.IFLA_INFO_KIND, "bridge")
			return nil
		})
	}
	attributes, err := e.Encode()
	if err != nil {
		return err
	}
	if _, err := c.Execute(netlink.Message{Header: netlink.Header{Type: unix.RTM_NEWLINK, Flags: flags}, Data: append(header, attributes...)}); err != nil {
		return fmt.Errorf("the interface %s to try it with: %w", name, err)
	}
	return nil
}
