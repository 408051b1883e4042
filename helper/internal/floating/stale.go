package floating

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/network"
)

// A host to which a workload comes back may know its connections from before: the kernel
// keeps an entry for days. In the meantime both sides have sent more than the entry's
// windows allow, so that the kernel calls each packet invalid, and an engine's rules drop
// those. Of bridged packets that is so where bridge-nf-call-iptables is set, as on a host
// with Docker.

// trackedFile says how many connections this host knows.
const trackedFile = "/proc/sys/net/netfilter/nf_conntrack_count"

// Loosen has the entries that this host has of these connections let their packets pass,
// whatever their numbers, as those that Write makes. None is made, and none is removed: a
// kernel may be told not to begin one in the middle of a connection. It returns how many
// there were.
func Loosen(all []network.Ends) (loosened int, err error) {
	if len(all) == 0 {
		return 0, nil
	}
	c, err := dial()
	if err != nil {
		return 0, err
	}
	defer c.Close()
	for _, e := range all {
		body, err := loose(e)
		if err == nil {
			err = c.do(newEntry, 0, familyOf(e.Local.Addr()), body)
		}
		if errors.Is(err, unix.ENOENT) {
			continue
		} else if err != nil {
			return loosened, fmt.Errorf("floating: this host's entry of the connection of %s to %s: %w", e.Local, e.Remote, needsModule(err))
		}
		loosened++
	}
	return loosened, nil
}

// Tracks is false of a host that knows no connections, which has nothing to loosen. A
// question about one would load the module that answers.
func Tracks() bool {
	text, err := os.ReadFile(trackedFile)
	return err == nil && strings.TrimSpace(string(text)) != "0"
}

// loose is a change of the entry. The kernel finds it by either of its directions.
func loose(e network.Ends) ([]byte, error) {
	ae := netlink.NewAttributeEncoder()
	ae.ByteOrder = binary.BigEndian
	tuple(ae, ctaOriginal, unix.IPPROTO_TCP, e.Local, e.Remote)
	ae.Nested(ctaProtocol, func(ae *netlink.AttributeEncoder) error {
		ae.Nested(protocolTCP, func(ae *netlink.AttributeEncoder) error {
			ae.Bytes(tcpFlagsOriginal, []byte{liberal, liberal})
			ae.Bytes(tcpFlagsReply, []byte{liberal, liberal})
			return nil
		})
		return nil
	})
	return ae.Encode()
}
