package floating

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/network"
)

// fleet is two hosts and a client on one segment, each a network namespace, and a workload
// behind the NAT of one of the hosts. The client has a namespace of its own.
type fleet struct {
	t      *testing.T
	suffix string
	now    chan struct{} // the workload speaks, unasked
}

const (
	first1, second2, client3 = "a", "b", "c"
	workload4                = "w"
)

var (
	float4 = Address{Prefix: netip.MustParsePrefix("192.0.2.50/24"), Interface: "eth0"}
	float6 = Address{Prefix: netip.MustParsePrefix("2001:db8::50/64"), Interface: "eth0"}
	both   = []Address{float4, float6}
	inner4 = netip.MustParseAddr("10.9.0.2")
	inner6 = netip.MustParseAddr("fd09::2")
	fleets atomic.Int32
)

func isInner(a netip.Addr) bool { return a == inner4 || a == inner6 }

func newFleet(t *testing.T) *fleet {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root: network namespaces")
	}
	f := &fleet{t: t, suffix: fmt.Sprintf("%d-%d", os.Getpid(), fleets.Add(1)), now: make(chan struct{})}
	for _, n := range []string{first1, second2, client3, workload4, "s"} {
		f.ip("netns", "add", f.name(n))
		t.Cleanup(func() { _ = exec.Command("ip", "netns", "delete", f.name(n)).Run() })
		f.ip("-n", f.name(n), "link", "set", "lo", "up")
	}
	f.ip("-n", f.name("s"), "link", "add", "switch", "type", "bridge")
	f.ip("-n", f.name("s"), "link", "set", "switch", "up")
	for i, n := range []string{first1, second2, client3} {
		f.ip("-n", f.name("s"), "link", "add", "to-"+n, "type", "veth", "peer", "name", "eth0", "netns", f.name(n))
		f.ip("-n", f.name("s"), "link", "set", "to-"+n, "master", "switch", "up")
		f.ip("-n", f.name(n), "address", "add", fmt.Sprintf("192.0.2.%d/24", i+1), "dev", "eth0")
		f.ip("-n", f.name(n), "address", "add", fmt.Sprintf("2001:db8::%d/64", i+1), "dev", "eth0", "nodad")
		f.ip("-n", f.name(n), "link", "set", "eth0", "up")
	}
	f.ip("-n", f.name(first1), "link", "add", "in", "type", "veth", "peer", "name", "eth0", "netns", f.name(workload4))
	f.ip("-n", f.name(workload4), "link", "set", "eth0", "up")
	f.ip("-n", f.name(workload4), "address", "add", inner4.String()+"/24", "dev", "eth0")
	f.ip("-n", f.name(workload4), "address", "add", inner6.String()+"/64", "dev", "eth0", "nodad")
	for _, n := range []string{first1, second2} {
		f.in(n, func() error {
			// And a packet in the middle of a connection that the host does not know begins none.
			return errors.Join(os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0), os.WriteFile("/proc/sys/net/ipv6/conf/all/forwarding", []byte("1"), 0),
				os.WriteFile("/proc/sys/net/netfilter/nf_conntrack_tcp_loose", []byte("0"), 0))
		})
		f.in(n, engine)
	}
	f.place(first1)
	f.in(workload4, f.serve)
	return f
}

func (f *fleet) name(n string) string { return "float-" + n + f.suffix }

func (f *fleet) ip(words ...string) {
	f.t.Helper()
	if out, err := exec.Command("ip", words...).CombinedOutput(); err != nil {
		f.t.Fatalf("ip %s: %v: %s", strings.Join(words, " "), err, out)
	}
}

// in runs do in a namespace.
func (f *fleet) in(n string, do func() error) {
	f.t.Helper()
	if err := network.Inside("/run/netns/"+f.name(n), do); err != nil {
		f.t.Fatal(err)
	}
}

// place gives the workload's link the engine's addresses on the host that it is on.
func (f *fleet) place(n string) {
	f.ip("-n", f.name(n), "link", "set", "in", "up")
	f.ip("-n", f.name(n), "address", "add", "10.9.0.1/24", "dev", "in")
	f.ip("-n", f.name(n), "address", "add", "fd09::1/64", "dev", "in", "nodad")
	f.ip("-n", f.name(workload4), "route", "replace", "default", "via", "10.9.0.1")
	f.ip("-n", f.name(workload4), "-6", "route", "replace", "default", "via", "fd09::1")
}

