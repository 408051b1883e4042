# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "faults"))
import docker_engine
import fleet
import matrix


def test_every_fault_meets_every_step():
    assert len(matrix.cases()) == len(set(matrix.cases())) == len(matrix.FAULTS) * len(matrix.STEPS) == 154


def test_a_sample_is_the_same_for_the_same_seed():
    assert matrix.sample(25, 7) == matrix.sample(25, 7)
    assert matrix.sample(25, 7) != matrix.sample(25, 8)


def test_a_sample_has_each_fault_and_step_about_as_often():
    for seed in range(20):
        chosen = matrix.sample(25, seed)
        assert len(set(chosen)) == 25
        faults = Counter(case.fault for case in chosen)
        assert set(faults) == set(matrix.FAULTS)
        assert max(faults.values()) - min(faults.values()) <= 1
        assert len({case.step for case in chosen}) == len(matrix.STEPS)


def test_a_sample_of_an_engine_has_its_own_faults():
    chosen = matrix.sample(15, 3, docker_engine.FAULTS)
    assert len({case.fault for case in chosen}) == 15
    assert matrix.asked({"FAULTS": "15", "FAULTS_SEED": "3"}, docker_engine.FAULTS) == chosen
    assert len(matrix.asked({}, docker_engine.FAULTS)) == len(docker_engine.FAULTS) * len(matrix.STEPS)
    assert matrix.asked({"FAULTS": "daemon killed at frozen"}) == []
    assert len(matrix.asked({"FAULTS": "daemon killed at frozen"}, docker_engine.FAULTS)) == 2


def test_a_row_of_an_engine_strikes_one_of_both_sides():
    assert set(docker_engine.FAULTS) <= set(matrix.SIDES)
    assert {matrix.Case(fault, "frozen").side for fault in docker_engine.FAULTS} == {"source", "destination"}
    assert matrix.Case("offline: source's daemon restarted", "frozen").variables["migrate_mode"] == "offline"


def test_an_engine_follows_its_own_ledger():
    for engine in (fleet.PODMAN, docker_engine.ENGINE):
        assert f"tail -n 1 {engine.ledger}" in engine.lines.format(ledger=engine.ledger)


def test_words_choose_cases():
    assert matrix.asked({"FAULTS": "3"}) == matrix.sample(3, 1)
    assert [case.name for case in matrix.asked({"FAULTS": "sender killed at fro"})] == ["sender killed at frozen"]
    assert len(matrix.asked({"FAULTS": "at frozen, sender killed"})) == len(matrix.FAULTS) + len(matrix.STEPS) - 1


def test_every_case_has_a_name_that_chooses_it_alone():
    assert all(matrix.asked({"FAULTS": case.name}) == [case] for case in matrix.cases())
