# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
from pathlib import Path

import pytest

loader = importlib.machinery.SourceFileLoader("suite", str(Path(__file__).resolve().parents[2] / "suite"))
suite = importlib.util.module_from_spec(importlib.util.spec_from_loader("suite", loader))
sys.modules["suite"] = suite  # where its dataclasses look for their own module
loader.exec_module(suite)

CLEANUP = "".join(f"  \x1b[2m│\x1b[0m TASK [Remove {n}]\n" for n in range(100))


@pytest.mark.parametrize(
    ("log", "shown"),
    (
        ("  \x1b[2m│\x1b[0m E   assert 1 == 2\n  \x1b[2m│\x1b[0m \n" + CLEANUP, ["E   assert 1 == 2", "TASK [Remove 0]"]),
        ("--- FAIL: TestIt (0.00s)\n    it_test.go:9: wrong\nFAIL\nok\tother\t1s\n", ["--- FAIL: TestIt (0.00s)", "    it_test.go:9: wrong", "FAIL"]),
        ("fatal: [kn1]: FAILED! =>\n  msg: no such guest\n" + "end\n" * 9, ["fatal: [kn1]: FAILED! =>", "  msg: no such guest", "end"]),
        ("fatal: [kn1]: FAILED! =>\n  cmd:\n  - a\n  - b\n  stderr: full\nend\n", ["fatal: [kn1]: FAILED! =>", "  cmd:", "  - a", "  - b", "  stderr: full"]),
        ("failed: [kn1] (item=a) =>\n  cmd:\n  - a\n  - b\n  stderr: full\nend\n", ["failed: [kn1] (item=a) =>", "  cmd:", "  - a", "  - b", "  stderr: full"]),
        ("one\ntwo\n", ["one", "two"]),
        ("", []),
    ),
)
def test_what_failed_is_shown_and_not_how_it_was_cleaned_up(log, shown):
    assert suite.telling(log) == shown


def test_the_last_of_many_are_shown():
    assert suite.telling("E  no\n" * 100) == ["E  no"] * suite.SHOWN_LINES


def part(name, fleet=""):
    return suite.Part(name, "", (), fleet=fleet)


def test_parts_of_one_fleet_do_not_run_side_by_side():
    queue = suite.Queue([part("a", "lab"), part("b", "lab"), part("c"), part("d", "kvm")])
    first, second, third = queue.take(), queue.take(), queue.take()
    assert [each.name for each in (first, second, third)] == ["a", "c", "d"]
    queue.done(second)
    assert [each.name for each in queue.waiting] == ["b"]
    queue.done(first)
    assert queue.take().name == "b"
    assert queue.take() is None


@pytest.mark.parametrize(
    ("fleets", "stands", "sequence"),
    (
        (["", "lab", "kvm", "lab", ""], False, ["", "lab/create.yml lab/images.yml", "lab", "kvm", "lab", "lab/destroy.yml", ""]),
        (["lab", "kvm", "kvm"], False, ["lab", "kvm", "kvm"]),  # a part alone brings it up by itself
        (["lab", "lab"], True, ["lab", "lab"]),
    ),
)
def test_a_fleet_of_several_parts_is_brought_up_once(fleets, stands, sequence):
    parts = [part(str(n), fleet) for n, fleet in enumerate(fleets)]
    seen = []
    shared = suite.Fleets(parts, lambda _fleet, playbooks: seen.append(" ".join(playbooks)), lambda _fleet: stands)
    for each in parts:
        shared.begin(each)
        seen.append(each.fleet)
        shared.end(each)
    assert seen == sequence


def test_every_part_is_named_once_and_has_commands():
    every = suite.parts()
    assert len({each.name for each in every}) == len(every)
    assert all(each.commands for each in every)


@pytest.mark.parametrize(("seed", "names", "whole", "run"), ((4, [], "", "ab"), (5, [], "", "ac"), (5, [], "1", "abc"), (5, ["b"], "", "b")))
def test_scenarios_take_turns(monkeypatch, seed, names, whole, run):
    monkeypatch.setattr(suite, "faults_seed", lambda: seed)
    monkeypatch.setattr(suite, "TURNS", 2)
    monkeypatch.setenv("WHOLE", whole)
    every = tuple(suite.Part(name, "", (), turn=turn) for name, turn in (("a", None), ("b", 0), ("c", 1)))
    assert "".join(each.name for each in suite.due(every, names)) == run


def test_each_turn_has_parts():
    assert {each.turn for each in suite.parts()} == {None, *range(suite.TURNS)}


def test_the_seed_of_the_faults_is_that_of_the_code(monkeypatch, tmp_path):
    assert suite.faults_seed() == suite.faults_seed()
    monkeypatch.setattr(suite, "CHECKOUT", tmp_path)
    assert suite.faults_seed() == 1
