# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.livefleet.handover.plugins.filter.earlier_moves import earlier_moves


def side(state, number=1, *, running=False, role="source", workload="shop", to="node2"):
    return {"id": "{0}-{1}".format(workload, number), "role": role, "workload": workload, "state": state, "running": running, "plan": {"destination": to}}


def found(*here, **options):
    answer = earlier_moves(here, "shop", "node2", **options)
    return answer["going_on"].get("id"), answer["going_on"].get("stage"), [each["id"] for each in answer["hopeless"]]


@pytest.mark.parametrize(
    ("state", "running", "stage"),
    [
        ("released", False, "cutover"), ("in_doubt", False, "cutover"), ("done", False, "cutover"), ("settled", True, "cutover"),
        ("frozen", True, "cutover"), ("prepared", True, "cutover"), ("presync", True, "presync"),
        # Nobody is there to go on with it.
        ("frozen", False, None), ("presync", False, None), ("prepare", False, None), ("prepare", True, None), ("thawed", False, None),
    ],
)  # fmt: skip
def test_what_can_go_on(state, running, stage):
    name, where, hopeless = found(side(state, running=running))
    assert (name, where) == (("shop-1", stage) if stage else (None, None))
    # What lives and does not go on yet serves somebody.
    assert hopeless == ([] if stage or running else ["shop-1"])


def test_one_that_has_let_go_comes_before_newer_ones():
    assert found(side("presync", 3, running=True), side("released", 1), side("failed", 2)) == ("shop-1", "cutover", ["shop-2"])


def test_the_newest_of_equals_goes_on():
    assert found(side("presync", 1, running=True), side("presync", 2, running=True)) == ("shop-2", "presync", [])


def test_a_copy_to_another_host_does_not_go_on_here():
    assert found(side("presync", running=True, to="node3")) == (None, None, [])
    # Where the workload may run already, it is no matter where this run would go: the role says so.
    assert found(side("released", to="node3")) == ("shop-1", "cutover", [])


def test_others_are_left_alone():
    others = [side("released", workload="web"), side("released", role="destination")]
    assert earlier_moves(others, "shop", "node2") == {"any": False, "going_on": {}, "hopeless": []}


def test_to_end_only_takes_back_what_lives():
    here = [side("presync", 1, running=True), side("presync", 2, running=True), side("failed", 3)]
    assert found(*here, end_only=True) == (None, None, ["shop-3", "shop-2", "shop-1"])
    assert found(*here, end_only=True, session="shop-2") == (None, None, ["shop-2"])
    trial = dict(here[1], id="shop-2-trial")
    assert found(here[0], trial, end_only=True, session="shop-2") == (None, None, ["shop-2-trial"])
    assert found(side("frozen", running=True), end_only=True) == ("shop-1", "cutover", [])


def test_what_only_the_destination_knows():
    orphan = side("presync", role="destination")
    assert found(end_only=True, session="shop-1", there=[orphan]) == (None, None, ["shop-1"])
    assert found(end_only=True, session="shop-2", there=[orphan]) == (None, None, [])
    assert found(end_only=True, session="shop-1", there=[side("settled", role="destination")]) == (None, None, [])
    assert found(side("released"), end_only=True, session="shop-1", there=[orphan]) == ("shop-1", "cutover", [])
