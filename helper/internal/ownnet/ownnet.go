// Package ownnet carries a workload's objects in its network namespace: the settings of
// its interfaces, addresses, routes, rules for routes, and tables of nftables.
//
// The container engine makes interfaces with the addresses that it knows of, on the
// destination as on the source. No dump holds the workload's own additions and removals:
// to CRIU the namespace is the engine's. So the source reads all of it while the
// workload runs (Read), and once more when it is frozen. The destination makes its own
// namespace like that (Apply), before there is a socket in it that is bound to such an
// address, and looks again before the first instruction of the workload.
//
// Left out is everything that the kernel itself makes: routes of the table local,
// link-local addresses, and the results of router advertisements. Interfaces have
// numbers that differ from host to host, so all that points to one names it.
package ownnet

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/network"
)

// State is the content of a namespace.
type State struct {
	Addresses []Entry  `json:"addresses,omitempty"`
	Routes    []Entry  `json:"routes,omitempty"`
	Rules     []Entry  `json:"rules,omitempty"`
	Tables    []Table  `json:"tables,omitempty"`
	Links     []string `json:"links,omitempty"` // the interfaces there are
	Settings  []Link   `json:"settings,omitempty"`
}

// Entry is one address, route or rule, as the kernel tells and takes it.
type Entry struct {
	Name  string   `json:"name"`            // in words
	Body  []byte   `json:"body"`            // without numbers of interfaces
	Links []string `json:"links,omitempty"` // names of these, in their order
}

func (e Entry) same(o Entry) bool {
	return slices.Equal(e.Body, o.Body) && slices.Equal(e.Links, o.Links)
}

// Read reads the namespace at path. Where something in it cannot be carried, that is an
// error; unless only these interfaces are to be carried, with what is on them: then all
// else is left out.
func Read(path string, only []string) (s State, err error) {
	err = network.Inside(path, func() (err error) {
		s, err = read(only)
		return err
	})
	if err != nil {
		return s, fmt.Errorf("ownnet: %w", err)
	}
	return s, nil
}

func read(only []string) (s State, err error) {
	c, err := open()
	if err != nil {
		return s, err
	}
	defer c.Close()
	c.only = only
	if s, err = c.state(); err != nil {
		return s, err
	}
	s.Tables, err = tables(len(only) > 0)
	return s, err
}

// applyAtMost is how often differences are mended: a route may come or go with an
// address.
const applyAtMost = 4

// Apply makes the namespace at path like the source's, checks that it is, and returns
// its changes, in words. had are the tables that an earlier call has given it, where
// nothing has run in it since: only their names are looked at then, for nft takes longer
// than all else together.
func Apply(path string, want State, had []Table) (changed []string, err error) {
	err = network.Inside(path, func() error {
		changed, err = apply(want, had)
		return err
	})
	if err != nil {
		return changed, fmt.Errorf("ownnet: %w", err)
	}
	return changed, nil
}

// Rehearse tries all of it in an untouched namespace of this host, with interfaces of
// these names: a failure there would come when the workload stands still.
func Rehearse(want State) error {
	err := network.InUntouched(func() error {
		c, err := open()
		if err != nil {
			return err
		}
		defer c.Close()
		for _, name := range want.Links {
			if err := c.standIn(name); err != nil {
				return err
			}
		}
		_, err = apply(want, nil)
		return err
	})
	if err != nil {
		return fmt.Errorf("ownnet: %w", err)
	}
	return nil
}

func apply(want State, had []Table) (changed []string, err error) {
	c, err := open()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	// First of all: an address or a route needs an interface that is up.
	if changed, err = c.mendLinks(want.Settings); err != nil {
		return changed, err
	}
	for round := 0; ; round++ {
		here, err := c.state()
		if err != nil {
			return changed, err
		}
		differs := differences(here, want)
		if len(differs) == 0 {
			break
		}
		for _, d := range differs {
			if !slices.Contains(changed, d.String()) {
				changed = append(changed, d.String())
			}
		}
		if round == applyAtMost {
			return changed, fmt.Errorf("the network here does not become as it is on the source: %s stays otherwise: have the engine make it, or move the workload offline", differs[0].Name)
		}
		var failed error
		for _, d := range differs {
			failed = errors.Join(failed, c.mend(d))
		}
		if failed != nil && round == applyAtMost-1 {
			return changed, failed
		}
	}
	if there, err := names(); err != nil || slices.EqualFunc(want.Tables, had, Table.same) && slices.EqualFunc(want.Tables, there, Table.named) {
		return changed, err
	}
	added, err := applyTables(want.Tables)
	return append(changed, added...), err
}

