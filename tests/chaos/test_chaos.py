# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""CHAOS_SECONDS of rounds, the first of which has the seed CHAOS_SEED; CHAOS_ROUNDS of them at most."""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from rounds import run


def test_nothing_is_found() -> None:
    seconds, seed, rounds = (int(os.environ.get(f"CHAOS_{name}") or usual) for name, usual in (("SECONDS", 600), ("SEED", 1), ("ROUNDS", 1_000_000)))
    report = run(seed, seconds, rounds)
    print(*report.table(), sep="\n")
    assert not report.findings, "\n".join(f"make test-chaos SEED={found['seed']} ROUNDS=1: {found['finding']}" for found in report.findings)
    assert report.moves, "no round was made"
