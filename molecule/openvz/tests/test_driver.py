# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Container 103 moves between two hosts of OpenVZ's, by the driver openvz. It writes a line each tenth of a second; of these none is lost or doubled.

In the order of this file. LAB_FLEET is as in test_openvz.py.
"""

from __future__ import annotations

import pytest
from moves import GONE, PRIVATE, RUNS, STATE, WEB, runs


def test_a_check_says_each_obstacle_and_touches_nothing(hosts):
    hosts.both[0].check_output("echo 'COLOUR=\"red\"' >>/etc/vz/conf/103.conf")
    before = hosts.left(0), hosts.left(1)
    status, said = hosts.move("--check", handover_mode="live")
    assert status != 0, said
    assert "103 has the parameter COLOUR in its configuration" in said
    assert (hosts.left(0), hosts.left(1)) == before and hosts.status() == [RUNS, GONE]
    hosts.both[0].check_output("sed -i /COLOUR/d /etc/vz/conf/103.conf")


def test_a_start_that_does_nothing_is_taken_back(hosts, fault):
    before = hosts.left(1)
    fault(1, "start")
    status, said = hosts.move()
    assert status != 0 and "vzctl start 103 has ended, and the container is: exist unmounted down" in said, said
    assert hosts.status() == [RUNS, GONE] and hosts.left(1) == before


def test_neither_host_starts_it_after_the_release_and_it_comes_home_when_the_other_never_ran_it(hosts):
    before = hosts.left(1)
    begun = hosts.begin(migrate_pause_at={"destination": "released"})
    try:
        released = "grep -q '\"released\"' /var/lib/handover/sessions/103-*/journal* 2>/dev/null && exit 0"
        hosts.both[1].check_output(f"for n in $(seq 1000); do {released}; sleep 0.2; done; exit 1")
        assert hosts.both[0].run("vzctl start 103").rc == 79 and hosts.both[1].run("vzctl start 103").rc == 14
        assert hosts.status() == ["CTID 103 exist unmounted down", GONE]
        # It has taken the run token, and has registered nothing.
        hosts.both[1].check_output("pkill -KILL -f 'pcopy [r]eceive --session /var/lib/handover/sessions/103-'")
    finally:
        status, said = hosts.end(begun)
    assert status != 0 and "103 was not moved and runs on" in said, said
    assert hosts.status() == [RUNS, GONE] and hosts.left(1) == before and "103-" not in hosts.left(0)


def test_it_moves_and_no_line_is_lost_or_doubled(hosts):
    status, said = hosts.move()
    assert status == 0 and "103 has moved from" in said, said
    assert hosts.status() == [GONE, RUNS]
    assert hosts.both[0].run(f"test -e {PRIVATE}").rc == 1 and hosts.both[0].run("test -e /etc/vz/names/vz-still").rc == 1
    assert 'NAME="vz-still"' in hosts.both[1].check_output("cat /etc/vz/names/vz-still")
    # Started at first, again each time when a move was taken back, and here.
    assert [run == list(range(1, len(run) + 1)) for run in runs(hosts.beats(1))] == [True] * 4


def test_the_source_is_kept_and_nothing_starts_without_the_helper(hosts):
    status, said = hosts.move(to=0, migrate_keep_source=True)
    assert status == 0, said
    assert hosts.status() == [RUNS, GONE]
    assert "103.conf.migrated" in hosts.left(1) and hosts.both[1].run(f"test -d {PRIVATE}/var").rc == 0
    assert [run == list(range(1, len(run) + 1)) for run in runs(hosts.beats(0))] == [True] * 5
    source = hosts.both[0]
    source.check_output("vzctl stop 103; mv /usr/local/libexec/handover/pcopy /usr/local/libexec/handover/pcopy.away")
    try:
        assert source.run("vzctl start 103").rc == 79
    finally:
        source.check_output("mv /usr/local/libexec/handover/pcopy.away /usr/local/libexec/handover/pcopy; vzctl start 103")


def test_a_host_is_planned_and_moved_with_it(hosts):
    """By its id, as one of a fleet's workloads: nobody says which driver moves it. Of those beside it each has its own sentence."""
    hosts.both[1].check_output(f"rm -r {PRIVATE} /etc/vz/conf/103.conf.migrated")
    status, said = hosts.end(hosts.play("drain", "--check", handover_source=hosts.names[0]))
    assert status != 0, said
    assert f"103 can move from {hosts.names[0]} to {hosts.names[1]}." in said, said
    assert "the private area /vz/private/101 of 101" in said and "has a ploop disk" in said
    assert hosts.status() == [RUNS, GONE]
    for to in (1, 0):
        status, said = hosts.end(hosts.play("move", handover_moves=[{"workload": "103", "to": hosts.names[to]}]))
        assert status == 0, said
        assert hosts.status() == ([RUNS, GONE] if to == 0 else [GONE, RUNS])
    assert [run == list(range(1, len(run) + 1)) for run in runs(hosts.beats(0))] == [True] * 8


PLOOP = "/var/lib/containers/vz/private/104"


@pytest.fixture
def ploop(hosts):
    """Container 104 on the first host, whose disk the kernel writes to; both hosts' ploop would give it a device, as far as one asks."""
    web = f"/vz/private/{WEB}"
    disk = f"{PLOOP}/root.hdd"
    for host in hosts.both:
        host.check_output("printf '#!/bin/sh\\ntest \"$1\" = getdev && echo /dev/ploop12345\\n' >/usr/local/sbin/ploop; chmod +x /usr/local/sbin/ploop")
    source = hosts.both[0]
    source.check_output(f"mkdir -p {PLOOP} && cp --archive --sparse=always {web}/root.hdd {disk} && truncate --size 1M {disk}/root.hds.counted")
    another = f'/^UUID=/d; /^IP_ADDRESS=/d; s/vz-web/vz-disk/; s,^VE_PRIVATE=.*,VE_PRIVATE="{PLOOP}",'
    source.check_output(f"sed '{another}' /etc/vz/conf/{WEB}.conf >/etc/vz/conf/104.conf")
    source.check_output("vzctl start 104")
    yield disk
    for host in hosts.both:
        host.run(f"vzctl stop 104; rm -rf {PLOOP} /etc/vz/conf/104.conf* /etc/vz/names/vz-disk {STATE}/104.* /usr/local/sbin/ploop")


def test_a_ploop_disk_has_the_kernels_last_write(hosts, ploop):
    source, destination = hosts.both
    digests = f"cd {ploop} && sha256sum DiskDescriptor.xml root.hds root.hds.1"
    before = source.check_output(digests)
    status, said = hosts.move("--check", handover_workload="104")
    assert status == 0 and "is sent twice, and 104 stands still the second time" in said, said
    status, said = hosts.move(handover_workload="104")
    assert status == 0, said
    assert [host.check_output("vzctl status 104").strip() for host in hosts.both] == ["CTID 104 deleted unmounted down", "CTID 104 exist mounted running"]
    assert destination.check_output(digests) == before
    last, first = (int(host.check_output(f"cat {STATE}/104.counted").split()[number]) for host, number in ((source, 1), (destination, 0)))
    # It writes to the disk first, and may be stopped before it says so.
    assert last > 10 and first - last in (0, 1)
