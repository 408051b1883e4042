# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._podman import sysctls, task_facts as facts


def write(root, path, text):
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


IGMP = """Idx\tDevice    : Count Querier\tGroup    Users Timer\tReporter
1\tlo        :     1      V3
\t\t\t\t010000E0     1 0:00000000\t\t0
2\teth0      :     2      V3
\t\t\t\t{0}     1 0:00000000\t\t0
\t\t\t\t010000E0     1 0:00000000\t\t0
"""
IGMP6 = """1    lo              ff020000000000000000000000000001     1 0000000C 0
2    eth0            ff0200000000000000000001ff640000     1 00000004 0
2    eth0            {0}     1 00000004 0
"""


ROUTER = "".join("2    eth0            {0}     1 00000004 0\n".format(group) for group in facts._EVERY_ROUTER)  # pylint: disable=protected-access


def namespaces(root, own):
    for place, number in (("self", 1), ("7", 2 if own else 1)):
        (root / place / "ns").mkdir(parents=True)
        (root / place / "ns/net").symlink_to("net:[{0}]".format(number))


@pytest.mark.parametrize(("ours", "theirs", "found"), [
    ("010000E0", IGMP6.format("ff010000000000000000000000000001"), []),
    ("FB0000E0", IGMP6.format("ff010000000000000000000000000001"), ["eth0"]),
    ("010000E0", IGMP6.format("ff0200000000000000000000000000fb"), ["eth0"]),
    ("010000E0", ROUTER, []),
    ("010000E0", ROUTER.replace("     1 ", "     2 ", 1), ["eth0"]),  # a program joined it, too
    ("010000E0", ROUTER.splitlines(True)[1], ["eth0"]),  # and here a program alone
])  # fmt: skip
def test_groups_that_not_every_host_is_in(tmp_path, ours, theirs, found):
    namespaces(tmp_path, own=True)
    write(tmp_path, "7/net/igmp", IGMP.format(ours))
    write(tmp_path, "7/net/igmp6", theirs)
    assert facts.multicast_groups(7, str(tmp_path)) == found


def test_groups_of_the_host_are_no_containers(tmp_path):
    namespaces(tmp_path, own=False)
    write(tmp_path, "7/net/igmp", IGMP.format("FB0000E0"))
    assert facts.multicast_groups(7, str(tmp_path)) == []


@pytest.mark.parametrize(("left", "of_init", "found"), [
    ("0-3", "0-3", [("shell", 7, [0, 1, 2]), ("worker", 9, [1, 3])]),  # all of one process alike: `taskset`
    ("0-3", "0-2", [("worker", 9, [1, 3])]),  # the host keeps one back
    ("0-2", "0-3", [("worker", 9, [1, 3])]),  # the cgroup does
    ("1", "0-3", []),
    ("3", "0", [("shell", 7, [0, 1, 2])]),  # nothing is in both
])  # fmt: skip
def test_threads_that_are_bound_to_some_processors(tmp_path, left, of_init, found):
    for task, processors in (("7/task/7", "0-2"), ("7/task/8", "0-2"), ("9/task/9", "0-3"), ("9/task/10", "1,3"), ("11/task/11", "0-3"), ("1", of_init)):
        write(tmp_path, task + "/status", "Name:\tx\nCpus_allowed_list:\t{0}\n".format(processors))
    for pid, name in ((7, "shell"), (9, "worker"), (11, "free")):
        write(tmp_path, "{0}/comm".format(pid), name + "\n")
        write(tmp_path, "{0}/cgroup".format(pid), "0::/one\n")
    write(tmp_path, "self/mounts", "cgroup2 /cgroup cgroup2 rw 0 0\n")
    write(tmp_path, "cgroup/one/cpuset.cpus.effective", left + "\n")
    named = [(each["process"], each["pid"], each["processors"]) for each in facts.pinned([7, 9, 11], str(tmp_path), str(tmp_path))]
    assert named == found


def test_settings_of_the_network():
    command = ["podman", "run", "--sysctl", "net.core.somaxconn=9", "--sysctl=kernel.shmmax=1", "image"]
    assert sysctls.named(command) == ["net.core.somaxconn=9"]


def test_settings_that_a_kernel_does_not_have(tmp_path):
    write(tmp_path, "sys/net/core/somaxconn", "9")
    write(tmp_path, "sys/net/ipv4/conf/eth0/rp_filter", "9")
    names = sysctls.known(str(tmp_path))
    assert names == ["net.core.somaxconn"]
    assert sysctls.missing(["net.core.somaxconn=9", "net.ipv4.conf.eth7.rp_filter=2", "net.mptcp.enabled=1"], names) == ["net.mptcp.enabled"]