// serve answers every line with itself; the line "later" when it is told to.
func (f *fleet) serve() error {
	l, err := net.Listen("tcp", ":80")
	if err != nil {
		return err
	}
	f.t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				for lines := bufio.NewScanner(c); lines.Scan(); {
					if lines.Text() == "later" {
						<-f.now
					}
					if _, err := fmt.Fprintln(c, lines.Text()); err != nil {
						return
					}
				}
			}()
		}
	}()
	return nil
}

// call is a connection of the client to a floating address.
func (f *fleet) call(a Address) (c net.Conn) {
	f.t.Helper()
	f.in(client3, func() (err error) {
		d := net.Dialer{Timeout: 5 * time.Second}
		c, err = d.Dial("tcp", netip.AddrPortFrom(a.Prefix.Addr(), 80).String())
		return err
	})
	f.t.Cleanup(func() { c.Close() })
	return c
}

// said sends a line and hears it.
func said(c net.Conn, line string) error {
	if _, err := fmt.Fprintln(c, line); err != nil {
		return err
	}
	return heard(c, line)
}

func heard(c net.Conn, line string) error {
	_ = c.SetReadDeadline(time.Now().Add(3 * time.Second))
	heard, err := bufio.NewReader(c).ReadString('\n')
	if err == nil && heard != line+"\n" {
		err = fmt.Errorf("heard %q", heard)
	}
	return err
}

// bring is Bring as a session does it: the segment is told.
func bring(all []Address) error { return errors.Join(Bring(all), Announce(all)) }

// move takes the workload from one host to the other, in the order of a session; without
// carry, its connections are left behind.
func (f *fleet) move(from, to string, all []Address, carry bool) {
	f.t.Helper()
	var flows []Flow
	f.in(to, func() error { return Free(all) })
	f.in(from, func() (err error) {
		if err := Removable(all); err != nil {
			return err
		}
		flows, err = Read(all, isInner)
		return err
	})
	f.ip("-n", f.name(from), "link", "set", "in", "netns", f.name(to))
	f.place(to)
	if !carry {
		flows = nil
	}
	f.in(to, func() error { return errors.Join(Check(flows, all, isInner), Write(flows)) })
	f.in(from, func() error { return Take(all) })
	f.in(to, func() error { return bring(all) })
	f.in(from, func() error { return Forget(all) })
}

func TestConnectionsLiveThroughMovesThereAndBack(t *testing.T) {
	f := newFleet(t)
	f.in(first1, func() error { return bring(both) })
	var calls []net.Conn
	for _, a := range both {
		c := f.call(a)
		if err := said(c, "before"); err != nil {
			t.Fatal(err)
		}
		calls = append(calls, c)
	}
	from, to := first1, second2
	for i := range 4 {
		f.move(from, to, both, true)
		for _, c := range calls {
			if err := said(c, fmt.Sprintf("move %d", i)); err != nil {
				t.Fatalf("after move %d: %s: %v", i, c.RemoteAddr(), err)
			}
		}
		from, to = to, from
	}
	for n, want := range map[string]int{from: 1, to: 0} {
		f.in(n, func() error {
			for _, a := range both {
				if here, err := on(a.Prefix.Addr()); err != nil || len(here) != want {
					return fmt.Errorf("%s: %v, %v", n, here, err)
				}
			}
			return nil
		})
	}
	// The workload speaks first, too, and new clients are led to it.
	if err := said(f.call(float4), "new"); err != nil {
		t.Fatal(err)
	}
}

