# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The tests of each scenario can be collected, also of those that do not run for this state of the code."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

for _name in ("psycopg", "testinfra"):  # `make check` has neither; `make test` has both
    pytest.importorskip(_name)

CHECKOUT = Path(__file__).resolve().parents[3]
SCENARIOS = sorted(path.parent for path in (CHECKOUT / "molecule").glob("*/tests"))


def collect(folder, *words, **more):
    environment = {**os.environ, **more, "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--collect-only", "--quiet", *words]
    answer = subprocess.run(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False)
    assert answer.returncode == 0, answer.stdout[-4000:] + answer.stderr[-4000:]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda path: path.name)
def test_a_scenarios_tests_are_collected(scenario):
    collect(scenario, "tests", MOLECULE_SCENARIO_DIRECTORY=str(scenario))


@pytest.mark.parametrize("folder", ["environment", "newcomer"])
def test_those_with_hosts_of_their_own_are_collected(folder):
    """`make test-environment` alone runs the first, and the suite not always the second."""
    collect(CHECKOUT, "-c", "tests/pytest.ini", f"tests/{folder}")


def test_there_are_scenarios():
    assert len(SCENARIOS) > 9
