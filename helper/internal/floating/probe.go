package floating

import (
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/network"
)

// Probe finds out whether this kernel can be told of a connection that is led to a
// workload, by doing it in a namespace of its own that goes at once.
func Probe() error {
	return network.InUntouched(func() error {
		a := Address{Prefix: netip.MustParsePrefix("192.0.2.1/32"), Interface: "lo"}
		f := Flow{
			Protocol: unix.IPPROTO_TCP, Client: netip.MustParseAddrPort("192.0.2.2:1024"), Public: netip.AddrPortFrom(a.Prefix.Addr(), 1),
			Inner: netip.MustParseAddrPort("192.0.2.3:1"), Status: seenReply | assured, Timeout: 1, TCP: &TCP{State: tcpEstablished},
		}
		if err := Write([]Flow{f}); err != nil {
			return needsModule(err)
		}
		found, err := Read([]Address{a}, func(netip.Addr) bool { return true })
		if err == nil && (len(found) != 1 || found[0].Inner != f.Inner) {
			err = fmt.Errorf("floating: this kernel was told of a connection, and leads it elsewhere: %+v", found)
		}
		return err
	})
}
