# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import random

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._openvz.config import read
from ansible_collections.livefleet.handover.plugins.module_utils._openvz.translation import RULES, table, translate

OLD = """\
# A container of vzctl 4 in ploop
ONBOOT="yes"
BOOTORDER="10"
NAME="shop"
HOSTNAME="shop.example.org"
PHYSPAGES="0:262144"
SWAPPAGES="0:512M"
KMEMSIZE="14372700:14790164"
NUMPROC="240:240"
DISKSPACE="2097152:2306867"
DISKINODES="131072:144179"
QUOTAUGIDLIMIT="0"
CPUUNITS="2000"
CPUS="2"
CPULIMIT="150"
CPUMASK="0-3"
IP_ADDRESS="10.0.0.101 2001:db8::65"
NETIF="ifname=eth0,mac=00:18:51:AA:BB:CC,host_ifname=veth101.0,host_mac=00:18:51:AA:BB:CD,bridge=br0"
NAMESERVER="10.0.0.53 10.0.0.54"
SEARCHDOMAIN="inherit"
CAPABILITY="SYS_TIME:on NET_RAW:off VE_ADMIN:on"
FEATURES="nfs:on ppp:on sit:off"
DEVNODES="net/tun:rw fuse:rw "
DEVICES="c:10:229:rw b:8:all:r"
VE_ROOT="/vz/root/$VEID"
VE_PRIVATE="/vz/private/$VEID"
VE_LAYOUT="ploop"
OSTEMPLATE="debian-7.0-x86_64"
ORIGIN_SAMPLE="vswap-256m"
"""


def rows_of(text, name):
    return [(each["fate"], each["text"]) for each in translate(text)["rows"] if each["name"] == name]


def test_a_container_of_vzctl_4():
    told = translate(OLD, "101")
    assert told["generation"] == 6
    assert told["container"] == {
        "onboot": True, "boot_order": 10, "name": "shop", "hostname": "shop.example.org",
        "memory_bytes": 1 << 30, "swap_bytes": 512 << 20, "pids_limit": 240, "disk_bytes": 2306867 * 1024, "disk_inodes": 144179,
        "cpu_shares": 2048, "cpus": 2.0, "cpu_limit": 1.5, "cpuset_cpus": "0-3",
        "addresses": ["10.0.0.101", "2001:db8::65"],
        "interfaces": [{"name": "eth0", "mac": "00:18:51:AA:BB:CC", "bridge": "br0", "addresses": []}],
        "nameservers": ["10.0.0.53", "10.0.0.54"], "search_domains": None,
        "cap_add": ["SYS_TIME"], "cap_drop": ["NET_RAW"], "devices": ["/dev/ppp", "/dev/net/tun:rw", "/dev/fuse:rw"],
        "device_rules": ["c 10:229 rw", "b 8:* r"],
        "private": "/vz/private/101", "layout": "ploop", "template": "debian-7.0-x86_64",
    }  # fmt: skip
    assert rows_of(OLD, "CAPABILITY")[1] == ("reported", "VE_ADMIN: this is no capability of Linux's, but OpenVZ's own")
    assert rows_of(OLD, "NETIF")[1] == ("reported", "host_ifname=veth101.0: podman names the host's end")
    assert rows_of(OLD, "PHYSPAGES") == [("translated", "memory_bytes: 1073741824 bytes")]
    assert sum(told["fates"].values()) == len(told["rows"])
    assert table(told["rows"])[0] == "   2  carried     ONBOOT: onboot"


NEW = """\
UUID="c2d5b2a1-3c66-4c6f-8f0a-6f0a8d9e0b11"
VE_TYPE="regular"
DISTRIBUTION="centos"
PHYSPAGES="unlimited:unlimited"
CPULIMIT="0"
IOLIMIT="10M"
IOPSLIMIT="0"
IP_ADDRESS="10.0.0.7/255.255.255.0"
NETIF="ifname=eth0,mac=001851AABBCC,network=Bridged,ip=10.1.0.7/24,gw=10.1.0.1,dhcp=yes,colour=red;ifname=eth1"
QUOTAUGIDLIMIT="3000"
BINDMOUNT="/srv/data:/data,nosuid"
DISABLED="yes"
NAME="first"
NAME="second"
SOMETHING_NEW="1"
"""


def test_a_container_of_libvzctl():
    told = translate(NEW)
    assert told["generation"] == 7
    container = told["container"]
    assert container["memory_bytes"] is None and container["cpu_limit"] is None and container["io_operations"] is None
    assert container["io_bytes"] == 10 << 20
    assert container["addresses"] == ["10.0.0.7/24"]
    assert container["interfaces"][0] == {"name": "eth0", "mac": "001851AABBCC", "network": "Bridged", "addresses": ["10.1.0.7/24"], "gateway": "10.1.0.1"}
    assert container["bind_mounts"] == ["/srv/data:/data,nosuid"]
    assert container["disabled"] is True
    assert container["name"] == "second"
    assert rows_of(NEW, "NAME")[0] == ("reported", "line 14 says it, too, and that one counts")
    assert rows_of(NEW, "SOMETHING_NEW") == [("refused", "this parameter is not known here: find out if the container needs it")]
    assert ("refused", "colour=red: it is not known here") in rows_of(NEW, "NETIF")
    assert rows_of(NEW, "DISABLED")[0][1].startswith("the container must not be started")
    assert rows_of(NEW, "QUOTAUGIDLIMIT")[0][0] == "reported"


