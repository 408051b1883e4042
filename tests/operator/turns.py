# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Tests that take turns in the suite: FAULTS_SEED is another for each state of the code. Without it, or with WHOLE=1, all of them run."""

from __future__ import annotations

import os

import pytest

# The suite's own turns, of which such a scenario has one, go by the rest of a division by that.
SCENARIOS = 6
TURNS = 2
SEED = "" if os.environ.get("WHOLE") else os.environ.get("FAULTS_SEED", "")


def in_turn(number: int, of: int = TURNS) -> pytest.MarkDecorator:
    return pytest.mark.skipif(bool(SEED) and int(SEED or 0) // SCENARIOS % of != number, reason="in turn with another state of the code, or with WHOLE=1")
