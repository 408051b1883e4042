package floating

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Of IPv4 the kernel lists the connections to one address alone.
func TestTheKernelListsNoOthers(t *testing.T) {
	f := newFleet(t)
	for _, text := range []string{"192.0.2.50", "192.0.2.60"} {
		public := netip.MustParseAddr(text)
		flow := Flow{
			Protocol: unix.IPPROTO_UDP, Client: netip.AddrPortFrom(public.Next(), 9), Public: netip.AddrPortFrom(public, 9), Inner: netip.AddrPortFrom(inner4, 9),
			Status: seenReply, Timeout: 60,
		}
		f.in(first1, func() error { return Write([]Flow{flow}) })
	}
	f.in(first1, func() error {
		c, err := dial()
		if err != nil {
			return err
		}
		defer c.Close()
		body, err := onlyTo(float4.Prefix.Addr())
		if err != nil {
			return err
		}
		answers, err := c.Execute(netlink.Message{
			Header: netlink.Header{Type: getEntry, Flags: netlink.Request | netlink.Dump}, Data: append(generic(unix.AF_INET), body...),
		})
		if err == nil && len(answers) != 1 {
			return fmt.Errorf("%d entries", len(answers))
		} else if err != nil {
			return err
		}
		only, err := decode(answers[0].Data)
		if err == nil && only.Public.Addr() != float4.Prefix.Addr() {
			err = fmt.Errorf("%+v", only)
		}
		return err
	})
}