DEFAULTS = """\
VIRTUOZZO=yes
VE_PRIVATE=/vz/private/$VEID
VE_LAYOUT=ploop
LOCAL_UID=100000
STOP_TIMEOUT=30
STOP_TIMEOUT=40
CPULIMIT=50
NAMESERVER=inherit # Copy from host system's /etc/resolv.conf
"""


def test_what_a_container_has_of_its_host_s_defaults():
    told = translate("CPULIMIT=100\n", "101", DEFAULTS)
    assert told["container"] == {"cpu_limit": 1.0, "stop_timeout": 30, "nameservers": None}
    assert [(each["line"], each["name"]) for each in told["rows"]] == [(1, "CPULIMIT"), (0, "STOP_TIMEOUT"), (0, "NAMESERVER")]
    assert told["rows"][1]["text"] == "the host's default (vz.conf) 30: stop_timeout"
    assert translate("UUID=x\n", None, DEFAULTS)["container"] == {"cpu_limit": 0.5, "stop_timeout": 40, "nameservers": None}


def test_of_two_vzctl_4_takes_the_first():
    told = translate("NAME=first\nNAME=second\n")
    assert told["container"] == {"name": "first"}
    assert told["rows"][1]["text"] == "line 1 says it, too, and that one counts"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("PHYSPAGES=much", "'much' is no number"),
        ("ONBOOT=maybe", "'maybe' is neither yes nor no"),
        ("IP_ADDRESS=10.0.0.300", "10.0.0.300"),
        ("NETIF=ifname=eth0,broken", "'broken' has no equals sign"),
        ("NETIF=mac=00:18:51:AA:BB:CC", "has no ifname"),
        ("CPUS=two", "two"),
        ("CPULIMIT=50%", "is a part of all the source's processors"),
        ("NETIF=ifname=eth0,ip=10.0.0.1,10.0.0.2", "'10.0.0.2' has no equals sign"),
        ("CPUMASK=0 2", "'0 2' is no list of numbers"),
        ("NODEMASK=0x3", "'0x3' is no list of numbers"),
        ("DEVNODES=fuse", "'fuse' is no device and its rights"),
        ("DEVICES=c:10:229", "'c:10:229' is no kind, major, minor and rights"),
        ("CAPABILITY=SYS_TIME", "'SYS_TIME' is neither on nor off"),
    ],
)
def test_a_value_that_is_not_understood_is_refused(line, says):
    told = translate(line)
    assert told["container"] == {}
    assert [each["fate"] for each in told["rows"]] == ["refused"]
    assert "this value is not understood here: " in told["rows"][0]["text"] and says in told["rows"][0]["text"]


def test_values_that_vzctl_takes_as_well():
    told = translate('CPUS="unlimited"\nNAMESERVER=inherit # of the host\nDISKSPACE="2G:2.2G"\nCPUMASK="0,2-3"\n')
    assert told["container"] == {"cpus": None, "nameservers": None, "disk_bytes": int(2.2 * (1 << 30)), "cpuset_cpus": "0,2-3"}


def test_interfaces_as_libvzctl_writes_them():
    value = (
        "ifname=eth0,mac=001851AABBCC,configure=all,ip=10.1.0.7/255.255.255.0:10.2.0.7/24,ip6=fd00::7/64,fd01::7/64,;"
        "ifname=venet0,ifaceid=3;ifname=eth1,ip=,ip_filter=on,ip6=fd02::1"
    )
    told = translate(f'UUID=x\nNETIF="{value}"\n')
    assert [(each["name"], each["addresses"]) for each in told["container"]["interfaces"]] == [
        ("eth0", ["10.1.0.7/24", "10.2.0.7/24", "fd00::7/64", "fd01::7/64"]), ("venet0", []), ("eth1", ["fd02::1/128"]),
    ]  # fmt: skip
    assert told["fates"]["refused"] == 0


def test_lists_with_commas():
    told = translate('IP_ADDRESS="10.0.0.1, 10.1.0.1"\nNAMESERVER="9.9.9.9,8.8.8.8"\nDEVNODES="fuse:rw,net/tun:rw"\nDEVICES="c:10:200:rw,c:10:229:rw"\n')
    assert told["container"] == {
        "addresses": ["10.0.0.1", "10.1.0.1"], "nameservers": ["9.9.9.9", "8.8.8.8"], "devices": ["/dev/fuse:rw", "/dev/net/tun:rw"],
        "device_rules": ["c 10:200 rw", "c 10:229 rw"],
    }  # fmt: skip


def test_lines_that_vzctl_does_not_read_are_reported():
    rows = translate('what is this\nNAME="open\n="x"\n')["rows"]
    assert [each["text"] for each in rows] == [
        "vzctl does not read this line: it has no equals sign",
        "vzctl does not read this line: its quotation mark is not closed",
        "vzctl does not read this line: it has no name",
    ]


@pytest.mark.parametrize("name", RULES)
def test_no_line_of_any_value_is_left_out(name):
    random_values = random.Random(name)
    values = ["", "0", "1", "yes", "a:b", "unlimited", "1:2", "on", "x:on", "all", "0:512M", "net/tun:rw", "ifname=eth0"]
    values += ["".join(random_values.choices('abc019:=,; "\\/.', k=random_values.randint(1, 30))) for _index in range(50)]
    for value in values:
        text = f'{name}="{value}"\n'
        told = translate(text)
        assert {each["line"] for each in told["rows"]} == {line.number for line in read(text)} == {1}, text
        assert all(each["text"] and each["fate"] in told["fates"] for each in told["rows"])
