# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from ansible_collections.livefleet.handover.plugins.filter.move_results import move_result, stays, ways_back
from ansible_collections.livefleet.handover.plugins.filter.plan import plan_outcome

WAY = {"workload": "shop", "source": "node3", "destination": "node2"}
MOVED = {
    "__migrate_cutover": {"status": {"frozen_ms": 183.2}},
    "__migrate_reported": {"written": True, "paths": ["archive:/srv/shop.json", "archive:/srv/shop.html"]},
}
RESULT = {"workload": "shop", "from": "node3", "to": "node2", "verdict": "moved", "frozen_ms": 183.2, "path": "archive:/srv/shop.html", "why": ""}


def test_the_result_of_a_move():
    assert move_result(WAY, MOVED) == RESULT
    assert move_result(WAY, {}, why="no route to node2") == {**RESULT, "verdict": "failed", "frozen_ms": None, "path": "", "why": "no route to node2"}
    assert move_result(WAY, MOVED, check=True)["verdict"] == "can move"
    assert move_result(WAY, {}, check=True, why="no CRIU")["verdict"] == "cannot move"


def test_a_report_that_could_not_be_written_is_no_failure():
    without = {**MOVED, "__migrate_reported": {"written": False, "paths": []}}
    assert move_result(WAY, without) == {**RESULT, "path": ""}
    assert move_result(WAY, {key: value for key, value in MOVED.items() if key != "__migrate_reported"}) == {**RESULT, "path": ""}


def test_the_results_of_a_plan_are_those_of_its_moves():
    """A failed move, and one that was not begun, have their reasons."""
    moves = [dict(WAY, name=name, workload=name, kind="container") for name in ("shop", "web", "db")]
    plan = {"moves": moves, "steps": [{"name": f"{move['name']}.1", "move": move} for move in moves]}
    hostvars = {
        "shop.1": {**MOVED, "__handover_has_begun": True, "__handover_has_ended": True},
        "web.1": {"__handover_has_begun": True, "__handover_why": "no CRIU"},
        "db.1": {},
    }
    results = plan_outcome(plan, hostvars)["results"]
    assert results[0] == RESULT
    assert [(each["verdict"], each["why"]) for each in results[1:]] == [("failed", "no CRIU"), ("not begun", "not begun, since others had failed")]
    dry = plan_outcome(plan, hostvars, check=True)["results"]
    assert [each["verdict"] for each in dry] == ["can move", "cannot move", "cannot move"] and not any(each["frozen_ms"] for each in dry)


def test_only_a_workload_that_was_moved_is_brought_back():
    results = [RESULT, {**RESULT, "workload": "web", "verdict": "failed"}, {**RESULT, "workload": "db", "from": "node4"}]
    assert ways_back(results) == [{"workload": "shop", "from": "node2", "to": "node3"}, {"workload": "db", "from": "node2", "to": "node4"}]
    assert ways_back(results, "node4, node5") == [{"workload": "db", "from": "node2", "to": "node4"}]
    assert ways_back([stays("shop is on node2 already", {"workload": "shop", "destination": "node2"})]) == []
