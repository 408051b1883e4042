# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Container 103 moves live between two hosts of OpenVZ's, there and back. The stand-in for vzctl really stops its process, and CRIU dumps and restores it.
It goes on counting where it stood: its ledger has each number once, of all its time on either host.

After test_driver.py, which leaves it on the second host. LAB_FLEET is as in molecule/openvz/tests/test_openvz.py.
"""

from __future__ import annotations

import pytest
from moves import GONE, PRIVATE, RUNS, STATE

# What a move locks a container with, keeps beside it, and leaves in no case.
LEFT = "ls -A /vz/lock /vz/dump /var/lib/handover/openvz 2>/dev/null | grep -v : | grep . ; systemctl list-units --plain --no-legend 'handover-openvz-*'"


@pytest.fixture(scope="module", autouse=True)
def ledger(hosts):
    """The ledger begins anew, with a start: the only one of this file."""
    hosts.both[1].check_output(f"vzctl stop 103; rm -f {PRIVATE}/var/log/beat; vzctl start 103; sleep 1")


def nothing_left(hosts):
    return [host.run(LEFT).stdout for host in hosts.both] == ["", ""]


# The host's quota of a user, which is not in the container's files.
LIMITS = "ugid\nuser 1000 204800 256000 10000 12000"


def test_it_moves_with_its_memory_and_no_line_is_lost_or_doubled(hosts):
    hosts.both[1].check_output(f"echo 'QUOTAUGIDLIMIT=\"200\"' >>/etc/vz/conf/103.conf; echo '{LIMITS}' >{STATE}/103.quota")
    for to in (0, 1):
        status, said = hosts.move(to=to, handover_mode="live")
        assert status == 0 and "(live)" in said, said
        assert hosts.status() == ([RUNS, GONE] if to == 0 else [GONE, RUNS])
        assert nothing_left(hosts)
        assert [host.run(f"cat {STATE}/103.quota-on").stdout.strip() for host in hosts.both] == ([LIMITS, ""] if to == 0 else ["", LIMITS])
    beats = hosts.beats(1)
    # It was started once, and has not been since.
    assert beats == list(range(1, len(beats) + 1)) and len(beats) > 20
