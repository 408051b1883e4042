package floating

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/livefleet/handover/helper/internal/network"
)

// bridgedFiles say whether the packets that a bridge of this namespace passes on are tracked.
var bridgedFiles = []string{"/proc/sys/net/bridge/bridge-nf-call-iptables", "/proc/sys/net/bridge/bridge-nf-call-ip6tables"}

// neighbours puts the client beside the workload, on a bridge of the first host that tracks
// what it passes on.
func (f *fleet) neighbours() {
	f.t.Helper()
	if _, err := os.Stat(bridgedFiles[0]); err != nil {
		f.t.Skipf("no bridge of this kernel tracks: %v", err)
	}
	f.ip("-n", f.name(first1), "address", "flush", "dev", "in")
	f.ip("-n", f.name(first1), "link", "add", "bridge", "type", "bridge")
	f.ip("-n", f.name(first1), "link", "add", "beside", "type", "veth", "peer", "name", "eth1", "netns", f.name(client3))
	for _, port := range []string{"in", "beside", "bridge"} {
		f.ip("-n", f.name(first1), "link", "set", port, "up")
	}
	for _, port := range []string{"in", "beside"} {
		f.ip("-n", f.name(first1), "link", "set", port, "master", "bridge")
	}
	f.ip("-n", f.name(client3), "address", "add", "10.9.0.3/24", "dev", "eth1")
	f.ip("-n", f.name(client3), "address", "add", "fd09::3/64", "dev", "eth1", "nodad")
	f.ip("-n", f.name(client3), "link", "set", "eth1", "up")
	f.tracked(true)
}

func (f *fleet) tracked(whether bool) {
	f.t.Helper()
	text := map[bool]string{true: "1", false: "0"}[whether]
	f.in(first1, func() (err error) {
		for _, file := range bridgedFiles {
			err = errors.Join(err, os.WriteFile(file, []byte(text), 0))
		}
		return err
	})
}

// answered counts the connections on which a line comes within a second.
func answered(all []net.Conn) (answers int) {
	for _, c := range all {
		_ = c.SetReadDeadline(time.Now().Add(time.Second))
		if _, err := bufio.NewReader(c).ReadString('\n'); err == nil {
			answers++
		}
	}
	return answers
}

// The packets between two workloads that have left are not seen by the host. It sees them
// again when both have come back.
func TestAConnectionThatComesBackIsKnownFromBefore(t *testing.T) {
	f := newFleet(t)
	f.neighbours()
	var calls []net.Conn
	for _, inner := range []string{"10.9.0.2:80", "[fd09::2]:80"} {
		f.in(client3, func() error {
			c, err := (&net.Dialer{Timeout: 5 * time.Second}).Dial("tcp", inner)
			if err == nil {
				t.Cleanup(func() { c.Close() })
				calls, err = append(calls, c), said(c, "before")
			}
			return err
		})
	}
	// More than the entries' windows allow, both ways.
	away := strings.Repeat("x", 1<<15)
	f.tracked(false)
	for range 8 {
		for _, c := range calls {
			if err := said(c, away); err != nil {
				t.Fatal(err)
			}
		}
	}
	f.tracked(true)
	for _, c := range calls {
		if _, err := fmt.Fprintln(c, "back"); err != nil {
			t.Fatal(err)
		}
	}
	if n := answered(calls); n != 0 {
		t.Fatalf("%d of %d answers came, so this has shown nothing", n, len(calls))
	}
	loosen := func(end string) (n int) {
		all, err := network.Connected("/run/netns/" + f.name(end))
		if err != nil {
			t.Fatal(err)
		}
		f.in(first1, func() (err error) {
			n, err = Loosen(all)
			return err
		})
		return n
	}
	// By either end, whichever side of the entry that is.
	if n := loosen(workload4); n != len(calls) {
		t.Errorf("found %d entries of %d", n, len(calls))
	}
	if n := loosen(client3); n != len(calls) {
		t.Errorf("found %d entries of %d by the other end", n, len(calls))
	}
	for _, c := range calls {
		if err := heard(c, "back"); err != nil {
			t.Errorf("%s stands still: %v", c.RemoteAddr(), err)
		}
		if err := said(c, "after"); err != nil {
			t.Errorf("%s: %v", c.RemoteAddr(), err)
		}
	}
}

// Neither on a host that knows others, nor on one that knows none.
func TestAConnectionThatTheHostDoesNotKnowStaysUnknown(t *testing.T) {
	f := newFleet(t)
	f.in(first1, func() error { return bring(both) })
	if err := said(f.call(float4), "x"); err != nil {
		t.Fatal(err)
	}
	other := Address{Prefix: netip.MustParsePrefix("10.9.0.99/32")}
	for _, n := range []string{first1, second2} {
		f.in(n, func() error {
			loosened, err := Loosen([]network.Ends{{Local: netip.AddrPortFrom(inner4, 80), Remote: netip.AddrPortFrom(other.Prefix.Addr(), 80)}})
			made, e := entries([]Address{other})
			if loosened != 0 || len(made) != 0 {
				t.Errorf("%s: loosened %d, made %+v", n, loosened, made)
			}
			return errors.Join(err, e)
		})
	}
}
