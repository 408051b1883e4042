# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The fleet, and the table in docs/safety.md: with FAULTS_TABLE=1 a run puts its cells into it and leaves the others."""

from __future__ import annotations

import fcntl
import os
import sys
import typing as t
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from fleet import CHECKOUT, Fleet
from matrix import FAULTS, STEPS, Case

PAGE = CHECKOUT / "docs" / "safety.md"
BEGIN, END = "<!-- the fault matrix: written by make test-faults -->", "<!-- end of the fault matrix -->"


@pytest.fixture(scope="session")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    return Fleet(tmp_path_factory.mktemp("reports"))


@pytest.fixture
def record(request: pytest.FixtureRequest) -> t.Callable[[str, str], None]:
    case: Case = request.node.callspec.params["case"]

    def note(where: str, said: str) -> None:
        keep(case, where)
        print(f"{case.name}: {where} ({said})")

    return note


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> t.Iterator[None]:
    outcome = yield
    report = outcome.get_result()
    if report.failed and hasattr(item, "callspec"):
        keep(item.callspec.params["case"], "**FAILED**")


def table(results: t.Mapping[tuple[str, str], str]) -> list[str]:
    """A row a fault, a column a step."""
    rows = [[fault, *(results.get((fault, step), "") for step in STEPS)] for fault in FAULTS]
    return ["| " + " | ".join(cells) + " |" for cells in [["fault", *STEPS], ["---"] * (len(STEPS) + 1), *rows]]


def cells(lines: t.Iterable[str]) -> dict[tuple[str, str], str]:
    """What a table says."""
    rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines if line.startswith("|")]
    return {(row[0], step): cell for row in rows if row[0] in FAULTS for step, cell in zip(STEPS, row[1:]) if cell}


def put(text: str, results: t.Mapping[tuple[str, str], str]) -> str:
    """The page with these cells in its table."""
    before, _begin, rest = text.partition(BEGIN)
    old, _end, after = rest.partition(END)
    return "\n".join([before + BEGIN, "", *table({**cells(old.splitlines()), **results}), "", END]) + after


def keep(case: Case, cell: str) -> None:
    """At once, since a run may be cut short; another one, on a fleet of its own, may write beside it."""
    if not os.environ.get("FAULTS_TABLE"):
        return
    with PAGE.open("r+", encoding="utf-8") as page:
        fcntl.flock(page, fcntl.LOCK_EX)
        text = put(page.read(), {(case.fault, case.step): cell})
        page.seek(0)
        page.truncate()
        page.write(text)
