# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The fleet, and the table in docs/safety-tests.md: with FAULTS_TABLE=1 a run puts its cells into it and leaves the others."""

from __future__ import annotations

import os
import sys
import typing as t
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
pytest.register_assert_rewrite("cell")

from fleet import CHECKOUT, Fleet
from matrix import FAULTS, STEPS, Case
from page import Table

TABLE = Table(
    CHECKOUT / "docs" / "safety-tests.md", "<!-- the fault matrix: written by make test-faults -->", "<!-- end of the fault matrix -->", tuple(FAULTS), STEPS
)


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
    case = item.callspec.params.get("case") if hasattr(item, "callspec") else None
    if report.failed and isinstance(case, Case):
        keep(case, "**FAILED**")


def keep(case: Case, cell: str) -> None:
    if os.environ.get("FAULTS_TABLE"):
        TABLE.keep(case.fault, case.step, cell)