// With and without its entry: the workload speaks first on the other host.
func TestAConnectionNeedsItsEntry(t *testing.T) {
	for _, carried := range []bool{true, false} {
		f := newFleet(t)
		f.in(first1, func() error { return bring(both) })
		for _, a := range both {
			c := f.call(a)
			if _, err := fmt.Fprintln(c, "later"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(50 * time.Millisecond) // it waits at the workload
			f.move(first1, second2, both, carried)
			f.now <- struct{}{}
			if err := heard(c, "later"); (err == nil) != carried {
				t.Errorf("%s, carried %v: %v", c.RemoteAddr(), carried, err)
			}
			f.move(second2, first1, both, true)
		}
	}
}

func TestTheEntryIsTheSameOnTheOtherHost(t *testing.T) {
	f := newFleet(t)
	f.in(first1, func() error { return bring(both) })
	for _, a := range both {
		if err := said(f.call(a), "x"); err != nil {
			t.Fatal(err)
		}
	}
	var flows, again []Flow
	read := func(n string, into *[]Flow) {
		f.in(n, func() (err error) { *into, err = Read(both, isInner); return err })
	}
	read(first1, &flows)
	if len(flows) != 2 {
		t.Fatalf("read %+v", flows)
	}
	f.in(first1, func() error { // those of an earlier workload stay behind
		others, err := Read(both, func(a netip.Addr) bool { return !isInner(a) })
		if len(others) > 0 {
			t.Errorf("of another workload: %+v", others)
		}
		return err
	})
	f.in(second2, func() error { return errors.Join(Write(flows), Write(flows)) }) // an earlier one is replaced
	read(second2, &again)
	key := func(a, b Flow) int { return a.Public.Addr().Compare(b.Public.Addr()) }
	slices.SortFunc(flows, key)
	slices.SortFunc(again, key)
	for i := range flows {
		a, b := flows[i], again[i]
		if a.Client != b.Client || a.Public != b.Public || a.Inner != b.Inner || !isInner(b.Inner.Addr()) || a.TCP.State != b.TCP.State || a.TCP.Scales != b.TCP.Scales {
			t.Errorf("%+v became %+v", a, b)
		}
		if b.Status&(destNAT|assured|seenReply) != destNAT|assured|seenReply || b.TCP.Flags[0]&liberal == 0 {
			t.Errorf("%+v is not led to the workload, or not liberal", b)
		}
	}
	f.in(second2, func() error { return errors.Join(Forget(both), Forget(both)) })
	if read(second2, &again); len(again) > 0 {
		t.Errorf("left %+v", again)
	}
}

func TestOnlyTheWorkloadsConnectionsAreTaken(t *testing.T) {
	f := newFleet(t)
	good := Flow{Protocol: unix.IPPROTO_TCP, Client: netip.MustParseAddrPort("192.0.2.3:4000"), Public: netip.MustParseAddrPort("192.0.2.50:80"), Inner: netip.MustParseAddrPort("10.9.0.2:80")}
	for want, change := range map[string]func(*Flow){
		"":                            func(*Flow) {},
		"to 192.0.2.1:22, which":      func(g *Flow) { g.Public = netip.MustParseAddrPort("192.0.2.1:22") },
		"lead to 192.0.2.3:22, which": func(g *Flow) { g.Inner = netip.MustParseAddrPort("192.0.2.3:22") },
		"protocol 1":                  func(g *Flow) { g.Protocol = 1 },
	} {
		g := good
		change(&g)
		f.in(second2, func() error {
			err := Check([]Flow{g}, both, isInner)
			if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%+v: %v, and not %q", g, err, want)
			}
			return nil
		})
	}
}

// A client of the host itself is led elsewhere by its own kernel: its connection ends, and
// keeps no workload from moving.
func TestConnectionsOfTheHostItselfAreLeftOut(t *testing.T) {
	f := newFleet(t)
	flows := []Flow{{Client: netip.MustParseAddrPort("192.0.2.2:4000")}, {Client: netip.MustParseAddrPort("192.0.2.3:4000")}}
	f.in(second2, func() error {
		others, err := FromOthers(flows)
		if err == nil && (len(others) != 1 || others[0].Client != flows[1].Client) {
			t.Errorf("left %+v", others)
		}
		return err
	})
}

