# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The fault matrix on moves of Docker's: the container runs once, and has lost nothing. Docker starts no second copy by its restart policy, either.

DOCKER_FAULTS=all, or a number (with FAULTS_SEED), or words that a case's name contains.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parent.parent.parent.parent
# Another fleet of such hosts may be named.
os.environ.setdefault("FAULTS_INVENTORY", str(CHECKOUT / "lab" / "docker" / "inventory.yml"))
os.environ.setdefault("FAULTS_PARAMETERS", str(CHECKOUT / "lab" / "docker" / "parameters.yml"))
sys.path.insert(0, str(CHECKOUT / "tests" / "faults"))
pytest.register_assert_rewrite("cell")

from cell import one_copy_and_every_line
from docker_engine import ENGINE, FAULTS
from fleet import Fleet
from matrix import Case, asked

CASES = asked({**os.environ, "FAULTS": os.environ.get("DOCKER_FAULTS", "3")}, FAULTS)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    return Fleet(tmp_path_factory.mktemp("reports"), engine=ENGINE)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_one_copy_and_every_line(case: Case, fleet: Fleet) -> None:
    where, said = one_copy_and_every_line(case, fleet, FAULTS[case.fault])
    print(f"{case.name}: {where} ({said})")


def test_there_is_nothing_left_to_recover(fleet: Fleet) -> None:
    """Last: each case has seen that its own recover.yml left nothing that a second one could find."""
    status, text = fleet.recover()
    assert status == 0, text[-4000:]
    assert "No move is left" in text, text[-4000:]
