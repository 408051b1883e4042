# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from ansible_collections.livefleet.handover.plugins.filter.recovery_outcome import recovery_outcome
from ansible_collections.livefleet.handover.plugins.filter.told import told

MOVE = {"session": "shop-1", "workload": "shop", "source": "node1", "destination": "node2", "end": True, "why": ""}
ENDED = {"session": "shop-1", "workload": "shop", "source": "node1", "destination": "node2", "ended": True, "runs_on": "node2", "why": ""}
SILENT = {"unreachable": True, "msg": "No route to host"}
SPOKE = {"sessions": []}


def test_a_host_without_the_variable_has_the_default():
    hostvars = {"node1": {"found": 1}, "node2": {}}
    assert told(["node1", "node2", "node3"], hostvars, "found") == {"node1": 1, "node2": None, "node3": None}
    assert told(["node2"], hostvars, "labels", []) == {"node2": []}


def test_nothing_is_left():
    assert recovery_outcome([], {"node1": None}, {"node1": SPOKE}) == {"lines": ["No move is left to be brought to its end."], "problem": ""}


def test_a_move_was_brought_to_its_end():
    found = recovery_outcome([MOVE], {"node1": [ENDED], "node2": None}, {"node1": SPOKE, "node2": SPOKE})
    assert found["problem"] == "" and "shop-1" in found["lines"][-1] and "node2" in found["lines"][-1]


def test_a_host_that_is_silent_may_hold_a_move_but_one_that_was_fenced_does_not():
    told_so = recovery_outcome([], {}, {"node1": SPOKE, "node3": SILENT})
    assert told_so["lines"] == []
    assert told_so["problem"] == (
        "node3 could not be asked, and may hold a move that was not brought to its end: bring it back and run this again, or leave it out with "
        "handover_hosts (node3: it could not be asked (No route to host))"
    )
    assert recovery_outcome([MOVE], {"node1": [ENDED]}, {"node1": SPOKE, "node2": SILENT})["problem"] == ""
    assert "node2" in recovery_outcome([MOVE], {"node1": [dict(ENDED, ended=False, why="x")]}, {"node1": SPOKE, "node2": SILENT})["problem"]


def test_a_move_that_is_left_is_a_problem_unless_it_is_under_way_or_only_looked_at():
    left = dict(MOVE, end=False, why="its source is silent")
    assert recovery_outcome([left], {}, {"node1": SPOKE})["problem"] == "shop-1: its source is silent"
    assert recovery_outcome([left], {}, {"node1": SPOKE}, check=True)["problem"] == ""
    assert recovery_outcome([dict(left, why="it is under way: to take it back, name it")], {}, {"node1": SPOKE})["problem"] == ""