// difference is an entry that is to come or to go.
type difference struct {
	Entry
	kind kind
	gone bool
}

func (d difference) String() string {
	if d.gone {
		return "without " + d.Name
	}
	return d.Name
}

// differences are those of here to want, in an order in which they can be mended:
// addresses before the routes that need them, routes to a link before those to a gateway.
func differences(here, want State) (found []difference) {
	turned := turned(here.Routes, want.Routes)
	for _, k := range []struct {
		kind       kind
		here, want []Entry
	}{{rule, here.Rules, want.Rules}, {address, here.Addresses, want.Addresses}, {route, here.Routes, want.Routes}} {
		for _, e := range k.here {
			if !slices.ContainsFunc(k.want, e.same) || k.kind.kind == route.kind && turned[e.rank()] {
				found = append(found, difference{e, k.kind, true})
			}
		}
		for _, e := range k.want {
			if !slices.ContainsFunc(k.here, e.same) || k.kind.kind == route.kind && turned[e.rank()] {
				found = append(found, difference{e, k.kind, false})
			}
		}
	}
	slices.SortStableFunc(found, func(a, b difference) int {
		return cmp.Or(cmp.Compare(a.kind.kind, b.kind.kind), cmp.Compare(boolean(b.gone), boolean(a.gone)), cmp.Compare(boolean(a.indirect()), boolean(b.indirect())))
	})
	return found
}

// turned are the ranks whose routes stand in another order here, where the kernel takes the first.
func turned(here, want []Entry) map[string]bool {
	order := func(routes []Entry) map[string][]Entry {
		found := map[string][]Entry{}
		for _, e := range routes {
			if rank := e.rank(); rank != "" {
				found[rank] = append(found[rank], e)
			}
		}
		return found
	}
	found, wanted := map[string]bool{}, order(want)
	for rank, there := range order(here) {
		found[rank] = !slices.EqualFunc(there, wanted[rank], Entry.same)
	}
	return found
}

func (d difference) indirect() bool { return strings.Contains(d.Name, " via ") }

func boolean(b bool) int {
	if b {
		return 1
	}
	return 0
}

// conn is a connection to the kernel's routing, in the thread's namespace.
type conn struct {
	*netlink.Conn
	names map[int]string
	only  []string // interfaces that are carried; none: all
}

func open() (*conn, error) {
	c, err := netlink.Dial(unix.NETLINK_ROUTE, &netlink.Config{})
	if err != nil {
		return nil, fmt.Errorf("the kernel's routing tables: %w", err)
	}
	return &conn{Conn: c}, nil
}

func (c *conn) state() (s State, err error) {
	links, err := c.interfaces()
	if err != nil {
		return s, err
	}
	c.names = map[int]string{}
	for number, link := range links {
		if c.names[number] = link.Name; c.carries(link.Name) {
			s.Links, s.Settings = append(s.Links, link.Name), append(s.Settings, link)
		}
	}
	slices.Sort(s.Links)
	slices.SortFunc(s.Settings, func(a, b Link) int { return cmp.Compare(a.Name, b.Name) })
	for _, k := range []struct {
		kind kind
		into *[]Entry
	}{{address, &s.Addresses}, {route, &s.Routes}, {rule, &s.Rules}} {
		if *k.into, err = c.entries(k.kind); err != nil {
			return s, err
		}
	}
	return s, nil
}

// carries says whether what is on an interface is carried; what is on none always is.
func (c *conn) carries(link string) bool {
	return len(c.only) == 0 || link == "" || link == "lo" || slices.Contains(c.only, link)
}

// mend lets one entry come or go.
func (c *conn) mend(d difference) error {
	body, err := d.numbered(d.kind, c.names)
	if err != nil {
		return err
	}
	m := netlink.Message{Header: netlink.Header{Type: d.kind.add, Flags: netlink.Request | netlink.Acknowledge | netlink.Create | netlink.Excl}, Data: body}
	if d.kind.kind == route.kind && d.rank() != "" { // behind those of its rank
		m.Header.Flags = netlink.Request | netlink.Acknowledge | netlink.Create | netlink.Append
	}
	if d.gone {
		m.Header = netlink.Header{Type: d.kind.remove, Flags: netlink.Request | netlink.Acknowledge}
	}
	_, err = c.Execute(m)
	switch {
	case err == nil:
		return nil
	case !d.gone && errors.Is(err, unix.EEXIST), d.gone && (errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EADDRNOTAVAIL) || errors.Is(err, unix.ENOENT)):
		return nil // it came or went with another
	}
	return fmt.Errorf("%s, which the workload has on the source, cannot be had here: %w", d, err)
}
