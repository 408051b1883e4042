package ownnet

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"slices"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Link is an interface of the namespace, as a program in it can change it. The engine
// makes the interface, and knows nothing of such a change.
type Link struct {
	Name    string `json:"name"`
	MTU     uint32 `json:"mtu"`
	Queue   uint32 `json:"queue"`             // packets that wait to be sent
	Flags   uint32 `json:"flags"`             // of linkFlags
	Address []byte `json:"address,omitempty"` // of the hardware; none: it is the host's interface's own
}

// linkFlags are the flags of an interface that can be chosen.
var linkFlags = []struct {
	bit  uint32
	name string
}{
	{unix.IFF_UP, "up"}, {unix.IFF_NOARP, "without ARP"}, {unix.IFF_PROMISC, "promiscuous"}, {unix.IFF_ALLMULTI, "for all of multicast"}, {unix.IFF_MULTICAST, "for multicast"},
}

func chosenFlags() (mask uint32) {
	for _, f := range linkFlags {
		mask |= f.bit
	}
	return mask
}

// hostsAddress are kinds of interfaces that have the hardware address of the host's own.
var hostsAddress = []string{"ipvlan", "ipvtap"}

// interfaces are those of the thread's namespace, by number.
func (c *conn) interfaces() (map[int]Link, error) {
	messages, err := c.Execute(netlink.Message{Header: netlink.Header{Type: unix.RTM_GETLINK, Flags: netlink.Request | netlink.Dump}, Data: make([]byte, unix.SizeofIfInfomsg)})
	if err != nil {
		return nil, fmt.Errorf("the interfaces: %w", err)
	}
	found := map[int]Link{}
	for _, m := range messages {
		if len(m.Data) < unix.SizeofIfInfomsg {
			return nil, os.ErrInvalid
		}
		attributes, err := netlink.UnmarshalAttributes(m.Data[unix.SizeofIfInfomsg:])
		if err != nil {
			return nil, fmt.Errorf("the interfaces: %w", err)
		}
		link := Link{
			Name:  text(find(attributes, unix.IFLA_IFNAME)),
			MTU:   number(find(attributes, unix.IFLA_MTU)),
			Queue: number(find(attributes, unix.IFLA_TXQLEN)),
			Flags: number(m.Data[8:12]) & chosenFlags(),
		}
		if info, err := netlink.UnmarshalAttributes(find(attributes, unix.IFLA_LINKINFO)); err == nil && link.Name != "lo" && !slices.Contains(hostsAddress, text(find(info, unix.IFLA_INFO_KIND))) {
			link.Address = find(attributes, unix.IFLA_ADDRESS)
		}
		found[int(number(m.Data[4:8]))] = link
	}
	return found, nil
}

// text is a word of the kernel's without its end.
func text(b []byte) string { return string(bytes.TrimRight(b, "\x00")) }

// change is what an interface here is to become.
type change struct {
	name       string // in words
	header     [2]uint32
	attributes func(*netlink.AttributeEncoder)
}

// changes are those that make the interface here as it is on the source.
func (l Link) changes(want Link) (found []change) {
	attribute := func(words string, put func(*netlink.AttributeEncoder)) {
		found = append(found, change{name: words + " on " + want.Name, attributes: put})
	}
	if l.MTU != want.MTU {
		attribute(fmt.Sprintf("an MTU of %d", want.MTU), func(e *netlink.AttributeEncoder) { e.Uint32(unix.IFLA_MTU, want.MTU) })
	}
	if l.Queue != want.Queue {
		attribute(fmt.Sprintf("a queue of %d packets", want.Queue), func(e *netlink.AttributeEncoder) { e.Uint32(unix.IFLA_TXQLEN, want.Queue) })
	}
	if len(want.Address) > 0 && len(l.Address) > 0 && !bytes.Equal(l.Address, want.Address) {
		attribute("the hardware address "+net.HardwareAddr(want.Address).String(), func(e *netlink.AttributeEncoder) { e.Bytes(unix.IFLA_ADDRESS, want.Address) })
	}
	for _, f := range linkFlags {
		if has := want.Flags & f.bit; l.Flags&f.bit != has {
			words := want.Name + " " + f.name
			if has == 0 {
				words = want.Name + " not " + f.name
			}
			found = append(found, change{name: words, header: [2]uint32{has, f.bit}})
		}
	}
	return found
}

// mendLinks makes the interfaces here as they are on the source. What a source of an
// older version does not tell stays as it is.
func (c *conn) mendLinks(want []Link) (changed []string, err error) {
	if len(want) == 0 {
		return nil, nil
	}
	here, err := c.interfaces()
	if err != nil {
		return nil, err
	}
	for _, w := range want {
		number, link, ok := numberOf(here, w.Name)
		if !ok {
			return changed, fmt.Errorf("the interface %s, which the workload has on the source, is missing here: have the engine make it, or move the workload offline", w.Name)
		}
		for _, each := range link.changes(w) {
			if err := c.change(number, each); err != nil {
				return changed, fmt.Errorf("%s, which the workload has on the source, cannot be had here: make the network here as it is there, or move the workload offline: %w", each.name, err)
			}
			changed = append(changed, each.name)
		}
	}
	return changed, nil
}

func numberOf(links map[int]Link, name string) (int, Link, bool) {
	for n, link := range links {
		if link.Name == name {
			return n, link, true
		}
	}
	return 0, Link{}, false
}

func (c *conn) change(number int, wanted change) error {
	header := make([]byte, unix.SizeofIfInfomsg)
	binary.NativeEndian.PutUint32(header[4:], uint32(number))
	binary.NativeEndian.PutUint32(header[8:], wanted.header[0])
	binary.NativeEndian.PutUint32(header[12:], wanted.header[1])
	e := netlink.NewAttributeEncoder()
	if wanted.attributes != nil {
		wanted.attributes(e)
	}
	attributes, err := e.Encode()
	if err != nil {
		return err
	}
	_, err = c.Execute(netlink.Message{Header: netlink.Header{Type: unix.RTM_NEWLINK, Flags: netlink.Request | netlink.Acknowledge}, Data: append(header, attributes...)})
	return err
}
