# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.livefleet.handover.plugins.filter.recovery import FilterModule

recovery = FilterModule().filters()["recovery"]
PLAN = {"source": "node1", "destination": "node2", "workload": "shop"}


def side(role, state, running=False, name="shop-1", workload="shop", **other):
    return {"id": name, "role": role, "workload": workload, "state": state, "running": running, "restarted": False, "plan": PLAN, **other}


def answers(node1=(), node2=()):
    found = {"node1": {"sessions": list(node1)}, "node2": {"sessions": list(node2)}}
    return {name: answer for name, answer in found.items() if None not in answer["sessions"]} | {
        name: {"unreachable": True} for name, answer in found.items() if None in answer["sessions"]
    }


@pytest.mark.parametrize(
    ("node1", "node2", "end", "why"),
    [
        ([side("source", "in_doubt", running=True)], [side("destination", "settled")], True, ""),
        ([side("source", "released")], [None], True, ""),  # the role says that it cannot ask, or fences
        ([side("source", "failed")], [side("destination", "discarded")], True, ""),
        ([side("source", "presync", plan=None)], [], True, ""),
        ([side("source", "presync", running=True)], [side("destination", "presync", running=True)], False, "it is under way"),
        ([], [side("destination", "discarded")], True, ""),
        ([], [side("destination", "prepare", running=True)], False, "it is under way"),
        # Its source lost power before its helper was started.
        ([side("source", "prepare", restarted=True)], [side("destination", "prepare", running=True)], True, ""),
        # It lost power when its helper had just begun, and has ended that at its boot.
        ([side("source", "failed")], [side("destination", "prepare", running=True)], True, ""),
        ([side("source", "presync", running=True)], [side("destination", "discarded")], True, ""),
        # The move that the trial was for has not begun on the source.
        ([side("source", "thawed", name="shop-1-trial")], [side("destination", "prepare", running=True)], False, "it is under way"),
        ([], [side("destination", "settled")], False, "node1 knows nothing of it"),
        ([None], [side("destination", "settled")], False, "node1 cannot be asked: bring it back"),
        ([], [side("destination", "discarded", plan=None)], False, "its source is not among the hosts that were asked: nothing says which it is"),
    ],
)
def test_what_can_be_ended(node1, node2, end, why):
    (row,) = recovery(answers(node1, node2))
    assert row["end"] is end
    assert why in row["why"]
    assert row["workload"] == "shop"


def test_a_move_that_is_under_way_is_ended_when_it_is_named():
    found = answers([side("source", "presync", running=True)], [side("destination", "presync", running=True)])
    assert [row["end"] for row in recovery(found, "shop-1")] == [True]
    assert recovery(found, "another") == []


def test_a_row_tells_both_sides():
    (row,) = recovery(answers([side("source", "in_doubt")], [side("destination", "settled")]))
    assert {key: row[key] for key in ("session", "source", "destination", "source_was", "destination_was")} == {
        "session": "shop-1", "source": "node1", "destination": "node2", "source_was": "in_doubt", "destination_was": "settled",
    }  # fmt: skip


def test_one_row_a_move():
    found = answers(
        [side("source", "thawed", name="a-1-trial", plan=None), side("source", "prepare", name="b-1"), side("source", "done", name="b-1-image", workload="")],
        [side("destination", "done", name="b-1-image", workload="")],
    )
    assert [row["session"] for row in recovery(found)] == ["a-1", "b-1"]


def test_what_is_no_answer_is_refused():
    with pytest.raises(AnsibleFilterError, match="what each host answered is needed"):
        recovery(["node1"])