// A connection that both sides have ended stays in the table for two minutes.
func TestAnEndedConnectionIsNotTaken(t *testing.T) {
	f := newFleet(t)
	f.in(first1, func() error { return bring(both) })
	c := f.call(float4)
	if err := said(c, "x"); err != nil {
		t.Fatal(err)
	}
	count := func(read func() ([]Flow, error)) (n int) {
		f.in(first1, func() error {
			flows, err := read()
			n = len(flows)
			return err
		})
		return n
	}
	taken := func() ([]Flow, error) { return Read(both, isInner) }
	if n := count(taken); n != 1 {
		t.Fatalf("took %d connections of one", n)
	}
	c.Close()
	for end := time.Now().Add(5 * time.Second); count(taken) > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("an ended connection is taken")
		}
	}
	if n := count(func() ([]Flow, error) { return entries(both) }); n != 1 {
		t.Errorf("the table has %d of it, so this has shown nothing", n)
	}
}

// Another host may have announced it since.
func TestAnAddressThatIsNotHereIsNotAnnounced(t *testing.T) {
	f := newFleet(t)
	f.in(first1, func() error { return Announce([]Address{{Prefix: float4.Prefix, Interface: "nowhere"}}) })
}

// The kernel finds an address with a peer by the peer's.
func TestAnAddressThatStaysIsNotTaken(t *testing.T) {
	f := newFleet(t)
	f.ip("-n", f.name(first1), "address", "add", "192.0.2.70", "peer", "192.0.2.99/32", "dev", "eth0")
	f.in(first1, func() error {
		err := Take([]Address{{Prefix: netip.MustParsePrefix("192.0.2.70/32"), Interface: "eth0"}})
		here, e := on(netip.MustParseAddr("192.0.2.70"))
		if (err == nil) != (len(here) == 0) {
			t.Errorf("taken: %v, and it is on %v", err, here)
		}
		return e
	})
}

func TestAnAddressComesAndGoesAlone(t *testing.T) {
	f := newFleet(t)
	own := Address{Prefix: netip.MustParsePrefix("192.0.2.1/24"), Interface: "eth0"}
	f.in(first1, func() error {
		if err := errors.Join(Free(both), Bring(both), Bring(both)); err != nil {
			return err
		}
		if err := Free(both); err == nil || !strings.Contains(err.Error(), "192.0.2.50 is on eth0 of this host already") {
			t.Errorf("free: %v", err)
		}
		if err := Removable(both); err != nil {
			t.Error(err)
		}
		// The kernel would remove the floating one with it.
		if err := Removable([]Address{own}); err == nil || !strings.Contains(err.Error(), "would remove 192.0.2.50/24 with it") {
			t.Errorf("removable: %v", err)
		}
		if err := Removable([]Address{{Prefix: netip.MustParsePrefix("192.0.2.60/24"), Interface: "eth0"}}); err == nil || !strings.Contains(err.Error(), "192.0.2.60 is not on this host") {
			t.Errorf("removable: %v", err)
		}
		before, err := addresses()
		if err != nil {
			return err
		}
		if err := errors.Join(Take(both), Take(both)); err != nil {
			return err
		}
		after, err := addresses()
		if len(before) != len(after)+2 {
			t.Errorf("%v became %v", before, after)
		}
		return err
	})
	f.in(first1, func() error {
		if err := Free([]Address{{Prefix: float4.Prefix, Interface: "nowhere"}}); err == nil {
			t.Error("an interface that is not there")
		}
		return nil
	})
}

func TestFaults(t *testing.T) {
	for text, want := range map[string]string{"192.0.2.50/24": "", "2001:db8::1/64": "", "127.0.0.2/8": "cannot float", "0.0.0.0/0": "cannot float", "ff02::1/128": "cannot float", "fe80::1/64": "cannot float"} {
		if got := (Address{Prefix: netip.MustParsePrefix(text), Interface: "eth0"}).Fault(); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%s: %q", text, got)
		}
	}
	for _, a := range []Address{{}, {Prefix: float4.Prefix}, {Prefix: float4.Prefix, Interface: "a-name-that-is-too-long"}} {
		if a.Fault() == "" {
			t.Errorf("%+v", a)
		}
	}
}

func TestThisKernelIsProbed(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: a network namespace")
	}
	if err := Probe(); err != nil {
		t.Error(err)
	}
}
