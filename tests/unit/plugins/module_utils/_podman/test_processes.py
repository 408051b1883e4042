# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is read off /proc, on a /proc that a test has written. Real processes are in tests/integration_local."""

from __future__ import annotations

import os
import socket

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._podman import processes
from ansible_collections.livefleet.handover.plugins.module_utils._podman.processes import Obstacle, Processes


def process(proc, number, status="", **links):
    """A process of the container, as /proc shows it."""
    directory = proc / str(number)
    for name in ("ns", "fd", "fdinfo"):
        (directory / name).mkdir(parents=True)
    (directory / "comm").write_text("db\n")
    (directory / "smaps_rollup").write_text("Rss: 900 kB\nPss: 800 kB\nPss_Anon: 100 kB\nPss_File: 600 kB\nPss_Shmem: 20 kB\nSwapPss: 3 kB\n")
    (directory / "status").write_text("Name:\tdb\n" + (status or "TracerPid:\t0\n"))
    namespaces = {"pid": "pid:[9]", "pid_for_children": "pid:[9]", "user": "user:[1]", "ipc": "ipc:[2]", "uts": "uts:[3]", "cgroup": "cgroup:[4]", **links}
    for name, target in namespaces.items():
        os.symlink(target, directory / "ns" / name)


def file(proc, pid, number, target, flags="02"):
    os.symlink(target, proc / str(pid) / "fd" / str(number))
    (proc / str(pid) / "fdinfo" / str(number)).write_text("pos:\t0\nflags:\t{0}\nmnt_id:\t15\n".format(flags))


def found(proc):
    return processes.processes_of(70, proc=str(proc)).obstacles


def test_those_of_one_container_and_their_memory(tmp_path):
    process(tmp_path, 1, pid="pid:[1]", pid_for_children="pid:[1]")
    process(tmp_path, 70)
    process(tmp_path, 71)
    of_container = processes.processes_of(70, proc=str(tmp_path))
    assert of_container.pids == (70, 71)
    assert of_container.memory == 2 * (100 + 20 + 3) * 1024
    assert of_container.obstacles == ()


def test_a_container_that_has_gone(tmp_path):
    assert processes.processes_of(4711, proc=str(tmp_path)) == Processes((), 0, ())


@pytest.mark.parametrize(
    ("target", "flags", "check"),
    [
        ("anon_inode:[io_uring]", "02", "io_uring"),
        ("anon_inode:[pidfd]", "02000002", "pidfds"),
        ("pidfd:[4711]", "02000202", "thread_pidfds"),
        ("pipe:[4711]", "040001", "packet_pipes"),
        ("pipe:[4711]", "01", None),
        ("anon_inode:[userfaultfd]", "02", "files"),
        ("anon_inode:[eventpoll]", "02", None),
        ("anon_inode:inotify", "0", None),
        ("socket:[4711]", "02", None),
        ("mnt:[4026531841]", "0", None),
        ("/sys/fs/cgroup/memory.pressure", "02", "pressure_triggers"),
        ("/sys/fs/cgroup/system.slice/a.service/io.pressure", "01", "pressure_triggers"),
        ("/proc/pressure/cpu", "0100002", "pressure_triggers"),
        ("/sys/fs/cgroup/memory.pressure", "0", None),  # it is only read
        ("/data/memory.pressure", "02", None),
    ],
)
def test_kinds_of_open_files(tmp_path, target, flags, check):
    process(tmp_path, 70)
    file(tmp_path, 70, 4, target, flags)
    assert [obstacle.check for obstacle in found(tmp_path)] == ([check] if check else [])


@pytest.mark.parametrize(
    ("name", "content", "checks"),
    [
        ("wiki.db", b"SQLite format 3\0".ljust(512, b"x"), ["databases"]),
        ("wiki.db-wal", b"7", ["databases"]),
        ("sealed.db", b"of SQLCipher", []),  # it is known by what lies beside it
        ("notes", b"", []),
    ],
)
def test_a_database_is_known_by_its_content_or_its_name(tmp_path, name, content, checks):
    process(tmp_path, 70)
    (tmp_path / name).write_bytes(content)
    file(tmp_path, 70, 4, tmp_path / name)
    assert [(each.check, each.detail) for each in found(tmp_path)] == [(check, str(tmp_path / "wiki.db")) for check in checks]


