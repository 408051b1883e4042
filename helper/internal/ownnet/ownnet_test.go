package ownnet

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
)

var made atomic.Int32

// namespace is one as the container engine makes it. Its interfaces have numbers that
// depend on how many others were made before.
func namespace(t *testing.T, before int) (name, path string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root: network namespaces")
	}
	name = fmt.Sprintf("handover-o%d-%d", os.Getpid(), made.Add(1))
	run(t, "ip", "netns", "add", name)
	t.Cleanup(func() { _ = exec.Command("ip", "netns", "delete", name).Run() })
	ip := func(words string) {
		t.Helper()
		run(t, append([]string{"ip", "-n", name}, strings.Fields(words)...)...)
	}
	for n := range before {
		ip(fmt.Sprintf("link add other%d type bridge", n))
		ip(fmt.Sprintf("link del other%d", n))
	}
	ip("link set lo up")
	for _, words := range []string{
		"link add eth0 address 02:00:00:00:00:10 type bridge", "link add eth1 address 02:00:00:00:00:11 type bridge", "address add 192.0.2.10/24 dev eth0", "address add 2001:db8::10/64 dev eth0 nodad",
		"address add 198.51.100.10/24 dev eth1", "link set eth0 up", "link set eth1 up", "route add default via 192.0.2.1 proto static metric 100",
	} {
		ip(words)
	}
	return name, "/run/netns/" + name
}

func run(t *testing.T, words ...string) {
	t.Helper()
	if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", strings.Join(words, " "), err, out)
	}
}

func needsNft(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("nft"); err != nil {
		t.Skip("needs the program nft")
	}
}

