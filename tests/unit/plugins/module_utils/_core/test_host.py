# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._core import host


@pytest.mark.parametrize("text, version", [("Version: 4.2.1\n", [4, 2, 1]), ("systemd 257 (257.13-1~deb13u1)", [257]), ("", []), ("none", [])])
def test_versions(text, version):
    assert host.parse_version(text) == version


def test_a_criu_configuration():
    text = "# by hand\nmanage-cgroups=ignore\naction-script /usr/libexec/hook # ours\n--tcp-established\n\n"
    assert host.parse_criu_configuration(text) == {"manage-cgroups": "ignore", "action-script": "/usr/libexec/hook", "tcp-established": ""}


def test_addresses_that_are_on_every_host_are_nobodys():
    document = [
        {"ifname": "lo", "addr_info": [{"local": "127.0.0.1", "prefixlen": 8}, {"local": "::1", "prefixlen": 128}]},
        {
            "ifname": "host0",
            "addr_info": [{"local": "10.77.0.11", "prefixlen": 24}, {"local": "fe80::1", "prefixlen": 64}, {"local": "fd00::11", "prefixlen": 64}],
        },
        {"ifname": "down0"},
    ]
    assert [each["address"] for each in host.parse_addresses(document)] == ["10.77.0.11", "fd00::11"]


def write(root, path, text):
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def test_memory_and_processor(tmp_path):
    write(tmp_path, "meminfo", "MemTotal:       100 kB\nMemAvailable:    42 kB\n")
    write(tmp_path, "cpuinfo", "processor\t: 0\nflags\t\t: sse2 avx\n\nprocessor\t: 1\nflags\t\t: sse2 avx\n")
    assert host.memory_available(str(tmp_path)) == 42 * 1024
    assert host.cpu_features(str(tmp_path)) == ["avx", "sse2"]


def test_ports_that_are_listened_on(tmp_path):
    title = "  sl  local_address rem_address   st\n"
    write(tmp_path, "net/tcp", title + "   0: 0100007F:0016 00000000:0000 0A\n   1: 0B004D0A:0050 0C004D0A:C001 01\n")
    write(tmp_path, "net/tcp6", title + "   0: 00000000000000000000000000000000:1F90 00000000000000000000000000000000:0000 0A\n")
    write(tmp_path, "net/udp", title + "   0: 00000000:0035 00000000:0000 07\n")
    assert [(each["protocol"], each["address"], each["port"]) for each in host.listening_ports(str(tmp_path))] == [
        ("tcp", "127.0.0.1", 22),
        ("tcp", "::", 8080),
        ("udp", "0.0.0.0", 53),
    ]


def test_the_topmost_mount_tells_the_options(tmp_path):
    write(
        tmp_path,
        "self/mountinfo",
        "30 1 7:1 / /mnt/a rw,relatime shared:1 - ext4 /dev/loop1 rw\n"
        "31 1 7:2 / /mnt/a rw,noatime shared:2 - ext4 /dev/loop2 rw,discard,stripe=4\n"
        "32 1 7:3 / /mnt/with\\040blank rw,nosuid,noatime - xfs /dev/loop3 rw,attr2\n",
    )
    assert host.mount_options("/mnt/a", str(tmp_path)) == ["noatime", "discard"]
    assert host.mount_options("/mnt/with blank", str(tmp_path)) == ["nosuid", "noatime"]
    assert host.mount_options("/mnt/none", str(tmp_path)) == []


class TestTheCgroupToFreeze:
    CONTAINER = "4c6b8ac0c5c4"

    def found(self, tmp_path, of_the_process, made, criu_options=None):
        write(tmp_path, "proc/7/cgroup", of_the_process)
        write(tmp_path, "proc/self/mounts", "tmpfs /sys/fs/cgroup tmpfs rw 0 0\ncgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n")
        write(tmp_path, made, "0\n")
        return host.freezable_cgroup(7, self.CONTAINER, criu_options or {}, str(tmp_path / "proc"), str(tmp_path))

    def test_is_the_containers_own(self, tmp_path):
        assert (
            self.found(tmp_path, "0::/libpod_parent/libpod-4c6b8ac0c5c4\n", "sys/fs/cgroup/unified/libpod_parent/libpod-4c6b8ac0c5c4/cgroup.freeze")
            == "/sys/fs/cgroup/unified/libpod_parent/libpod-4c6b8ac0c5c4"
        )

    def test_is_not_one_that_its_processes_made(self, tmp_path):
        scope = "machine.slice/libpod-4c6b8ac0c5c4.scope"
        found = self.found(tmp_path, f"0::/{scope}/init.scope\n", f"sys/fs/cgroup/unified/{scope}/cgroup.freeze")
        assert found == f"/sys/fs/cgroup/unified/{scope}"

    def test_is_none_where_the_kernel_cannot_freeze_it(self, tmp_path):
        assert self.found(tmp_path, "0::/libpod-4c6b8ac0c5c4\n", "sys/fs/cgroup/unified/libpod-4c6b8ac0c5c4/cgroup.procs") == ""

    def test_is_none_of_somebody_else(self, tmp_path):
        assert self.found(tmp_path, "0::/user.slice\n", "sys/fs/cgroup/unified/user.slice/cgroup.freeze") == ""

    def test_beside_the_old_hierarchy_only_if_criu_leaves_cgroups_alone(self, tmp_path):
        hybrid = ("6:freezer:/\n0::/libpod-4c6b8ac0c5c4\n", "sys/fs/cgroup/unified/libpod-4c6b8ac0c5c4/cgroup.freeze")
        assert self.found(tmp_path, *hybrid) == ""
        assert self.found(tmp_path, *hybrid, criu_options={"manage-cgroups": "ignore"}) == "/sys/fs/cgroup/unified/libpod-4c6b8ac0c5c4"