@pytest.mark.parametrize(
    ("environment", "program", "told"),
    [
        ("MEMORY_PRESSURE_WATCH=/sys/fs/cgroup/memory.pressure\0MEMORY_PRESSURE_WRITE=c29tZQ==\0", "/usr/sbin/server", True),
        ("MEMORY_PRESSURE_WATCH=/sys/fs/cgroup/memory.pressure\0", "/usr/sbin/server", False),
        ("MEMORY_PRESSURE_WATCH=/sys/fs/cgroup/a/memory.pressure\0MEMORY_PRESSURE_WRITE=c29tZQ==\0", "/usr/sbin/server", False),
        ("", "/usr/lib/systemd/systemd", True),
        ("", "/usr/lib/systemd/systemd-logind", True),
    ],
)
def test_a_trigger_that_can_be_set_again(tmp_path, environment, program, told):
    process(tmp_path, 70)
    file(tmp_path, 70, 4, "/sys/fs/cgroup/memory.pressure")
    (tmp_path / "70" / "environ").write_text(environment)
    os.symlink(program, tmp_path / "70" / "exe")
    assert [obstacle.check for obstacle in found(tmp_path)] == ([] if told else ["pressure_triggers"])


@pytest.mark.parametrize(
    ("link", "namespace"), [("user", "user"), ("pid_for_children", "pid"), ("cgroup", "cgroup"), ("uts", "uts"), ("ipc", "ipc")]
)
def test_a_namespace_inside_the_containers_own(tmp_path, link, namespace):
    process(tmp_path, 70)
    process(tmp_path, 71, **{link: namespace + ":[77]"})
    assert found(tmp_path) == (Obstacle("nested_namespaces", "db", 71, namespace),)


def test_one_that_is_traced(tmp_path):
    process(tmp_path, 70, status="TracerPid:\t68\n")
    assert found(tmp_path) == (Obstacle("traced", "db", 70, "68"),)


def test_the_manager_of_a_user(tmp_path):
    process(tmp_path, 70)
    (tmp_path / "70" / "comm").write_text("(sd-pam)\n")
    assert found(tmp_path) == (Obstacle("user_managers", "(sd-pam)", 70),)


MOUNTS = """\
10 1 0:30 / / rw - overlay overlay rw
11 10 0:31 / /proc rw - proc proc rw
12 11 0:31 /sys /proc/sys ro - proc proc rw
13 10 7:1 / /srv/data rw - ext4 /dev/loop1 rw
14 13 7:2 / /srv/data/deep rw - ext4 /dev/loop2 rw
15 10 7:3 / /srv/other rw - ext4 /dev/loop3 rw
"""


@pytest.mark.parametrize(
    ("line", "hidden"),
    [
        ("", set()),
        ("20 13 0:40 / /srv/data rw - tmpfs tmpfs rw\n", {13, 14}),  # on the mount itself: what is below it is behind it too
        ("20 10 0:40 / /srv rw - tmpfs tmpfs rw\n", {13, 14, 15}),  # on a directory above
        ("20 14 0:40 / /srv/data/deep rw - tmpfs tmpfs rw\n", {14}),
        ("20 10 0:40 / /srv/oth rw - tmpfs tmpfs rw\n", set()),  # the beginning of a name is no directory above
    ],
)
def test_mounts_that_another_lies_over(line, hidden):
    assert processes.hidden_mounts(MOUNTS + line) == hidden


@pytest.mark.parametrize(
    ("family", "kind", "protocol", "name"),
    [
        (socket.AF_INET, socket.SOCK_STREAM, 6, ""),
        (socket.AF_INET6, socket.SOCK_DGRAM, 17, ""),
        (socket.AF_INET, socket.SOCK_RAW, 89, ""),
        (socket.AF_UNIX, socket.SOCK_STREAM, 0, ""),
        (socket.AF_NETLINK, socket.SOCK_RAW, 15, ""),
        (socket.AF_INET, socket.SOCK_STREAM, 262, "MPTCP"),
        (socket.AF_INET, socket.SOCK_SEQPACKET, 132, "SCTP"),
        (40, socket.SOCK_STREAM, 0, "virtual machines' sockets (vsock)"),
        (99, socket.SOCK_STREAM, 0, "address family 99"),
    ],
)
def test_sockets_that_criu_does_not_know(family, kind, protocol, name):
    assert processes.unknown_socket(family, kind, protocol) == name
