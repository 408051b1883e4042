package settings

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// namespace is a network namespace with an interface, and a way to set something in it.
func namespace(t *testing.T, name string) (path string, sysctl func(...string) string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root: network namespaces")
	}
	name = fmt.Sprintf("handover-s%d-%s", os.Getpid(), name)
	run := func(words ...string) string {
		t.Helper()
		out, err := exec.Command("ip", words...).CombinedOutput()
		if err != nil {
			t.Fatalf("ip %s: %v: %s", strings.Join(words, " "), err, out)
		}
		return strings.TrimSpace(string(out))
	}
	run("netns", "add", name)
	t.Cleanup(func() { _ = exec.Command("ip", "netns", "delete", name).Run() })
	run("-n", name, "link", "set", "lo", "up")
	run("-n", name, "link", "add", "eth0", "type", "veth", "peer", "name", "eth1")
	return "/run/netns/" + name, func(settings ...string) string {
		t.Helper()
		script := ""
		for _, s := range settings {
			file, value, sets := strings.Cut(s, "=")
			if sets {
				script += "echo '" + value + "' > /proc/sys/net/" + file + " || exit 1; "
			} else {
				script += "cat /proc/sys/net/" + file + "; "
			}
		}
		return run("netns", "exec", name, "sh", "-c", script)
	}
}

var changed = []string{
	"core/somaxconn=777", "ipv4/ip_forward=1", "ipv4/tcp_keepalive_time=123", "ipv4/conf/eth0/rp_filter=2", "ipv4/conf/eth1/forwarding=0",
	// Each in the way of the other, by the order of their names.
	"ipv4/ip_local_port_range=500 600", "ipv4/ip_unprivileged_port_start=80",
}

func TestANamespaceIsSetAsTheOtherIs(t *testing.T) {
	from, source := namespace(t, "from")
	to, destination := namespace(t, "to")
	settings := slices.Clone(changed)
	slices.Reverse(settings[5:]) // the kernel takes them in this order only
	source(settings...)
	destination("ipv4/tcp_fin_timeout=11") // which the source has not
	n, err := Read(from)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range changed[:4] {
		if name, _, _ := strings.Cut(s, "="); !slices.Contains(n.Own, name) {
			t.Errorf("%s counts as nobody's: %q", name, n.Own)
		}
	}
	if slices.Contains(n.Own, "ipv4/tcp_fin_timeout") {
		t.Error("a setting that nobody touched counts as the workload's own")
	}
	wanted, err := n.Rehearse()
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Meet(to, wanted); err != nil {
		t.Fatal(err)
	}
	if _, err := Apply(to, wanted); err != nil {
		t.Fatal(err)
	}
	if all := len(n.Values); len(wanted) > all/4 {
		t.Errorf("%d of %d settings are looked at in the pause", len(wanted), all)
	}
	for _, s := range append(slices.Clone(changed), "ipv4/tcp_fin_timeout=60") {
		name, want, _ := strings.Cut(s, "=")
		if got := strings.Join(strings.Fields(destination(name)), " "); got != want {
			t.Errorf("%s is %q and not %q", name, got, want)
		}
	}
	if again, err := Apply(to, wanted); err != nil || len(again) > 0 {
		t.Errorf("the second time it changes %q (%v)", again, err)
	}
}

func TestASettingThatChangesAfterTheLookIsSeen(t *testing.T) {
	from, source := namespace(t, "from")
	source("core/somaxconn=777", "ipv4/tcp_keepalive_time=123")
	n, err := Read(from)
	if err != nil {
		t.Fatal(err)
	}
	source("core/somaxconn=778", "ipv4/tcp_fin_timeout=33", "ipv4/ip_forward=1") // that nobody had touched
	changed, err := n.Again(from)
	if err != nil || changed["core/somaxconn"] != "778" || changed["ipv4/tcp_fin_timeout"] != "33" || changed["ipv4/conf/eth0/forwarding"] != "1" || changed["ipv4/tcp_keepalive_time"] != "" {
		t.Errorf("changed are %q (%v)", changed, err)
	}
	to, destination := namespace(t, "to")
	if _, err := Apply(to, changed); err != nil {
		t.Fatal(err)
	}
	if got := destination("ipv4/tcp_fin_timeout"); got != "33" {
		t.Errorf("tcp_fin_timeout is %s", got)
	}
	// A value that the kernel takes for another is no match.
	changed["ipv4/tcp_fin_timeout"] = "033"
	if _, err := Apply(to, changed); err == nil || !strings.Contains(err.Error(), "net.ipv4.tcp_fin_timeout is \"033\" on the source and stays \"27\" here") {
		t.Errorf("it is taken: %v", err)
	}
}

func TestASettingThatCannotBeHadIsNamed(t *testing.T) {
	to, _ := namespace(t, "to")
	for setting, want := range map[string]string{
		"ipv4/tcp_congestion_control=nowhere": "net.ipv4.tcp_congestion_control",
		"ipv4/of_a_later_kernel=1":            "this host has no setting net.ipv4.of_a_later_kernel",
	} {
		name, value, _ := strings.Cut(setting, "=")
		n := Net{Values: map[string]string{name: value}, Own: []string{name}}
		if _, err := n.Rehearse(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("rehearsing %s: %v", setting, err)
		}
		if _, err := Apply(to, n.Values); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("applying %s: %v", setting, err)
		}
	}
	// Nobody has set it: a kernel without it is as good.
	n := Net{Values: map[string]string{"ipv4/of_a_later_kernel": "1"}}
	if wanted, err := n.Rehearse(); err != nil || len(wanted) > 0 {
		t.Errorf("it wants %q (%v)", wanted, err)
	}
	// An interface that the workload made comes with nobody.
	n = Net{Values: map[string]string{"ipv4/conf/own0/rp_filter": "2"}, Own: []string{"ipv4/conf/own0/rp_filter"}}
	wanted, err := n.Rehearse()
	if err == nil {
		_, err = Apply(to, wanted)
	}
	if err == nil || !strings.Contains(err.Error(), "net.ipv4.conf.own0.rp_filter") {
		t.Errorf("an interface that is not there: %v", err)
	}
}

func TestSettingsOfAnInterfaceThatStaysBehind(t *testing.T) {
	fresh := func() Net {
		return Net{
			Values: map[string]string{"ipv4/ip_forward": "1", "ipv4/conf/all/forwarding": "1", "ipv4/conf/eth0/mtu": "1", "ipv4/conf/lo/mtu": "1", "ipv4/neigh/wg0/app_solicit": "3"},
			Own:    []string{"ipv4/conf/eth0/mtu", "ipv4/neigh/wg0/app_solicit"},
		}
	}
	n := fresh()
	n.Keep(nil)
	if len(n.Values) != 5 || len(n.Own) != 2 {
		t.Errorf("with none named it keeps %v, %v", n.Values, n.Own)
	}
	n.Keep([]string{"eth0"})
	if _, there := n.Values["ipv4/neigh/wg0/app_solicit"]; there || len(n.Values) != 4 || len(n.Own) != 1 {
		t.Errorf("it keeps %v, %v", n.Values, n.Own)
	}
}