@pytest.mark.parametrize(
    ("path", "divided"),
    [
        ("/libpod-4c6b8ac0c5c4", False),
        ("/machine.slice/libpod-4c6b8ac0c5c4.scope", False),
        ("/machine.slice/libpod-4c6b8ac0c5c4.scope/container", False),
        ("/machine.slice/libpod-4c6b8ac0c5c4.scope/container/init.scope", True),
        ("/libpod-4c6b8ac0c5c4/init.scope", True),
    ],
)
def test_cgroups_that_a_container_has_made(tmp_path, path, divided):
    write(tmp_path, "7/cgroup", "0::{0}\n".format(path))
    assert host.divided_cgroup(7, "4c6b8ac0c5c4", "", proc=str(tmp_path)) is divided
    (tmp_path / "own" / "below").mkdir(parents=True)
    assert host.divided_cgroup(7, "4c6b8ac0c5c4", str(tmp_path / "own"), proc=str(tmp_path))


def test_a_namespace_of_its_own(tmp_path):
    for process, namespace in (("self", "cgroup:[1]"), ("7", "cgroup:[2]"), ("8", "cgroup:[1]")):
        (tmp_path / process / "ns").mkdir(parents=True)
        (tmp_path / process / "ns" / "cgroup").symlink_to(namespace)
    assert [host.has_own_namespace(pid, "cgroup", proc=str(tmp_path)) for pid in (7, 8, 9)] == [True, False, False]


class TestTheCgroupToSlowDown:
    CONTAINER = "4c6b8ac0c5c4"
    MOUNTS = (
        "cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n"
        "cgroup /sys/fs/cgroup/pids cgroup rw,pids 0 0\n"
        "cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0\n"
    )
    V2 = "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n"

    def found(self, tmp_path, of_the_process, mounts, made=""):
        write(tmp_path, "proc/7/cgroup", of_the_process)
        write(tmp_path, "proc/self/mounts", mounts)
        if made:
            write(tmp_path, made, "0\n")
        return host.limitable_cgroup(7, self.CONTAINER, str(tmp_path / "proc"), str(tmp_path))

    def test_is_the_containers_own(self, tmp_path):
        scope = "machine.slice/libpod-4c6b8ac0c5c4.scope"
        found = self.found(tmp_path, f"0::/{scope}/container\n", self.V2, f"sys/fs/cgroup/{scope}/cpu.max")
        assert found == {"cgroup": f"/sys/fs/cgroup/{scope}", "why": ""}

    def test_is_in_the_old_hierarchy_if_that_has_the_controller(self, tmp_path):
        of_the_process = "5:pids:/x\n4:cpu,cpuacct:/libpod_parent/libpod-4c6b8ac0c5c4\n0::/libpod_parent/libpod-4c6b8ac0c5c4\n"
        directory = "/sys/fs/cgroup/cpu,cpuacct/libpod_parent/libpod-4c6b8ac0c5c4"
        assert self.found(tmp_path, of_the_process, self.MOUNTS, f"{directory[1:]}/cpu.cfs_quota_us") == {"cgroup": directory, "why": ""}

    @pytest.mark.parametrize(
        ("of_the_process", "mounts", "why"),
        [
            ("0::/libpod-4c6b8ac0c5c4\n", V2, "its cgroup /sys/fs/cgroup/libpod-4c6b8ac0c5c4 has no cpu.max: the controller cpu is not given to it"),
            ("1:cpu:/\n0::/libpod-4c6b8ac0c5c4\n", V2, "it has no cgroup of its own in the hierarchy of the controller cpu, which is one of version 1"),
            ("0::/user.slice\n", V2, "it has no cgroup of its own in the hierarchy of the controller cpu, which is one of version 2"),
        ],
    )
    def test_is_none_and_why(self, tmp_path, of_the_process, mounts, why):
        assert self.found(tmp_path, of_the_process, mounts) == {"cgroup": "", "why": why}


