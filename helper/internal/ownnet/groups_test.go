package ownnet

import (
	"io"
	"os/exec"
	"slices"
	"testing"
)

// member has a program in the namespace join groups, on eth0.
func member(t *testing.T, name string, script string) {
	t.Helper()
	c := exec.Command("ip", "netns", "exec", name, "python3", "-c", `
import socket, struct, sys
def four(group):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, struct.pack("=4s4si", socket.inet_aton(group), b"\0" * 4, socket.if_nametoindex("eth0")))
    return s
def six(group):
    s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, socket.inet_pton(socket.AF_INET6, group) + struct.pack("=i", socket.if_nametoindex("eth0")))
    return s
joined = [`+script+`]
print("joined", flush=True)
sys.stdin.read()
`)
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close(); _ = c.Process.Kill(); _ = c.Wait() })
	if _, err := io.ReadFull(out, make([]byte, len("joined"))); err != nil {
		t.Fatal("it has not joined", err)
	}
}

func groupsIn(t *testing.T, path string, only ...string) Groups {
	t.Helper()
	g, err := ReadGroups(path, only)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// The memberships of programs are found, and those that the kernel has itself on both hosts are
// not lost.
func TestMembershipsThatAreLost(t *testing.T) {
	source, from := namespace(t, 0)
	target, to := namespace(t, 3)
	for _, name := range []string{source, target} {
		run(t, "ip", "netns", "exec", name, "sh", "-c", "echo 1 >/proc/sys/net/ipv6/conf/all/forwarding") // a router's groups
	}
	if lost := groupsIn(t, from).Lost(groupsIn(t, to)); len(lost) > 0 {
		t.Errorf("lost are %q, and no program has joined", lost)
	}
	member(t, source, `four("239.1.2.3"), six("ff02::fb"), six("ff02::2")`)
	want := []string{"239.1.2.3 on eth0", "ff02::2 on eth0", "ff02::fb on eth0"}
	if lost := groupsIn(t, from).Lost(groupsIn(t, to)); !slices.Equal(lost, want) {
		t.Errorf("lost are %q", lost)
	}
	if lost := groupsIn(t, from, "eth1").Lost(groupsIn(t, to)); len(lost) > 0 {
		t.Errorf("lost are %q, of an interface that is not carried", lost)
	}
	member(t, target, `four("239.1.2.3"), six("ff02::fb"), six("ff02::2")`)
	if lost := groupsIn(t, from).Lost(groupsIn(t, to)); len(lost) > 0 {
		t.Errorf("lost are %q, and the program has joined again", lost)
	}
}
