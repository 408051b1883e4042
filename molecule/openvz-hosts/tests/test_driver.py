# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Container 103 moves between two hosts of OpenVZ's, by the driver openvz. It writes a line each tenth of a second; of these none is lost or doubled.

In the order of this file. LAB_FLEET is as in molecule/openvz/tests/test_openvz.py.
"""

from __future__ import annotations

import pytest
from disk import GETDEV
from moves import GONE, PRIVATE, RUNS, STATE, runs


def test_a_check_says_each_obstacle_and_touches_nothing(hosts):
    source, destination = hosts.both
    source.check_output("echo 'COLOUR=\"red\"' >>/etc/vz/conf/103.conf")
    destination.check_output(f"echo 775 >{STATE}/CPT_VERSION; echo 31 >{STATE}/CPT_CAPS")
    before = hosts.left(0), hosts.left(1)
    try:
        status, said = hosts.move("--check", handover_mode="live", handover_ignore_checks=["cpu"])
    finally:
        destination.check_output(f"rm {STATE}/CPT_VERSION {STATE}/CPT_CAPS")
        source.check_output("sed -i /COLOUR/d /etc/vz/conf/103.conf")
    assert status != 0, said
    assert "103 has the parameter COLOUR in its configuration" in said
    assert "writes dumps of version 776" in said and "reads them up to version 775" in said, said
    assert "`vzcptcheck caps` says 31 there and 63 here" in said
    assert (hosts.left(0), hosts.left(1)) == before and hosts.status() == [RUNS, GONE]


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


# Beside it: a container on a file system that cannot be watched, and one with a ploop disk, for which the other host has no device.
BESIDE = """
mkdir -p /vz/private/101/etc /var/lib/containers/vz/private/106/root.hdd
echo '<Parallels_disk_image/>' >/var/lib/containers/vz/private/106/root.hdd/DiskDescriptor.xml
printf 'VE_PRIVATE="/vz/private/$VEID"\\nVE_LAYOUT="simfs"\\n' >/etc/vz/conf/101.conf
printf 'VE_LAYOUT="ploop"\\n' >/etc/vz/conf/106.conf
"""


@pytest.fixture
def beside(hosts):
    hosts.both[0].check_output(BESIDE)
    yield
    hosts.both[0].check_output("rm -r /vz/private/101 /var/lib/containers/vz/private/106 /etc/vz/conf/101.conf /etc/vz/conf/106.conf")


def test_a_host_is_planned_and_moved_with_it(hosts, beside):
    """By its id, as one of a fleet's workloads: nobody says which driver moves it. Of those beside it each has its own sentence."""
    hosts.both[1].check_output(f"rm -r {PRIVATE} /etc/vz/conf/103.conf.migrated")
    status, said = hosts.end(hosts.play("drain", "--check", handover_source=hosts.names[0]))
    assert status != 0, said
    assert f"103 can move from {hosts.names[0]} to {hosts.names[1]}." in said, said
    assert "the private area /vz/private/101 of 101" in said and "106 has a ploop disk" in said
    assert hosts.status() == [RUNS, GONE]
    status, said = hosts.end(hosts.play("move", handover_moves=[{"workload": "103", "to": hosts.names[1]}]))
    assert status == 0, said
    assert hosts.status() == [GONE, RUNS]
    assert [run == list(range(1, len(run) + 1)) for run in runs(hosts.beats(1))] == [True] * 7


PLOOP = "/var/lib/containers/vz/private/104"
# Its layers are no more than bytes here: nothing reads them. A process writes beside them as the kernel writes to a layer.
MAKE = f"""set -e
mkdir -p {PLOOP}/root.hdd && cd {PLOOP}/root.hdd
echo '<Parallels_disk_image/>' >DiskDescriptor.xml
head -c 8M /dev/urandom >root.hds
head -c 1M /dev/urandom >root.hds.1
truncate --size 1M root.hds.counted
printf 'NAME="vz-two-layers"\\nVE_PRIVATE="{PLOOP}"\\nVE_LAYOUT="ploop"\\n' >/etc/vz/conf/104.conf
vzctl start 104
"""


@pytest.fixture
def ploop(hosts):
    """Container 104 on the first host, whose disk the kernel writes to; both hosts' ploop would give it a device, as far as one asks."""
    for host in hosts.both:
        host.check_output(GETDEV)
    hosts.both[0].check_output(MAKE)
    yield f"{PLOOP}/root.hdd"
    for host in hosts.both:
        host.run(f"vzctl stop 104; rm -rf {PLOOP} /etc/vz/conf/104.conf* /etc/vz/names/vz-two-layers {STATE}/104.* /usr/local/sbin/ploop")


def test_a_ploop_disk_has_the_kernels_last_write(hosts, ploop):
    source, destination = hosts.both
    digests = f"cd {ploop} && sha256sum DiskDescriptor.xml root.hds root.hds.1"
    before = source.check_output(digests)
    status, said = hosts.move(handover_workload="104")
    assert status == 0 and "is sent twice, and 104 stands still the second time" in said, said
    assert [host.check_output("vzctl status 104").strip() for host in hosts.both] == ["CTID 104 deleted unmounted down", "CTID 104 exist mounted running"]
    assert destination.check_output(digests) == before
    last, first = (int(host.check_output(f"cat {STATE}/104.counted").split()[number]) for host, number in ((source, 1), (destination, 0)))
    # It writes to the disk first, and may be stopped before it says so.
    assert last > 10 and first - last in (0, 1)
