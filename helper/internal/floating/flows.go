package floating

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// A Flow is a connection from outside that the host leads to the workload: the kernel's
// entry of it, as far as another host needs it.
type Flow struct {
	Protocol uint8          `json:"protocol"`
	Client   netip.AddrPort `json:"client"`
	Public   netip.AddrPort `json:"public"` // the floating address
	Inner    netip.AddrPort `json:"inner"`  // the workload's own
	Status   uint32         `json:"status"`
	Timeout  uint32         `json:"timeout"` // seconds
	Mark     uint32         `json:"mark,omitempty"`
	TCP      *TCP           `json:"tcp,omitempty"`
}

// TCP is the state of a flow, from the client and from the workload.
type TCP struct {
	State  uint8    `json:"state"`
	Scales [2]uint8 `json:"scales"`
	Flags  [2]uint8 `json:"flags"`
}

// Bits of an entry's status, and states of TCP, as the kernel numbers them.
const (
	seenReply = 1 << 1
	assured   = 1 << 2
	confirmed = 1 << 3
	sourceNAT = 1 << 4
	destNAT   = 1 << 5

	tcpSynSent     = 1
	tcpSynRecv     = 2
	tcpEstablished = 3
	tcpTimeWait    = 7
	tcpClose       = 8
	tcpSynSent2    = 9

	windowScale = 1 << 0
	selective   = 1 << 1
	closeInit   = 1 << 2
	liberal     = 1 << 3
)

// Read are the connections to these addresses that this host leads to the workload, which
// has the inner ones. A connection whose handshake is under way is none: its client asks
// again. One that both sides have ended is none either. Entries that lead to others are left of workloads that had the address before:
// the kernel keeps them for days.
func Read(all []Address, inner func(netip.Addr) bool) ([]Flow, error) {
	found, err := entries(all)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(found, func(f Flow) bool {
		if f.Status&destNAT == 0 || f.Status&sourceNAT != 0 || !inner(f.Inner.Addr()) {
			return true
		}
		return f.TCP != nil && slices.Contains([]uint8{0, tcpSynSent, tcpSynRecv, tcpTimeWait, tcpClose, tcpSynSent2}, f.TCP.State)
	}), nil
}

// FromOthers are the connections without those of clients on this host, which cannot be
// carried: its own kernel leads them elsewhere.
func FromOthers(flows []Flow) ([]Flow, error) {
	own, err := addresses()
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Clone(flows), func(f Flow) bool {
		return slices.ContainsFunc(own, func(a listed) bool { return a.Prefix.Addr() == f.Client.Addr() })
	}), nil
}

// Check is an error where one of the connections is not to one of these addresses, or not
// to the workload, which has the inner ones: a peer may have made them up.
func Check(flows []Flow, all []Address, inner func(netip.Addr) bool) error {
	for _, f := range flows {
		switch {
		case !slices.ContainsFunc(all, func(a Address) bool { return a.Prefix.Addr() == f.Public.Addr() }):
			return fmt.Errorf("floating: a connection is said to be to %s, which is not the workload's", f.Public)
		case !inner(f.Inner.Addr()):
			return fmt.Errorf("floating: a connection is said to lead to %s, which is not the workload's", f.Inner)
		case f.Protocol != unix.IPPROTO_TCP && f.Protocol != unix.IPPROTO_UDP:
			return fmt.Errorf("floating: the connection of %s is of protocol %d, and TCP and UDP are carried", f.Client, f.Protocol)
		}
	}
	return nil
}

// Write makes the entries on this host. Those that it has from before are replaced: it
// has not had the address since.
func Write(flows []Flow) error {
	c, err := dial()
	if err != nil {
		return err
	}
	defer c.Close()
	for _, f := range flows {
		if err := remove(c, f); err != nil {
			return err
		}
		body, err := f.encode()
		if err == nil {
			err = c.do(newEntry, netlink.Create|netlink.Excl, f.family(), body)
		}
		if err != nil {
			return fmt.Errorf("floating: the entry of the connection of %s to %s: %w", f.Client, f.Public, err)
		}
	}
	return nil
}

// Forget removes all entries of connections to these addresses that lead to a workload.
// The host does not have the addresses any more, or not yet.
func Forget(all []Address) error {
	if len(all) == 0 {
		return nil
	}
	found, err := entries(all)
	if err != nil {
		return err
	}
	c, err := dial()
	if err != nil {
		return err
	}
	defer c.Close()
	for _, f := range found {
		if f.Status&destNAT == 0 {
			continue
		}
		if err := remove(c, f); err != nil {
			return err
		}
	}
	return nil
}

func remove(c conn, f Flow) error {
	body, err := f.original()
	if err == nil {
		err = c.do(deleteEntry, 0, f.family(), body)
	}
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("floating: removing the entry of the connection of %s to %s: %w", f.Client, f.Public, err)
	}
	return nil
}

// entries are those of connections to the addresses.
func entries(all []Address) (found []Flow, err error) {
	c, err := dial()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	for _, a := range all {
		body, err := onlyTo(a.Prefix.Addr())
		if err != nil {
			return nil, err
		}
		answers, err := c.Execute(netlink.Message{
			Header: netlink.Header{Type: getEntry, Flags: netlink.Request | netlink.Dump},
			Data:   append(generic(familyOf(a.Prefix.Addr())), body...),
		})
		if err != nil {
			return nil, fmt.Errorf("floating: this host's connections: %w", needsModule(err))
		}
		for _, m := range answers {
			f, err := decode(m.Data)
			if err != nil {
				return nil, fmt.Errorf("floating: this host's connections: %w", err)
			}
			if f.Public.Addr() == a.Prefix.Addr() {
				found = append(found, f)
			}
		}
	}
	return found, nil
}
