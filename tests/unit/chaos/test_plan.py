# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TESTS / "chaos"), str(TESTS / "faults")]
import deeds
import plan
import rounds
from report import Report, judge, unwritten
from watch import Lines, Watch

HOME = {"containers": "ledger=running", "processes": "heartbeat"}


def some(first: int, count: int = 400) -> list[plan.Move]:
    return [plan.round_of(seed) for seed in range(first, first + count)]


def test_a_seed_chooses_everything():
    assert some(7) == some(7)
    assert some(7) != some(408)


def test_a_round_is_the_same_alone():
    assert some(7)[5] == plan.round_of(12)


def test_rounds_that_follow_each_other_share_a_workload():
    shapes = [move.shape for move in some(0, 50)]
    assert all(len(set(shapes[at : at + plan.ROUNDS_OF_A_SHAPE])) == 1 for at in range(0, 50, plan.ROUNDS_OF_A_SHAPE))
    assert len(set(shapes)) > 3


def test_every_fault_and_every_shape_comes():
    found = some(1, 2000)
    assert {stroke.kind for move in found for stroke in move.strokes} == set(plan.KINDS)
    assert {move.shape for move in found} == set(plan.SHAPES)
    assert {move.mode for move in found} == {"live", "offline"}


def test_rounds_can_be_those_of_a_fault():
    assert list(rounds.chosen(7, 3, ())) == some(7, 3)
    found = list(rounds.chosen(7, 9, ("recovery", "full volume")))
    assert len(found) == 9 and all({"recovery", "full volume"} & {stroke.kind for stroke in move.strokes} for move in found)
    assert found[0] == plan.round_of(found[0].seed)


def test_every_fault_is_brought_about():
    assert set(deeds.DEEDS) == set(plan.KINDS)


def test_faults_that_would_undo_each_other_stay_apart():
    for move in some(3, 2000):
        kinds = [stroke.kind for stroke in move.strokes]
        assert all(plan.may_come(kind, move.shape, kinds[:at] + kinds[at + 1 :]) for at, kind in enumerate(kinds)), move
        assert all(stroke.side in plan.KINDS[stroke.kind].sides for stroke in move.strokes), move


def test_the_volume_of_the_ledger_is_never_full():
    assert not plan.may_come("full volume", plan.Shape(("image", "plain")), ())
    assert plan.may_come("full volume", plan.Shape(("plain", "image")), ())


def test_a_stopped_workload_moves_offline():
    assert all(move.mode == "offline" for move in some(5) if not move.shape.runs)


@pytest.mark.parametrize(
    ("hosts", "wrong"),
    (
        ([HOME, {}], ""),
        ([{}, HOME], ""),
        ([HOME, HOME], "left over"),
        ([{}, {}], "no host has"),
        ([HOME, {"sessions": "fault-1"}], "left over"),
        ([{**HOME, "mounts": "/x"}, {}], "no host has"),
    ),
)
def test_one_copy_and_nothing_beside_it(hosts: list[dict[str, str]], wrong: str):
    assert judge(hosts, HOME).startswith(wrong) and bool(judge(hosts, HOME)) == bool(wrong)


def test_the_table_counts_by_kind():
    report = Report(1)
    move = next(move for move in some(1) if len({stroke.kind for stroke in move.strokes}) == 2)
    report.add(move, {"where": "moved", "recovered": True})
    report.finding(move, "lost")
    rows = {line[:16].strip(): line[16:].split() for line in report.table()[1:-1]}
    assert rows == {stroke.kind: ["2", "1", "0", "1", "1"] for stroke in move.strokes}
    assert report.table()[-1] == f"seeds 1 to {move.seed}: 2 moves, 4 faults, 1 findings"


class TestUnwritten:
    def watched(self, *lines: str) -> Watch:
        watch = Watch.__new__(Watch)
        watch.seen = [Lines("node1", True)]
        for line in lines:
            watch.seen[0].see(line)
        return watch

    LEDGER = "1 1700000000000000001\n2 1700000000000000002\n3 1700000000000000003\n"

    def test_the_ledgers_own_lines_are_no_seconds(self):
        assert unwritten(self.LEDGER, self.watched("1 1700000000000000001", "3 1700000000000000003"), 3) == []

    def test_a_line_of_a_second_copy_is_seen(self):
        assert unwritten(self.LEDGER, self.watched("2 1700000000000000009", "3 1700000000000000003"), 3) == ["2 1700000000000000009"]

    def test_a_line_that_was_never_acknowledged_may_be_lost(self):
        assert unwritten(self.LEDGER, self.watched("3 1700000000000000003", "4 1700000000000000004"), 3) == []
