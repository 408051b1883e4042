// Package floating moves the addresses that a workload's published ports have on its host,
// and the connections through them.
//
// A port that is published on an address of its own lives in three parts of the host: the
// address on an interface, the engine's rules that lead a new connection to the workload,
// and the kernel's entry of each connection that has been led there. The rules are the
// engine's, which makes them for the workload on the destination too. This package carries
// the other two: addresses (Bring, Take) and connections (Read, Write, Forget). And it loosens
// the entries of connections that a host knows from before (Loosen).
//
// An address is where the workload may run, and on one host only. A host that has the
// address and no entry for a connection answers its packets with a reset, so the entries
// precede the address.
package floating

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/network"
)

// An Address is one that the workload's published ports have, and its place on this host.
type Address struct {
	Prefix    netip.Prefix `json:"address"` // with the length of the segment's prefix
	Interface string       `json:"interface"`
	Label     string       `json:"label,omitempty"`     // of IPv4, where it differs from the interface
	Broadcast netip.Addr   `json:"broadcast,omitzero"`  // of IPv4, where it has one
	NoPrefix  bool         `json:"no_prefix,omitempty"` // it makes no route to the segment
}

// Fault is the reason why an address cannot be one on an interface; empty: it can.
func (a Address) Fault() string {
	switch {
	case !a.Prefix.IsValid():
		return "an address without a prefix"
	case a.Prefix.Addr().IsUnspecified() || a.Prefix.Addr().IsLoopback() || a.Prefix.Addr().IsMulticast() || a.Prefix.Addr().IsLinkLocalUnicast():
		return fmt.Sprintf("%s cannot float", a.Prefix.Addr())
	case a.Interface == "" || len(a.Interface) >= unix.IFNAMSIZ:
		return fmt.Sprintf("the interface %q", a.Interface)
	}
	return ""
}

// Bring puts on this host the addresses that are not on it yet. None is looked for on the
// segment first: the caller knows that no other host has it.
func Bring(all []Address) error {
	for _, a := range all {
		here, err := on(a.Prefix.Addr())
		if err != nil {
			return err
		}
		if len(here) > 0 {
			continue
		}
		if err := change(unix.RTM_NEWADDR, netlink.Create|netlink.Excl, a); err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("floating: adding %s to %s: %w", a.Prefix, a.Interface, err)
		}
	}
	return nil
}

// Announce tells the segments of the addresses that are here. One that was taken since may
// be another host's, which has announced it.
func Announce(all []Address) (failed error) {
	for _, a := range all {
		here, err := on(a.Prefix.Addr())
		if err == nil && len(here) > 0 {
			err = network.AnnounceOn(a.Interface, a.Prefix.Addr())
		}
		failed = errors.Join(failed, err)
	}
	return failed
}

// Take removes the addresses from this host, from whichever interface they are on. It may
// be called again.
func Take(all []Address) error {
	for _, a := range all {
		here, err := on(a.Prefix.Addr())
		if err != nil {
			return err
		}
		for _, found := range here {
			if err := change(unix.RTM_DELADDR, 0, found); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
				return fmt.Errorf("floating: removing %s from %s: %w", found.Prefix, found.Interface, err)
			}
		}
		// The kernel may not know one by that name, such as one with a peer.
		if here, err = on(a.Prefix.Addr()); err != nil {
			return err
		} else if len(here) > 0 {
			return fmt.Errorf("floating: %s cannot be taken from %s: remove it there by hand", a.Prefix.Addr(), here[0].Interface)
		}
	}
	return nil
}

// Free is an error where this host cannot take the addresses, or has one of them already.
func Free(all []Address) error {
	for _, a := range all {
		here, err := on(a.Prefix.Addr())
		if err != nil {
			return err
		}
		if len(here) > 0 {
			return fmt.Errorf("floating: %s is on %s of this host already: remove it there: `ip address del %s dev %s`", a.Prefix.Addr(), here[0].Interface, here[0].Prefix, here[0].Interface)
		}
		i, err := net.InterfaceByName(a.Interface)
		if err != nil {
			return fmt.Errorf("floating: the interface %s for %s: %w", a.Interface, a.Prefix, err)
		}
		if i.Flags&net.FlagUp == 0 {
			return fmt.Errorf("floating: the interface %s for %s is down: set it up first", a.Interface, a.Prefix)
		}
	}
	return nil
}

// Removable is an error where this host does not have one of the addresses, or where others
// would go with it: the kernel removes the secondary addresses of a subnet with its first one.
func Removable(all []Address) error {
	for _, a := range all {
		here, err := on(a.Prefix.Addr())
		if err != nil {
			return err
		}
		if len(here) == 0 {
			return fmt.Errorf("floating: %s is not on this host: add it: `ip address add %s dev %s`", a.Prefix.Addr(), a.Prefix, a.Interface)
		}
		for _, found := range here {
			others, err := second(found)
			if err != nil {
				return err
			}
			if len(others) > 0 {
				return fmt.Errorf("floating: %s is the first address of its subnet on %s, and the kernel would remove %s with it: add it after the host's own, or as %s/32",
					found.Prefix, found.Interface, others[0].Prefix, found.Prefix.Addr())
			}
		}
	}
	return nil
}

// second are the secondary addresses that the kernel removes with this one.
func second(a Address) (others []Address, err error) {
	if !a.Prefix.Addr().Is4() {
		return nil, nil
	}
	all, err := addresses()
	if err != nil {
		return nil, err
	}
	for _, o := range all {
		if o.Interface == a.Interface && o.Prefix.Masked() == a.Prefix.Masked() && o.Prefix != a.Prefix {
			others = append(others, o.Address)
		}
	}
	own := slices.IndexFunc(all, func(o listed) bool { return o.Interface == a.Interface && o.Prefix == a.Prefix })
	if own < 0 || all[own].secondary {
		return nil, nil
	}
	return others, nil
}

// on are the places that this host has an address on.
func on(addr netip.Addr) (found []Address, err error) {
	all, err := addresses()
	if err != nil {
		return nil, err
	}
	for _, a := range all {
		if a.Prefix.Addr() == addr {
			found = append(found, a.Address)
		}
	}
	return found, nil
}
