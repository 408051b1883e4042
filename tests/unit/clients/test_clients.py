# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The judges of the demo: what they call a loss, and how they read pgbench."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("psycopg")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "clients"))
import ledger  # noqa: E402
import pgbench  # noqa: E402


def test_all_that_was_promised_is_there() -> None:
    assert ledger.compare([1, 2, 3], [3, 1, 2]) == {"acknowledged": 3, "rows": 3, "lost": [], "twice": [], "unanswered": 0}


def test_a_promise_that_was_not_kept_is_named() -> None:
    assert ledger.compare([1, 2, 3, 4], [1, 4])["lost"] == [2, 3]


def test_a_number_that_two_copies_wrote_is_named() -> None:
    assert ledger.compare([1, 2], [1, 2, 2])["twice"] == [2]


def test_a_commit_without_an_answer_is_no_loss() -> None:
    found = ledger.compare([1, 3], [1, 2, 3])
    assert (found["lost"], found["twice"], found["unanswered"]) == ([], [], 1)


def test_numbers_go_on_behind_what_an_earlier_writer_was_promised(tmp_path: Path) -> None:
    acknowledged = tmp_path / "acknowledged"
    acknowledged.write_text("7\n8\n", encoding="ascii")
    assert ledger.Writer("", acknowledged, 0).number == 8


SAID = """pgbench (17.11 (Debian 17.11-0+deb13u1))
progress: 1.0 s, 99.9 tps, lat 2.314 ms stddev 0.652, 0 failed, lag 0.104 ms
progress: 2.0 s, 0.0 tps, lat NaN ms stddev NaN, 3 failed, lag 0.000 ms
pgbench: error: client 2 aborted in command 5 (SQL) of script 0; perhaps the backend died while processing
"""


def test_pgbench_is_read_by_the_second() -> None:
    seconds, rest = pgbench.read_progress(SAID)
    assert seconds == [pgbench.Second(1.0, 99.9, 0), pgbench.Second(2.0, 0.0, 3)]
    assert len(rest) == 2
    assert "client 2 aborted" in rest[1]
