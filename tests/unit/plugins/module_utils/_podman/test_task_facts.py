# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

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


def test_groups_that_not_every_host_is_in(tmp_path):
    for ours, theirs, found in (("010000E0", "ff010000000000000000000000000001", []), ("FB0000E0", "ff010000000000000000000000000001", ["eth0"]),
                                ("010000E0", "ff0200000000000000000000000000fb", ["eth0"])):  # fmt: skip
        write(tmp_path, "7/net/igmp", IGMP.format(ours))
        write(tmp_path, "7/net/igmp6", IGMP6.format(theirs))
        assert facts.multicast_groups(7, str(tmp_path)) == found


def test_threads_that_are_bound_to_some_processors(tmp_path):
    for task, processors in (("7/task/7", "0-3"), ("7/task/8", "0-3"), ("9/task/9", "0-3"), ("9/task/10", "1,3")):
        write(tmp_path, task + "/status", "Name:\tx\nCpus_allowed_list:\t{0}\n".format(processors))
    write(tmp_path, "9/comm", "worker\n")
    assert facts.pinned(7, [7], str(tmp_path)) == []
    assert facts.pinned(7, [7, 9], str(tmp_path)) == [{"process": "worker", "pid": 9, "processors": [1, 3]}]


def test_settings_of_the_network():
    command = ["podman", "run", "--sysctl", "net.core.somaxconn=9", "--sysctl=kernel.shmmax=1", "image"]
    assert sysctls.named(command) == ["net.core.somaxconn=9"]


def test_settings_that_a_kernel_does_not_have(tmp_path):
    write(tmp_path, "sys/net/core/somaxconn", "9")
    write(tmp_path, "sys/net/ipv4/conf/eth0/rp_filter", "9")
    names = sysctls.known(str(tmp_path))
    assert names == ["net.core.somaxconn"]
    assert sysctls.missing(["net.core.somaxconn=9", "net.ipv4.conf.eth7.rp_filter=2", "net.mptcp.enabled=1"], names) == ["net.mptcp.enabled"]
