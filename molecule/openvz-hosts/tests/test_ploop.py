# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Container 105 moves live with its ploop disk. Its lines go into the page cache of the file system on the disk, and from there past every watcher of the
host's files into the image. None may be lost or doubled.

In the order of this file. LAB_FLEET is as in molecule/openvz/tests/test_openvz.py.
"""

from __future__ import annotations

import disk
import pytest
from moves import STATE

UP, NONE = f"CTID {disk.CTID} exist mounted running", f"CTID {disk.CTID} deleted unmounted down"
LEFT = f"ls -A /vz/lock /vz/dump /run/handover/openvz-turns/*.frozen 2>/dev/null | grep -v : | grep . ; findmnt --noheadings {disk.ROOT}"


@pytest.fixture(scope="module", name="mounted")
def with_the_disk(hosts):
    for host in hosts.both:
        host.check_output(disk.GETDEV)
    hosts.both[0].check_output(disk.MAKE + "sleep 1")
    yield hosts
    for host in hosts.both:
        host.run(disk.REMOVE)


def status(hosts):
    return [host.check_output(f"vzctl status {disk.CTID}").strip() for host in hosts.both]


def beats(host):
    return [int(line) for line in host.check_output(f"cat {disk.BEAT}").split()]


def move(hosts, **variables):
    return hosts.move(handover_workload=disk.CTID, handover_mode="live", **variables)


def goes_on(host, since):
    host.check_output("sleep 0.5")
    found = beats(host)
    assert found == list(range(1, len(found) + 1)) and len(found) > since
    return len(found)


def test_an_undump_that_is_none_is_taken_back(mounted, fault):
    before, there = beats(mounted.both[0]), mounted.left(1)
    fault(1, "restore --undump")
    rc, said = move(mounted)
    assert rc != 0 and "vzctl restore 105 --undump has ended, and the container is: exist unmounted down" in said, said
    assert status(mounted) == [UP, NONE] and mounted.left(1) == there and mounted.both[1].run(LEFT).stdout == ""
    goes_on(mounted.both[0], len(before))


def test_it_moves_with_its_memory_and_its_disk_there_and_back(mounted):
    count = len(beats(mounted.both[0]))
    for to in (1, 0):
        rc, said = move(mounted, to=to)
        assert rc == 0 and "(live)" in said and "is read as a whole for each pass" in said, said
        assert status(mounted) == ([UP, NONE] if to == 0 else [NONE, UP]) and mounted.both[1 - to].run(LEFT).stdout == ""
        count = goes_on(mounted.both[to], count)
    assert len(mounted.both[0].check_output(f"cat {STATE}/{disk.CTID}.witness").split()) > 10


def test_it_stands_still_and_frozen_while_it_is_held_and_goes_on_at_home(mounted):
    """The receiver dies before the release, which thaws the disk; the disk's last line is on both hosts by then."""
    source, destination = mounted.both
    begun = mounted.begin(handover_workload=disk.CTID, handover_mode="live", migrate_pause_at={"destination": "prepared"})
    try:
        prepared = f"grep -q '\"prepared\"' /var/lib/handover/sessions/{disk.CTID}-*/journal* 2>/dev/null && exit 0"
        destination.check_output(f"for n in $(seq 1000); do {prepared}; sleep 0.2; done; exit 1")
        before = beats(source)
        assert beats(destination) == before
        # A second freeze is refused: one is there.
        assert "busy" in source.run(f"fsfreeze --freeze {disk.ROOT}").stderr, "the file system is not frozen"
        # An operator's verbs are refused on both sides.
        verbs = (source, "chkpnt 105 --resume"), (destination, "restore 105 --resume"), (destination, "start 105")
        assert [host.run(f"vzctl {verb}").rc for host, verb in verbs] == [9, 9, 9]
        assert beats(source) == beats(destination) == before, "it runs while it is held"
        destination.check_output(f"pkill -KILL -f 'pcopy [r]eceive --session /var/lib/handover/sessions/{disk.CTID}-'")
    finally:
        rc, said = mounted.end(begun)
    assert rc != 0 and "105 was not moved and runs on" in said, said
    assert status(mounted) == [UP, NONE] and mounted.both[1].run(LEFT).stdout == ""
    goes_on(source, len(before))
