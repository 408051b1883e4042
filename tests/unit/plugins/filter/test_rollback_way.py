# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.livefleet.handover.plugins.filter.rollback_way import checked

THEN = {"name": "before", "memory": False, "fits": False}
WITH = {"name": "warm", "memory": True, "fits": True}
HERE = {"workload": {"exists": True, "running": True}, "guest": {"exists": False}, "sessions": []}
GONE = {"workload": {"exists": False}, "guest": {"exists": False}, "sessions": []}


def way(here=None, there=None, offered=(THEN, WITH), present=(), snapshot="before", memory=False):
    here, there = here or HERE, there or GONE
    sides = ({"name": "node1", "answer": here, "snapshots": list(offered)}, {"name": "node2", "answer": there, "snapshots": list(present)})
    return checked(*sides, {"workload": "shop", "snapshot": snapshot, "memory": memory})


def session(state, ended=False):
    return {**HERE, "sessions": [{"workload": "shop", "role": "source", "state": state, "ended": ended}]}


def test_a_container_goes_with_its_snapshots():
    assert way() == {"problem": "", "move": True, "bring": True, "look": True}
    assert way(snapshot="warm", memory=True)["problem"] == ""


def test_a_run_that_was_cut_off_goes_on():
    # Snapshots have come, and the container has not moved.
    assert way(present=[THEN]) == {"problem": "", "move": True, "bring": True, "look": True}
    # A move that copies: the container is not to be stopped for a look, and the move goes on.
    assert way(session("presync"), HERE, present=[THEN]) == {"problem": "", "move": True, "bring": True, "look": False}
    # It was handed over, and the source was not cleaned up; also where the source's container is gone.
    for answer in (session("done", True), {**session("done", True), "workload": {"exists": False}}):
        assert way(answer, HERE, present=[THEN]) == {"problem": "", "move": True, "bring": True, "look": False}
        assert way(answer, HERE, offered=[], present=[THEN])["problem"] == "", "the snapshots of the source may be gone by then"
    # It has moved: nothing comes that is there, and what is not there comes without the container.
    assert way(GONE, HERE, present=[THEN]) == {"problem": "", "move": False, "bring": False, "look": False}
    assert way(GONE, HERE) == {"problem": "", "move": False, "bring": True, "look": False}
    # A whole answer has the sessions with its host.
    told = {**HERE, "sessions": [], "host": {"pcopy": {"sessions": session("presync")["sessions"]}}}
    assert way(told, HERE, present=[THEN]) == {"problem": "", "move": True, "bring": True, "look": False}
    # An old session is none.
    assert way(session("thawed", True))["look"]


@pytest.mark.parametrize(
    "given, says",
    [
        ({"here": {**GONE, "guest": {"exists": True}}}, "shop is a KVM guest on node1, and snapshots of guests go back on their own host"),
        ({"there": {**GONE, "guest": {"exists": True}}}, "shop is a KVM guest on node2"),
        ({"here": GONE}, "there is no container named shop on node1 or node2: name the host that it is on (handover_source)"),
        ({"snapshot": "none"}, "there is no snapshot none of shop on node1: name one of before, warm"),
        ({"snapshot": "none", "offered": ()}, "there is no snapshot none of shop on node1: none was taken there"),
        ({"offered": (), "present": [THEN]}, "the snapshot before of shop is on node2 alone, and shop on node1: move it there first (playbook migrate)"),
        ({"memory": True}, "the snapshot before of shop has no memory: go back without it"),
        ({"here": GONE, "there": HERE, "present": [THEN], "memory": True}, "the snapshot before of shop has no memory: go back without it"),
        ({"offered": [{**WITH, "fits": False}], "snapshot": "warm", "memory": True}, "the snapshot warm of shop does not tell whether its memory is that of"),
    ],
)
def test_what_cannot_be_is_said(given, says):
    assert way(**given)["problem"].startswith(says)


def test_the_input_is_of_two_hosts():
    with pytest.raises(AnsibleFilterError, match="of each host its name, answer and snapshots are needed, not str"):
        checked("node1", "node2", {})
