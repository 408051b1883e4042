# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._openvz import plan
from ansible_collections.livefleet.handover.plugins.module_utils._openvz.look import parse
from ansible_collections.livefleet.handover.plugins.module_utils._openvz.podman_options import RIGHTS, WAYS, Answer, bind_mount
from ansible_collections.livefleet.handover.plugins.module_utils._openvz.translation import RULES, translate

OLD = """\
ONBOOT="yes"
BOOTORDER="10"
NAME="shop"
HOSTNAME="shop.example.org"
PHYSPAGES="0:256M"
SWAPPAGES="0:512M"
KMEMSIZE="14372700:14790164"
NUMPROC="240:240"
DISKSPACE="2097152:2306867"
DISKINODES="131072:144179"
CPUUNITS="2000"
CPUS="2"
CPULIMIT="150"
IP_ADDRESS="10.0.0.101 2001:db8::65"
NETIF="ifname=eth0,mac=00:18:51:AA:BB:CC,ip=10.1.0.7/24"
NAMESERVER="10.0.0.53"
SEARCHDOMAIN="example.org"
CAPABILITY="SYS_TIME:on NET_RAW:off"
DEVNODES="net/tun:rw fuse:rw"
VE_PRIVATE="/vz/private/$VEID"
"""
LOOK = """\
@id 101
@vzctl vzctl version 4.11.1
@status CTID 101 exist mounted running
@private /vz/private/101
@mountpoint /vz/root/101
@machine x86_64
@file conf
{conf}
@end
{more}@layout simfs
@kib 409600
@root path /vz/private/101
@root init /lib/systemd/systemd
@root has etc/network/interfaces
@root has tmp
@root systemd 252
@root release etc/debian_version 12.5
"""
OFFER = {
    "machine": "x86_64", "processors": 4, "cgroup": 2, "controllers": ["cpu", "cpuset", "memory", "pids"], "vsyscall": True, "free": 10 << 30, "taken": [],
    "networks": [
        {"name": "lan", "subnets": [{"subnet": "10.0.0.0/24"}, {"subnet": "2001:db8::/64"}]},
        {"name": "back", "subnets": [{"subnet": "10.1.0.0/24", "gateway": "10.1.0.1"}]},
    ],
    "paths": ["/dev/net/tun", "/dev/fuse", "/srv/data"],
}  # fmt: skip


def looked(conf=OLD, more="", **changes):
    text = LOOK.format(conf="\n".join(" " + line for line in conf.splitlines()), more=more)
    for old, new in changes.items():
        text = text.replace(old.replace("__", " "), new)
    return parse(text)


NO_WISHES = plan.Wishes()


def planned(conf=OLD, more="", wishes=NO_WISHES, offer=None, **changes):
    return plan.make(looked(conf, more, **changes), offer or OFFER, wishes, "/mnt/{name}")


def names_of(found):
    return [each.partition(":")[0] for each in found["refused"]]


def test_a_container_of_vzctl_4_and_what_podman_is_told():
    found = planned()
    assert found["refused"] == []
    assert found["name"] == "shop" and found["mountpoint"] == "/mnt/shop" and found["running"] and found["onboot"] and found["boot_order"] == 10
    assert found["interfaces"] == ["venet0", "eth0"]
    assert found["size"] % (1 << 20) == 0 and 2306867 * 1024 * 1.07 < found["size"] < 2306867 * 1024 * 1.15
    assert found["options"] == [
        "--hostname=shop.example.org", f"--memory={256 << 20}", f"--memory-swap={768 << 20}", "--pids-limit=240", "--cpu-shares=2048", "--cpus=1.5",
        "--dns=10.0.0.53", "--dns-search=example.org", "--cap-add=SYS_TIME", "--cap-drop=NET_RAW",
        "--device=/dev/net/tun:/dev/net/tun:rw", "--device=/dev/fuse:/dev/fuse:rw",
        "--network=lan:ip=10.0.0.101,ip6=2001:db8::65,mac=02:86:96:ce:d5:e6,interface_name=venet0",
        "--network=back:ip=10.1.0.7,mac=00:18:51:aa:bb:cc,interface_name=eth0",
        *(f"--cap-add={each}" for each in RIGHTS if each != "NET_RAW"), "--no-hosts", "--stop-timeout=120",
    ]  # fmt: skip
    row = next(each for each in found["rows"] if each["name"] == "PHYSPAGES")
    assert row["text"] == f"memory_bytes: {256 << 20} bytes → --memory={256 << 20}"
    assert {each["line"] for each in found["rows"]} == {*range(1, 21), 0}


