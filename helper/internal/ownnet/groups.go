package ownnet

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/livefleet/handover/helper/internal/network"
)

// Groups are memberships in multicast groups: how many there are, by the interface and the
// group's address. The kernel has some itself, as that of a router; a program may have one more.
// No dump has those of its sockets.
type Groups map[string]int

// everyHost are the groups that every interface is in.
var everyHost = []string{"224.0.0.1", "ff01::1", "ff02::1"}

// solicited is the beginning of groups that follow from the addresses of an interface.
var solicited = netip.MustParsePrefix("ff02::1:ff00:0/104")

// ReadGroups reads those of the network namespace at path, but for those that every host is
// in. Only are the interfaces that are carried; none of them named: all are.
func ReadGroups(path string, only []string) (found Groups, err error) {
	err = network.Inside(path, func() error {
		found, err = groups("/proc/thread-self/net")
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("ownnet: multicast groups: %w", err)
	}
	for name := range found {
		link, _, _ := strings.Cut(name, " ")
		if len(only) > 0 && link != "lo" && !slices.Contains(only, link) {
			delete(found, name)
		}
	}
	return found, nil
}

// Lost are memberships of which there are fewer here, in words.
func (g Groups) Lost(here Groups) (lost []string) {
	for name, users := range g {
		if here[name] < users {
			link, group, _ := strings.Cut(name, " ")
			lost = append(lost, group+" on "+link)
		}
	}
	slices.Sort(lost)
	return lost
}

func groups(folder string) (found Groups, err error) {
	found = Groups{}
	for name, read := range map[string]func(string) error{"igmp": found.readIPv4, "igmp6": found.readIPv6} {
		text, err := os.ReadFile(filepath.Join(folder, name))
		if errors.Is(err, fs.ErrNotExist) { // a kernel without IPv6, or without multicast
			continue
		}
		if err == nil {
			err = read(string(text))
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return found, nil
}

// readIPv4 reads them as /proc/net/igmp has them.
func (g Groups) readIPv4(text string) error {
	link := ""
	lines := strings.Split(text, "\n")
	for _, line := range lines[min(1, len(lines)):] {
		f := strings.Fields(line)
		switch {
		case len(f) < 2:
		case line[0] != '\t': // 2  eth0  :  2  V3
			link = strings.TrimSuffix(f[1], ":")
		default: // the address as the host has its numbers, and the members
			b, err := hex.DecodeString(f[0])
			if err != nil || len(b) != 4 {
				return fmt.Errorf("a group %q", f[0])
			}
			binary.NativeEndian.PutUint32(b, binary.BigEndian.Uint32(b))
			if err := g.note(link, b, f[1]); err != nil {
				return err
			}
		}
	}
	return nil
}

// readIPv6 reads them as /proc/net/igmp6 has them.
func (g Groups) readIPv6(text string) error {
	for line := range strings.Lines(text) {
		f := strings.Fields(line) // 2  eth0  ff02…  1  0000000C  0
		if len(f) < 4 {
			continue
		}
		b, err := hex.DecodeString(f[2])
		if err != nil || len(b) != 16 {
			return fmt.Errorf("a group %q", f[2])
		}
		if err := g.note(f[1], b, f[3]); err != nil {
			return err
		}
	}
	return nil
}

func (g Groups) note(link string, address []byte, members string) error {
	a, _ := netip.AddrFromSlice(address)
	n, err := strconv.Atoi(members)
	if err != nil {
		return fmt.Errorf("%q members of %s", members, a)
	}
	if !slices.Contains(everyHost, a.String()) && !solicited.Contains(a) {
		g[link+" "+a.String()] = n
	}
	return nil
}
