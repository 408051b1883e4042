# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils import (
    _host as host,
)


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


class TestProcesses:
    @staticmethod
    def process(proc, pid, pid_namespace, **links):
        write(proc, "{0}/comm".format(pid), "db\n")
        write(proc, "{0}/smaps_rollup".format(pid), "Rss: 900 kB\nPss: 800 kB\nPss_Anon: 100 kB\nPss_File: 600 kB\nPss_Shmem: 20 kB\nSwapPss: 3 kB\n")
        write(proc, "{0}/status".format(pid), "Name:\tdb\nSeccomp:\t2\n")
        namespaces = {"pid": pid_namespace, "pid_for_children": pid_namespace, "user": "user:[1]", "ipc": "ipc:[2]", "uts": "uts:[3]", **links}
        (proc / str(pid) / "ns").mkdir()
        (proc / str(pid) / "fd").mkdir()
        for name, target in namespaces.items():
            os.symlink(target, proc / str(pid) / "ns" / name)

    def test_those_of_one_container_and_their_memory(self, tmp_path):
        self.process(tmp_path, 1, "pid:[1]")
        self.process(tmp_path, 70, "pid:[9]")
        self.process(tmp_path, 71, "pid:[9]")
        found = host.processes_of(70, str(tmp_path))
        assert found.pids == (70, 71)
        assert found.memory == 2 * (100 + 20 + 3) * 1024
        assert found.obstacles == ()
        assert host.has_seccomp_filter(70, str(tmp_path))

    def test_io_uring_is_found(self, tmp_path):
        self.process(tmp_path, 70, "pid:[9]")
        os.symlink("anon_inode:[io_uring]", tmp_path / "70" / "fd" / "4")
        assert host.processes_of(70, str(tmp_path)).obstacles == ("db (pid 70) uses io_uring, which CRIU cannot dump",)

    def test_a_namespace_inside_the_containers_own_is_found(self, tmp_path):
        self.process(tmp_path, 70, "pid:[9]")
        self.process(tmp_path, 71, "pid:[9]", user="user:[8]")
        assert host.processes_of(70, str(tmp_path)).obstacles == ("db (pid 71) is in a user namespace of its own",)

    def test_a_large_deleted_file_is_found_in_a_real_process(self, tmp_path):
        own = os.getpid()
        path = tmp_path / "big"
        with open(path, "wb") as big:
            big.truncate(host.GHOST_LIMIT + 1)
            path.unlink()
            found = [each for each in host._obstacles("/proc", own) if str(path) in each]
        assert found and "too large for CRIU to carry" in found[0]

    def test_a_process_that_has_gone(self, tmp_path):
        assert host.processes_of(4711, str(tmp_path)) == host.Processes((), 0, ())
