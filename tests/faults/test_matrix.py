# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""After every fault, at every step: one copy runs, the ledger has every line that was acknowledged, and nothing is left over.

FAULTS=all, or a number (with FAULTS_SEED), or words that a case's name contains.
"""

from __future__ import annotations

import os
import typing as t

import pytest
from cell import one_copy_and_every_line
from fleet import Fleet
from matrix import Case, asked
from strikes import TABLE


@pytest.mark.parametrize("case", asked(os.environ), ids=lambda case: case.name)
def test_one_copy_and_every_line(case: Case, fleet: Fleet, record: t.Callable[[str, str], None]) -> None:
    record(*one_copy_and_every_line(case, fleet, TABLE[case.fault]))


def test_there_is_nothing_left_to_recover(fleet: Fleet) -> None:
    """Last: each case has seen that its own recover.yml left nothing that a second one could find."""
    status, text = fleet.recover()
    assert status == 0, text[-4000:]
    assert "No move is left" in text, text[-4000:]
