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

MOLECULE = Path(__file__).resolve().parents[3] / "molecule"
SCENARIOS = sorted(path.parent for path in MOLECULE.glob("*/tests"))


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda path: path.name)
def test_a_scenarios_tests_are_collected(scenario):
    environment = {**os.environ, "MOLECULE_SCENARIO_DIRECTORY": str(scenario), "PYTHONDONTWRITEBYTECODE": "1"}
    words = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--collect-only", "--quiet", "tests"]
    answer = subprocess.run(words, cwd=scenario, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False)
    assert answer.returncode == 0, answer.stdout[-4000:] + answer.stderr[-4000:]


def test_there_are_scenarios():
    assert len(SCENARIOS) > 9