@pytest.mark.parametrize(("text", "numbers"), [("0-2,5", [0, 1, 2, 5]), ("0-3,^1", [0, 2, 3]), ("", []), ("7\n", [7])])
def test_lists_of_numbers(text, numbers):
    assert host.numbers(text) == numbers


@pytest.mark.parametrize(("of_the_process", "mount", "file", "left"), [
    ("0::/a/b", "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0", "sys/fs/cgroup/a/b/cpuset.cpus.effective", {1, 3}),
    ("0::/a/b", "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0", "sys/fs/cgroup/a/cpuset.cpus.effective", {1, 3}),
    ("0::/a/b", "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0", "sys/fs/cgroup/c/cpuset.cpus.effective", {0, 1, 2, 3}),
    ("4:cpuset,cpu:/a\n0::/a", "cgroup /sys/fs/cgroup/cpuset cgroup rw,cpuset 0 0", "sys/fs/cgroup/cpuset/a/cpuset.effective_cpus", {1, 3}),
])  # fmt: skip
def test_the_processors_that_a_cgroup_leaves(tmp_path, of_the_process, mount, file, left):
    write(tmp_path, "sys/devices/system/cpu/online", "0-3\n")
    write(tmp_path, "proc/7/cgroup", of_the_process + "\n")
    write(tmp_path, "proc/self/mounts", mount + "\n")
    write(tmp_path, file, "1,3\n")
    assert host.processors_left(7, str(tmp_path / "proc"), str(tmp_path)) == left


def test_the_speed_of_a_link(tmp_path):
    write(tmp_path, "class/net/eth0/speed", "10000\n")
    write(tmp_path, "class/net/br0/speed", "-1\n")
    assert [host.link_speed(name, str(tmp_path)) for name in ("eth0", "br0", "none")] == [10000, 0, 0]


def test_space_taken_counts_holes_and_second_names_once(tmp_path):
    sparse = tmp_path / "sparse"
    with open(sparse, "wb") as target:
        target.truncate(2**30)
    full = tmp_path / "tree" / "full"
    full.parent.mkdir()
    full.write_bytes(b"x" * 2**20)
    os.link(full, tmp_path / "tree" / "again")
    assert host.allocated(str(sparse)) < 2**20
    assert 2**20 <= host.allocated(str(tmp_path / "tree")) < 2 * 2**20
    assert host.allocated(str(tmp_path / "missing")) == 0


def test_space_of_a_directory_that_does_not_exist_yet(tmp_path):
    assert host.free_space(str(tmp_path / "a" / "b")) > 0


def test_open_connections_are_counted_by_the_address_here(tmp_path):
    header = "  sl  local_address rem_address   st tx_queue rx_queue\n"
    write(
        tmp_path,
        "70/net/tcp",
        header
        + "   0: 00000000:1538 00000000:0000 0A 00000000:00000000\n"
        + "   1: 3C00D50A:1538 0100D50A:C001 01 00000000:00000000\n"
        + "   2: 3C00D50A:1538 0100D50A:C002 01 00000000:00000000\n"
        + "   3: 3C00D50A:1538 0100D50A:C003 06 00000000:00000000\n"
        + "   4: 0100007F:1538 0100007F:C004 01 00000000:00000000\n"
        + "   5: 3C00D50A:1538 3C00D50A:C005 01 00000000:00000000\n",
    )
    # One of IPv6, and one of IPv4 on a socket of IPv6.
    write(
        tmp_path,
        "70/net/tcp6",
        header
        + "   0: 1E9A4CFD00307B000000000064000000:1538 1E9A4CFD00307B000000000001000000:C006 01 00000000:00000000\n"
        + "   1: 0000000000000000FFFF00003C00D50A:1538 0000000000000000FFFF00000100D50A:C007 01 00000000:00000000\n",
    )
    found = host.connections(70, str(tmp_path))
    assert found.pop("10.213.0.60") == 3
    assert list(found.values()) == [1]
    assert host.connections(71, str(tmp_path)) == {}


def test_defaults_that_an_engine_gives_its_containers(tmp_path):
    first, second = tmp_path / "a.conf", tmp_path / "b.conf"
    first.write_text(
        '[containers]\n# umask = "0022"\npids_limit = 100 # few\ndefault_capabilities = [\n  "CHOWN", # one\n  "KILL",\n]\n'
        'log_driver = "none"\n[engine]\nruntime = "runc"\n'
    )
    (tmp_path / "b.conf.d").mkdir()
    second.write_text("[containers]\npids_limit = 200\n")
    (tmp_path / "b.conf.d" / "10-own.conf").write_text("[containers]\nshm_size = '65536k'\ntz = 'a#b'\n")
    assert host.engine_defaults([str(first), str(second), str(tmp_path / "none.conf")]) == {
        "pids_limit": "200",
        "default_capabilities": '["CHOWN","KILL"]',
        "tz": '"a#b"',
    }