def test_each_value_has_its_way_and_each_way_a_value():
    """Nothing that the translation can set is forgotten by podman's options, and nothing is there that it never sets."""
    samples = [
        "yes", "no", "1", "10", "x", "0:1G", "a:on", "SYS_TIME:on", "net/tun:rw", "c:1:3:rw", "0-1", "ppp:on", "10.0.0.1", "ifname=eth0", "a=b", "/a:/b",
        "100", "5M",
    ]  # fmt: skip
    keys = {key for name in RULES for sample in samples for key in translate(f'{name}="{sample}"')["container"]}
    assert keys == set(WAYS)


REFUSED = {
    "an unknown line": (dict(conf=OLD + 'COLOUR="red"\n'), ["COLOUR"]),
    "a disabled one": (dict(conf=OLD + 'DISABLED="yes"\n'), ["DISABLED"]),
    "a right that reaches the host": (dict(conf=OLD.replace("SYS_TIME:on", "SYS_ADMIN:on")), ["CAPABILITY"]),
    "a device that is not there": (dict(conf=OLD.replace("fuse:rw", "ppp:rw")), ["DEVNODES"]),
    "processors that are not there": (dict(conf=OLD + 'CPUMASK="0-7"\n'), ["CPUMASK"]),
    "no controller": (dict(offer={**OFFER, "controllers": ["cpu", "pids", "cpuset"]}), ["PHYSPAGES", "SWAPPAGES"]),
    "no network with its address": (dict(conf=OLD.replace("10.0.0.101", "10.9.0.101")), ["(network)"]),
    "two addresses of one subnet": (dict(conf=OLD.replace("10.0.0.101", "10.0.0.101 10.0.0.102")), ["(network)"]),
    "an interface without an address": (dict(conf=OLD.replace(",ip=10.1.0.7/24", "")), ["(network)"]),
    "another gateway": (dict(conf=OLD.replace("ip=10.1.0.7/24", "ip=10.1.0.7/24,gw=10.1.0.254")), ["(network)"]),
    "no MAC address": (dict(conf=OLD.replace("00:18:51:AA:BB:CC", "auto")), ["NETIF"]),
    "a script that does more": (dict(more="@file script 101.mount\n #!/bin/sh\n modprobe fuse\n@end\n"), ["101.mount"]),
    "a bind mount of nothing": (dict(more="@file script 101.mount\n mount --bind /srv/other $VE_ROOT/data\n@end\n"), ["101.mount"]),
    "a start script": (dict(more="@file script 101.start\n echo started\n@end\n"), ["101.start"]),
    "a suspended one": (dict(mounted__running="unmounted down suspended"), ["(state)"]),
    "another machine": (dict(offer={**OFFER, "machine": "aarch64"}), ["(machine)"]),
    "no room": (dict(offer={**OFFER, "free": 1 << 20}), ["(room)"]),
    "no limit of its disk": (dict(conf=OLD.replace("2097152:2306867", "unlimited")), ["(data)"]),
    "a name that is taken": (dict(offer={**OFFER, "taken": ["shop"]}), ["(name)"]),
    "a disk beside files": (dict(**{"@layout__simfs": "@layout both"}), ["(data)"]),
    "an image elsewhere": (
        dict(more="@file descriptor\n <File>/vz/base/root.hds</File><File>root.hds.1</File>\n@end\n", **{"@layout__simfs": "@layout ploop"}),
        ["(data)"],
    ),
    "more files than its limit": (dict(**{"@kib__409600": "@kib 3409600"}), ["(data)"]),
    "VZFS": (dict(**{"@layout__simfs": "@layout vzfs"}), ["(data)"]),
    "a directory container of libvzctl's": (dict(**{"@layout__simfs": "@layout directory"}), ["(data)"]),
    "an old systemd": (dict(systemd__252="x", **{"@root__x": ""}), ["(cgroup)"]),
    "a link for /tmp": (dict(**{"@root__has__tmp\n": ""}), ["(tmp)"]),
    "no init": (dict(**{"@root__init__/lib/systemd/systemd\n": ""}), ["(init)"]),
    "an old C library": (dict(more="@root glibc 2.12\n", offer={**OFFER, "vsyscall": False}), ["(vsyscall)"]),
    "shifted owners": (dict(conf=OLD + 'LOCAL_UID="100000"\n'), ["LOCAL_UID"]),
    "files of shifted owners": (dict(more="@owner 100000\n"), ["(owner)"]),
    "a default that is not understood": (dict(more="@file vz.conf\n CPULIMIT=much\n@end\n", conf=OLD.replace('CPULIMIT="150"\n', "")), ["CPULIMIT"]),
    "no rsync there": (dict(more="@lacks rsync\n"), ["(container)"]),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused_by_name_with_the_cure(case):
    changes, names = REFUSED[case]
    found = planned(**changes)
    assert names_of(found) == names, found["refused"]
    again = planned(**changes, wishes=plan.Wishes(ignore=names))
    left = [name for name in names if name in plan.WHOLE]
    assert names_of(again) == left
    assert all(("import_openvz_ignore" in each) != (each.partition(":")[0] in plan.WHOLE) for each in found["refused"])
    if not left:
        assert any("left out, as asked: " in line for line in again["lines"])


def test_a_usual_container_of_virtuozzo_7_has_no_unknown_line():
    conf = """\
UUID="c2d5b2a1-3c66-4c6f-8f0a-6f0a8d9e0b11"
VEID="c2d5b2a1-3c66-4c6f-8f0a-6f0a8d9e0b11"
ONBOOT="auto"
AUTOSTOP="suspend"
PHYSPAGES="131072:131072"
SWAPPAGES="0:9223372036854775807"
MEMGUARANTEE="0%"
NUMMEMORYSUBGROUPS="1024:1024"
PAGECACHE_ISOLATION="no"
NUMNETIF="unlimited"
QUOTAUGIDLIMIT="10000"
DISK_QUOTA="yes"
DISKSPACE="10485760:10485760"
CPUUNITS="1000"
NETFILTER="stateless"
HA_ENABLE="yes"
SLMMODE="all"
TECHNOLOGIES="x86_64 nptl sysfs"
"""
    found = planned(conf)
    assert found["refused"] == [] and found["onboot"] == "auto"


def test_limits_of_before_vswap():
    conf = OLD.replace('PHYSPAGES="0:256M"', 'PHYSPAGES="0:9223372036854775807"').replace('SWAPPAGES="0:512M"', 'PRIVVMPAGES="65536:69632"')
    assert f"--memory={69632 * 4096}" in planned(conf)["options"]
    assert not any(each.startswith("--memory=") and "69632" in each for each in planned(OLD + 'PRIVVMPAGES="65536:69632"\n')["options"])


def test_names_and_sizes_that_are_given():
    wishes = plan.Wishes(name="web", size=5 << 30, networks={"eth0": "lan"})
    found = planned(OLD.replace("ip=10.1.0.7/24", ""), wishes=wishes)
    assert (found["name"], found["size"], found["mountpoint"]) == ("web", 5 << 30, "/mnt/web")
    assert "--network=lan:mac=00:18:51:aa:bb:cc,interface_name=eth0" in found["options"]


def test_a_mount_script_and_a_bind_mount():
    script = '#!/bin/bash\n. /etc/vz/vz.conf\n. ${VE_CONFFILE}\nSRC=/srv/data\nmount -n -o bind,ro $SRC "${VE_ROOT}/data"\nexit 0\n'
    more = "@file script 101.mount\n" + "".join(f" {line}\n" for line in script.splitlines()) + "@end\n@file script 101.umount\n umount $VE_ROOT/data\n@end\n"
    found = planned(more=more)
    assert found["refused"] == [] and "--volume=/srv/data:/data:ro" in found["options"]
    assert [bind_mount(each) for each in ("/a:/b,nosuid,ro", "/a", "/a:/b:ro")] == ["/a:/b:nosuid,ro", "/a:/a", "/a:/b:ro"]


def test_a_default_of_the_host_s_is_the_container_s():
    found = planned(more="@file vz.conf\n STOP_TIMEOUT=30\n CPULIMIT=50\n@end\n")
    assert "--stop-timeout=30" in found["options"] and "--cpus=1.5" in found["options"]


def test_a_silent_configuration_has_openvz_s_defaults():
    found = planned('DISKSPACE="1G"\n')
    assert found["name"] == "ct101" and not found["onboot"]
    said = [each for each in found["options"] if not each.startswith("--cap")]
    assert said == ["--network=none", "--no-hosts", "--pids-limit=-1", "--stop-timeout=120"]


def test_podman_is_told_of_dns_only_where_it_takes_it():
    def said(conf):
        return [each for each in planned(conf)["options"] if each.startswith(("--dns", "--network=none"))]

    dns = 'NAMESERVER="10.0.0.53"\nSEARCHDOMAIN="example.org"\n'
    assert said('DISKSPACE="1G"\n' + dns) == ["--network=none"]
    assert said('IP_ADDRESS="10.0.0.101"\nDISKSPACE="1G"\n' + dns) == ["--dns=10.0.0.53", "--dns-search=example.org"]
    assert said('IP_ADDRESS="10.0.0.101"\nDISKSPACE="1G"\nSEARCHDOMAIN="example.org"\n') == ["--dns=none"]
    assert said('IP_ADDRESS="10.0.0.101"\nDISKSPACE="1G"\nNAMESERVER="inherit"\nSEARCHDOMAIN="x.org"\n') == ["--dns-search=x.org"]


def test_the_gateway_of_the_network_is_that_of_the_interface():
    found = planned(OLD.replace("ip=10.1.0.7/24", "ip=10.1.0.7/24,gw=10.1.0.1,bridge=br0"))
    assert found["refused"] == [] and any("bridge=br0: podman's network" in line for line in found["lines"])


def test_a_disk_is_not_made_smaller():
    more = "@file descriptor\n <Disk_size>20971520</Disk_size>\n@end\n"
    ploop = {"@layout__simfs": "@layout ploop"}
    assert names_of(planned(more=more, wishes=plan.Wishes(size=(10 << 30) - 1), **ploop)) == ["(data)"]
    assert planned(more=more, wishes=plan.Wishes(size=10 << 30), **ploop)["refused"] == []


def test_a_volume_has_room_for_its_inodes():
    assert plan.volume_size(1 << 30, 4 << 20) - plan.volume_size(1 << 30, None) == 1 << 30
    assert plan.volume_size(None, 100) == 0


def test_snapshots_are_told():
    more = "@file descriptor\n <File>root.hds</File>\n <Shot>a</Shot>\n <Shot>b</Shot>\n@end\n"
    found = planned(more=more, **{"@layout__simfs": "@layout ploop"})
    assert found["refused"] == [] and any("its 1 snapshots stay on the source" in line for line in found["lines"])


def test_venet_among_the_interfaces_is_that_of_the_addresses():
    found = planned(OLD.replace('NETIF="', 'NETIF="ifname=venet0,ifaceid=1;'))
    assert found["refused"] == [] and found["interfaces"] == ["venet0", "eth0"]


@pytest.mark.parametrize(
    ("choice", "option", "refused"),
    [
        ("back:ip=10.1.0.9", "--network=back:ip=10.1.0.9,mac=00:18:51:aa:bb:cc,interface_name=eth0", ""),
        ("back", "--network=back:mac=00:18:51:aa:bb:cc,interface_name=eth0", ""),
        ("back:ip=10.7.0.9", "", "10.7.0.9 is in no subnet of the network back"),
        ("back:ip=ten", "", "'ten' does not appear to be an IPv4 or IPv6 address"),
        ("back:mac=1", "", "it is none of ip and ip6"),
        (5, "", "podman has no network 5 there"),
    ],
)
def test_an_address_that_only_the_container_knows_is_given_with_the_network(choice, option, refused):
    found = planned(OLD.replace(",ip=10.1.0.7/24", ""), wishes=plan.Wishes(networks={"eth0": choice}))
    if refused:
        assert names_of(found) == ["(network)"] and refused in found["refused"][0]
    else:
        assert found["refused"] == [] and option in found["options"]


@pytest.mark.parametrize(
    ("networks", "refused"),
    [({"eht0": "lan"}, "the container has no interface eht0, but venet0 and eth0"), ({"venet0": "lan:ip=10.0.0.9"}, "those of IP_ADDRESS")],
)
def test_a_choice_that_would_do_nothing_is_refused(networks, refused):
    found = planned(wishes=plan.Wishes(networks=networks))
    assert names_of(found) == ["(network)"] and refused in found["refused"][0]


def test_an_answer_is_one_of_three():
    assert Answer(["--x"]).refused == "" and Answer(refused="no").options == ()


def test_an_address_that_nobody_asked_for_is_told():
    found = planned(OLD.replace(" 2001:db8::65", ""))
    assert found["refused"] == [] and any("venet0 gets an address of podman's choice in 2001:db8::/64" in line for line in found["lines"])
    assert not any("podman's choice" in line for line in planned()["lines"])


def test_a_ploop_disk_keeps_its_size_unless_another_is_asked_for():
    conf = OLD.replace("2097152:2306867", "unlimited")
    assert planned(conf, **{"@layout__simfs": "@layout ploop"})["size"] == 0
    found = planned(conf, wishes=plan.Wishes(size=5 << 30), **{"@layout__simfs": "@layout ploop"})
    assert found["size"] == 5 << 30 and found["refused"] == []
