# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Container 103 moves live between two hosts of OpenVZ's, there and back. The stand-in for vzctl really stops its process, and CRIU dumps and restores it.
It goes on counting where it stood: its ledger has each number once, of all its time on either host.

In the order of this file, after test_driver.py. LAB_FLEET is as in test_openvz.py.
"""

from __future__ import annotations

import pytest
from moves import GONE, PRIVATE, RUNS, STATE, runs

# What a move locks a container with, keeps beside it, and leaves in no case.
LEFT = "ls -A /vz/lock /vz/dump /var/lib/handover/openvz 2>/dev/null | grep -v : | grep . ; systemctl list-units --plain --no-legend 'handover-openvz-*'"


@pytest.fixture(scope="module", autouse=True)
def ledger(hosts):
    """The ledger begins anew, with a start: the only one of this file."""
    hosts.both[0].check_output(f"vzctl stop 103; rm -f {PRIVATE}/var/log/beat; vzctl start 103; sleep 1")


def nothing_left(hosts):
    return [host.run(LEFT).stdout for host in hosts.both] == ["", ""]


def test_a_check_says_why_it_cannot_go_live(hosts):
    destination = hosts.both[1]
    destination.check_output(f"echo 775 >{STATE}/CPT_VERSION; echo 31 >{STATE}/CPT_CAPS")
    try:
        status, said = hosts.move("--check", handover_mode="live", handover_ignore_checks=["cpu"])
    finally:
        destination.check_output(f"rm {STATE}/CPT_VERSION {STATE}/CPT_CAPS")
    assert status != 0 and "writes dumps of version 776" in said and "reads them up to version 775" in said, said
    assert "`vzcptcheck caps` says 31 there and 63 here" in said and hosts.status() == [RUNS, GONE]


# The host's quota of a user, which is not in the container's files.
LIMITS = "ugid\nuser 1000 204800 256000 10000 12000"


def test_it_moves_with_its_memory_and_no_line_is_lost_or_doubled(hosts):
    hosts.both[0].check_output(f"echo 'QUOTAUGIDLIMIT=\"200\"' >>/etc/vz/conf/103.conf; echo '{LIMITS}' >{STATE}/103.quota")
    for to in (1, 0):
        status, said = hosts.move(to=to, handover_mode="live")
        assert status == 0 and "(live)" in said, said
        assert hosts.status() == ([RUNS, GONE] if to == 0 else [GONE, RUNS])
        assert nothing_left(hosts)
        assert [host.run(f"cat {STATE}/103.quota-on").stdout.strip() for host in hosts.both] == ([LIMITS, ""] if to == 0 else ["", LIMITS])
    beats = hosts.beats(0)
    # It was started once, and has not been since.
    assert beats == list(range(1, len(beats) + 1)) and len(beats) > 20


def test_an_undump_that_is_none_is_taken_back(hosts, fault):
    before = hosts.left(1)
    fault(1, "restore --undump")
    status, said = hosts.move(handover_mode="live")
    assert status != 0 and "vzctl restore 103 --undump has ended, and the container is: exist unmounted down" in said, said
    assert hosts.status() == [RUNS, GONE] and hosts.left(1) == before and nothing_left(hosts)
    beats = hosts.beats(0)
    assert beats == list(range(1, len(beats) + 1))
    assert len(runs(beats)) == 1


def test_neither_host_lets_it_go_while_it_is_held(hosts):
    """An operator's verbs are refused on both sides, before the release and after it; the receiver dies, and it goes on at home."""
    source, destination = hosts.both
    begun = hosts.begin(handover_mode="live", migrate_pause_at={"destination": "prepared"})
    try:
        prepared = "grep -q '\"prepared\"' /var/lib/handover/sessions/103-*/journal* 2>/dev/null && exit 0"
        destination.check_output(f"for n in $(seq 1000); do {prepared}; sleep 0.2; done; exit 1")
        before = hosts.beats(0)
        verbs = (source, "chkpnt 103 --resume"), (destination, "restore 103 --resume"), (destination, "start 103")
        assert [host.run(f"vzctl {verb}").rc for host, verb in verbs] == [9, 9, 9]
        assert hosts.beats(1) == hosts.beats(0) == before, "it runs while it is held"
        destination.check_output("pkill -KILL -f 'pcopy [r]eceive --session /var/lib/handover/sessions/103-'")
    finally:
        status, said = hosts.end(begun)
    assert status != 0 and "103 was not moved and runs on" in said, said
    assert hosts.status() == [RUNS, GONE] and nothing_left(hosts)
    beats = hosts.beats(0)
    assert beats == list(range(1, len(beats) + 1)) and len(beats) > len(before)