func read1(t *testing.T, path string) State {
	t.Helper()
	s, err := Read(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// What a workload does in its namespace, and how that is called.
var own = []struct{ words, named string }{
	{"ip -n NS address add 10.9.9.9/32 dev lo", "the address 10.9.9.9/32 on lo"},
	{"ip -n NS address add 192.0.2.99/24 dev eth0 label eth0:1", "the address 192.0.2.99/24 on eth0"},
	{"ip -n NS address add 2001:db8::99/64 dev eth1 nodad", "the address 2001:db8::99/64 on eth1"},
	{"ip -n NS address add 203.0.113.1 peer 203.0.113.2 dev eth1", "the address 203.0.113.1/32 on eth1"},
	{"ip -n NS route add 10.0.0.0/8 via 192.0.2.7 metric 5", "the route to 10.0.0.0/8 via 192.0.2.7 on eth0"},
	{"ip -n NS route add 10.1.0.0/16 via 203.0.113.2 table 77", "the route to 10.1.0.0/16 via 203.0.113.2 on eth1 in the table 77"},
	{"ip -n NS route add 10.2.0.0/16 nexthop via 192.0.2.8 weight 2 nexthop via 198.51.100.8", "the route to 10.2.0.0/16 via others on eth0"},
	{"ip -n NS route add blackhole 10.3.0.0/16", "the route to 10.3.0.0/16"},
	{"ip -n NS route add local 10.4.0.0/16 dev lo", "the route to 10.4.0.0/16 on lo in the table 255"},
	{"ip -n NS -6 route add 2001:db8:1::/48 via 2001:db8::1", "the route to 2001:db8:1::/48 via 2001:db8::1 on eth0"},
	{"ip -n NS -6 route add default via 2001:db8::1 dev eth0", "the route to default (IPv6) via 2001:db8::1 on eth0"},
	{"ip -n NS rule add from 10.9.9.9 table 77 priority 700", "the rule 700 of IPv4 for the table 77"},
	{"ip -n NS -6 rule add iif eth1 table 78 priority 701", "the rule 701 of IPv6 for the table 78"},
	{"ip netns exec NS nft add table inet shop", "the nftables table inet shop"},
	{"ip -n NS link set eth0 mtu 1400", "an MTU of 1400 on eth0"},
	{"ip -n NS link set lo mtu 16384", "an MTU of 16384 on lo"},
	{"ip -n NS link set eth1 txqueuelen 77", "a queue of 77 packets on eth1"},
	{"ip -n NS link set eth1 address 02:00:00:00:77:77", "the hardware address 02:00:00:00:77:77 on eth1"},
	{"ip -n NS link set eth0 promisc on", "eth0 promiscuous"},
	{"ip -n NS link set eth0 allmulticast on", "eth0 for all of multicast"},
	{"ip -n NS link set eth0 arp off", "eth0 without ARP"},
	{"ip -n NS link set eth1 multicast off", "eth1 not for multicast"},
	{"ip -n NS link set eth1 down", "eth1 not up"},
	{"ip -n NS route del default", "without the route to default via 192.0.2.1 on eth0"},
	{"ip -n NS address del 198.51.100.10/24 dev eth1", "without the address 198.51.100.10/24 on eth1"},
}

func do(t *testing.T, name string, words string) {
	t.Helper()
	if strings.Contains(words, " nft ") {
		needsNft(t)
	}
	run(t, strings.Fields(strings.ReplaceAll(words, "NS", name))...)
}

func TestWhatAWorkloadHasMadeIsMadeElsewhere(t *testing.T) {
	for _, c := range own {
		t.Run(c.named, func(t *testing.T) {
			name, path := namespace(t, 0)
			_, there := namespace(t, 3)
			if strings.Contains(c.words, "via 203.0.113.2") {
				do(t, name, "ip -n NS address add 203.0.113.1 peer 203.0.113.2 dev eth1")
			}
			do(t, name, c.words)
			want := read1(t, path)
			if err := Rehearse(want); err != nil {
				t.Errorf("rehearsed: %v", err)
			}
			changed, err := Apply(there, want, nil)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Contains(changed, c.named) {
				t.Errorf("it has changed %q", changed)
			}
			sameAs(t, there, want)
			if changed, err := Apply(there, want, nil); err != nil || len(changed) > 0 {
				t.Errorf("a second time: %q, %v", changed, err)
			}
		})
	}
}

// Of two routes to the same place the kernel takes the first.
func TestRoutesOfOneRankKeepTheirOrder(t *testing.T) {
	const gone, first, second = "ip -n NS route del default", "ip -n NS route append default via 198.51.100.1 metric 100", "ip -n NS route append default via 192.0.2.1 metric 100"
	name, path := namespace(t, 0)
	for _, words := range []string{gone, first, second} {
		do(t, name, words)
	}
	want := read1(t, path)
	if err := Rehearse(want); err != nil {
		t.Errorf("rehearsed: %v", err)
	}
	for title, before := range map[string][]string{"in another order": {gone, second, first}, "with a third": {"ip -n NS route append default via 192.0.2.7 metric 100"}, "with one": nil, "with none": {gone}} {
		t.Run(title, func(t *testing.T) {
			name, there := namespace(t, 0)
			for _, words := range before {
				do(t, name, words)
			}
			if changed, err := Apply(there, want, nil); err != nil || len(changed) == 0 {
				t.Fatalf("%q, %v", changed, err)
			}
			if got := read1(t, there).Routes; !slices.EqualFunc(got, want.Routes, Entry.same) {
				t.Errorf("%+v", got)
			}
			if changed, err := Apply(there, want, nil); err != nil || len(changed) > 0 {
				t.Errorf("a second time: %q, %v", changed, err)
			}
		})
	}
}

func TestAllOfItTogether(t *testing.T) {
	name, path := namespace(t, 2)
	_, there := namespace(t, 0)
	for _, c := range own[:len(own)-3] {
		do(t, name, c.words)
	}
	want := read1(t, path)
	if _, err := Apply(there, want, nil); err != nil {
		t.Fatal(err)
	}
	sameAs(t, there, want)
	// It takes one away, and goes on: the last look finds it.
	do(t, name, "ip -n NS rule del priority 700")
	want = read1(t, path)
	changed, err := Apply(there, want, nil)
	if err != nil || !slices.Equal(changed, []string{"without the rule 700 of IPv4 for the table 77"}) {
		t.Errorf("%q, %v", changed, err)
	}
}

func TestTablesComeWithTheirCounters(t *testing.T) {
	needsNft(t)
	name, path := namespace(t, 2)
	_, there := namespace(t, 0)
	const script = `table inet shop {
	}
	table ip shop {
		set seen {
			type ipv4_addr
			elements = { 10.9.9.1 }
		}
		chain in {
			type filter hook input priority 0; policy accept;
			iif "eth1" tcp dport { 81, 90-95 } counter packets 7 bytes 420 drop
			ip saddr @seen accept
		}
	}`
	command := exec.Command("ip", "netns", "exec", name, "nft", "-f", "-")
	command.Stdin = strings.NewReader(script)
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, gone := range []string{"", "inet"} {
		if gone != "" {
			run(t, "ip", "netns", "exec", name, "nft", "delete table "+gone+" shop")
		}
		want := read1(t, path)
		changed, err := Apply(there, want, nil)
		if err != nil || gone != "" && !slices.Equal(changed, []string{"without the nftables table inet shop"}) {
			t.Fatalf("%q, %v", changed, err)
		}
		if changed, err := Apply(there, want, want.Tables); err != nil || len(changed) > 0 {
			t.Errorf("the last look: %q, %v", changed, err)
		}
		got := read1(t, there)
		if !slices.EqualFunc(got.Tables, want.Tables, func(a, b Table) bool { return a.Script == b.Script }) {
			t.Errorf("it is %+v, and should be %+v", got.Tables, want.Tables)
		}
	}
}

// sameAs fails where a namespace is not as the source's was.
func sameAs(t *testing.T, path string, want State) {
	t.Helper()
	for _, d := range differences(read1(t, path), want) {
		t.Errorf("differs: %s", d)
	}
}

func TestTablesAreToldWithoutNft(t *testing.T) {
	needsNft(t)
	name, path := namespace(t, 0)
	do(t, name, "ip netns exec NS nft add table inet shop")
	do(t, name, "ip netns exec NS nft add table ip handover")
	t.Setenv("PATH", "")
	if found, err := TablesIn(path); err != nil || !slices.Equal(found, []string{"inet shop"}) {
		t.Errorf("%q, %v", found, err)
	}
	if _, err := Read(path, nil); err == nil || !strings.Contains(err.Error(), "no program nft: install the package nftables") {
		t.Errorf("read without nft: %v", err)
	}
}

func TestTheLastLookFindsATableThatWent(t *testing.T) {
	needsNft(t)
	name, path := namespace(t, 0)
	other, there := namespace(t, 0)
	do(t, name, "ip netns exec NS nft add table inet shop")
	want := read1(t, path)
	for _, again := range []string{"the first time", "again"} {
		if changed, err := Apply(there, want, want.Tables); err != nil || !slices.Equal(changed, []string{"the nftables table inet shop"}) {
			t.Errorf("%s: %q, %v", again, changed, err)
		}
		do(t, other, "ip netns exec NS nft delete table inet shop")
	}
}

func TestOneAsTheEngineMadeItIsLeftAlone(t *testing.T) {
	_, path := namespace(t, 0)
	_, there := namespace(t, 1)
	if changed, err := Apply(there, read1(t, path), nil); err != nil || len(changed) > 0 {
		t.Errorf("%q, %v", changed, err)
	}
}

func TestWhatCannotBeHadIsSaid(t *testing.T) {
	for want, words := range map[string]string{
		"the interface wg0, which the workload has on the source, is missing here": "ip -n NS address add 10.9.9.9/32 dev wg0",
		"was made by iptables, whose rules are not carried":                        "ip netns exec NS iptables-nft -t nat -A POSTROUTING -j MASQUERADE",
		"a next hop of its own (`ip nexthop`), which is not carried":               "ip -n NS route add 10.8.0.0/16 nhid 5",
	} {
		t.Run(want, func(t *testing.T) {
			name, path := namespace(t, 0)
			_, there := namespace(t, 0)
			do(t, name, "ip -n NS link add wg0 type bridge")
			do(t, name, "ip -n NS nexthop add id 5 blackhole")
			if strings.Contains(words, "iptables-nft") {
				needsNft(t)
				if _, err := exec.LookPath("iptables-nft"); err != nil {
					t.Skip(err)
				}
			}
			do(t, name, words)
			s, err := Read(path, nil)
			if err == nil {
				_, err = Apply(there, s, nil)
			}
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Error(err)
			}
			// An operator has said that it does not matter.
			if s, err = Read(path, []string{"eth0", "eth1"}); err == nil {
				_, err = Apply(there, s, nil)
			}
			if err != nil {
				t.Errorf("left out: %v", err)
			}
		})
	}
}

func TestASourceOfAnOlderVersionSaysNothingOfItsInterfaces(t *testing.T) {
	name, path := namespace(t, 0)
	_, there := namespace(t, 0)
	do(t, name, "ip -n NS link set eth0 mtu 1400")
	do(t, name, "ip -n NS link add wg0 type bridge")
	do(t, name, "ip -n NS address add 10.9.9.9/32 dev wg0")
	want := read1(t, path)
	want.Settings = nil
	const missing = "the address 10.9.9.9/32 on wg0 needs the interface wg0, which the workload does not have here"
	if _, err := Apply(there, want, nil); err == nil || !strings.Contains(err.Error(), missing) {
		t.Error(err)
	}
	for _, link := range read1(t, there).Settings {
		if link.Name == "eth0" && link.MTU != 1500 {
			t.Errorf("it has an MTU of %d", link.MTU)
		}
	}
}

func TestWhatComesOverTheWireIsNotTrusted(t *testing.T) {
	_, there := namespace(t, 0)
	for _, s := range []State{
		{Addresses: []Entry{{Name: "x", Body: []byte{2}}}},
		{Addresses: []Entry{{Name: "x", Body: make([]byte, 8)}}},
		{Routes: []Entry{{Name: "x", Body: append(make([]byte, 12), 3, 0, 4, 0)}}},
		{Settings: []Link{{Name: "eth0", MTU: 1 << 31}}},
		{Settings: []Link{{Name: "eth0", MTU: 1500, Address: []byte{1}}}},
		{Settings: []Link{{MTU: 1500}}},
	} {
		if _, err := Apply(there, s, nil); err == nil {
			t.Errorf("%+v was taken", s)
		}
	}
}
