# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""spin explores the model of the handover, helper/model/handover.pml, whole; and finds every rule that is broken in it on purpose.

Every state that can be reached within the model's limits is looked at: no hashing that drops states, no bounded depth.
"""

from __future__ import annotations

import re
import subprocess
import typing as t
from dataclasses import dataclass
from pathlib import Path

import pytest

MODEL = Path(__file__).resolve().parent.parent.parent / "helper" / "model" / "handover.pml"

# How deep a path may be before the search gives up, which it says; the longest is about 170 steps.
DEPTH = 100_000

# Part of the assertion that spin names → the rule that it is.
RULES = {
    r"s_tasks==\d+\)&&\(d_tasks": "never twice",
    r"mounted": "never empty",
    r"\(s_all\|\|d_all\)": "never lost",
    r"power_lost": "memory never lost",
    r"!\(stale\)": "never an older copy",
    r"s_dead": "a way out",
    r"!\(cleaned\)": "something left to thaw",
}

# A rule broken on purpose → what spin has to find.
BROKEN = {
    "CLEANUP_BEFORE_SETTLED": "something left to thaw",
    "CONTROLLER_TAKES_PREPARED": "never twice",
    "DONE_WITHOUT_GOODBYE": "never twice",
    "FORCE_WITHOUT_FENCING": "never twice",
    "HOOK_LETS_GO_IN_DOUBT": "never twice",
    "HOOK_TRUSTS_UNSYNCED": "never lost",
    "NO_WAY_OUT_OF_RESUMED": "a way out",
    "RECLAIM_WITHOUT_OUTCOME": "memory never lost",
    "REFUSE_WITHOUT_KILLING": "never twice",
    "RESTORE_NOT_HELD": "never twice",
    "RESUME_BEFORE_RECORD": "never lost",
    "SHOW_UNSYNCED": "a way out",
    "START_AFTER_BOOT": "never twice",
    "START_IN_DOUBT": "never an older copy",
    "START_WHILE_STOPPED": "never an older copy",
    "START_WITHOUT_VOLUME": "never empty",
    "SYNC_AFTER_RESUME": "never lost",
    "THAW_IN_DOUBT": "never twice",
    "TOKEN_BEFORE_RELEASE": "never an older copy",
    "TOKEN_BEFORE_SYNC": "never an older copy",
    "TOLD_BEFORE_SYNC": "a way out",
}
# Where only a workload that is stopped and started shows it.
OFFLINE = {"START_WHILE_STOPPED", "START_WITHOUT_VOLUME"}


@dataclass(frozen=True)
class Verdict:
    errors: int
    states: int
    text: str

    @property
    def broken(self) -> str:
        said = re.search(r"^pan:1: (.*)$", self.text, re.MULTILINE)
        assert said, self.text
        return next((rule for part, rule in RULES.items() if re.search(part, said[1])), said[1])


def explore(folder: Path, defines: t.Sequence[str] = (), cycles: bool = False, quick: bool = False) -> Verdict:
    """Has spin write the search as a C program, and runs it. `quick` spends less on compiling: for searches that end soon."""
    defined = [f"-D{each}" for each in defines]
    subprocess.run(["spin", *defined, "-a", str(MODEL)], cwd=folder, check=True, stdout=subprocess.PIPE)
    # A state in which everybody waits is no cycle: NOSTUTTER.
    kind = ["-DNP", "-DNOSTUTTER"] if cycles else ["-DSAFETY"]
    subprocess.run(["gcc", "-O0" if quick else "-O2", "-w", "-DCOLLAPSE", *kind, "-o", "pan", "pan.c"], cwd=folder, check=True)
    done = subprocess.run(["./pan", f"-m{DEPTH}", *(["-l"] if cycles else [])], cwd=folder, check=False, stdout=subprocess.PIPE, text=True)
    errors = re.search(r"errors: (\d+)", done.stdout)
    states = re.search(r"(\d+) states, stored", done.stdout)
    assert errors and states, done.stdout
    return Verdict(int(errors[1]), int(states[1]), done.stdout)


@pytest.mark.parametrize("mode", ["live", "offline"])
def test_it_holds_and_every_step_of_it_happens(mode: str, tmp_path: Path) -> None:
    found = explore(tmp_path, ["OFFLINE"] if mode == "offline" else [])
    assert found.errors == 0, found.text
    assert "max search depth too small" not in found.text
    assert "Search not completed" not in found.text
    # A step that never happens has not been checked. What CRIU does, it does to live workloads only.
    lines = MODEL.read_text(encoding="utf-8").splitlines()
    never = {lines[int(number) - 1].strip() for number in re.findall(r"^\thandover\.pml:(\d+),", found.text, re.MULTILINE)}
    assert never <= ({line for line in never if "held" in line or "ORPHAN" in line} if mode == "offline" else set())


def test_no_run_goes_round_for_ever(tmp_path: Path) -> None:
    found = explore(tmp_path, ["POWER_CUTS=1"], cycles=True)
    assert found.errors == 0, found.text
    assert "Search not completed" not in found.text


@pytest.mark.parametrize("rule", BROKEN)
def test_a_broken_rule_is_found(rule: str, tmp_path: Path) -> None:
    found = explore(tmp_path, ["POWER_CUTS=1", f"BREAK_{rule}", *(["OFFLINE"] if rule in OFFLINE else [])], quick=True)
    assert found.errors == 1
    assert found.broken == BROKEN[rule]


def test_no_rule_is_left_out() -> None:
    assert set(re.findall(r"BREAK_([A-Z_]+)", MODEL.read_text(encoding="utf-8"))) == set(BROKEN)
