# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("psycopg")

TESTS = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TESTS / folder) for folder in ("chaos", "faults", "clients")]
import copies
import copies_plan as plan
from copies_database import Moment


def some(first: int, count: int) -> list[plan.Round]:
    return [plan.round_of(seed) for seed in range(first, first + count)]


def test_a_seed_chooses_everything():
    assert some(7, 50) == some(7, 50)
    assert some(7, 50)[5] == plan.round_of(12)
    assert some(0, 6) != some(6, 6)


@pytest.mark.parametrize("block", range(20))
def test_a_block_has_every_deed_and_every_kind_of_stroke(block):
    found = some(block * plan.BLOCK, plan.BLOCK)
    assert Counter(each.deed for each in found) == Counter(plan.DEEDS)
    assert Counter(each.strokes[0].kind for each in found) == dict.fromkeys(plan.KINDS, 2)


def test_deeds_meet_every_kind_of_stroke():
    found = {(each.deed, each.strokes[0].kind) for each in some(0, 300)}
    assert found == {(deed, kind) for deed in plan.DEEDS for kind in plan.KINDS}


def test_every_stroke_is_brought_about():
    assert set(plan.KINDS) <= set(copies.STRIKES)


def test_a_choice_is_one_of_those_that_are_there():
    assert {each.of("abc") for each in some(0, 60)} == set("abc")


MOMENT = Moment(frozenset({1, 2, 3, 11}), frozenset({1, 2, 3}), since=10, given=12)


@pytest.mark.parametrize(
    ("rows", "wrong"),
    (
        ([1, 2, 3, 11], ""),
        ([1, 2, 3, 11, 12], ""),  # committed, and its answer was lost
        ([1, 2, 11], "1 that were acknowledged are lost: [3]"),
        ([1, 2, 3, 11, 13], "1 are of another line: [13]"),  # given out after the moment
        ([1, 2, 3, 11, 7], "1 are of another line: [7]"),  # of the line that was left
        ([1, 2, 3, 11, 11], "1 numbers are there twice"),
    ),
)
def test_what_a_ledger_may_hold(rows, wrong):
    assert MOMENT.holds(rows) == wrong


def test_a_copy_that_may_be_of_two_moments():
    later = Moment(frozenset({1, 20}), frozenset({1}), since=19, given=20)
    copy = copies.Copy("snapshot", "undo", "", (MOMENT, later), False, "")
    assert copy.holds([1, 2, 3, 11]) == copy.holds([1, 20]) == ""
    assert copy.holds([1]) == "3 that were acknowledged are lost: [2, 3, 11] and 1 that were acknowledged are lost: [20]"
