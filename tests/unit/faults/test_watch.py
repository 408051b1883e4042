# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "faults"))
import watch
from fleet import Host

NOON = 1_795_262_400_000_000_000


def seen(host: str, its_own: bool, *numbers: int) -> watch.Lines:
    """A host that showed these lines, each written at a time of its own."""
    lines = watch.Lines(host, its_own)
    for number in numbers:
        lines.see(f"{number} {NOON + number * 20_000_000}\n")
    return lines


def writers(*lines: watch.Lines) -> list[str]:
    return [turn.host for turn in watch.turns(*lines)]


def test_a_workload_that_moved_has_one_writer_after_the_other():
    assert writers(seen("node1", True, 1, 40, 90), seen("node2", False, 91, 120, 150)) == ["node1", "node2"]


def test_two_that_write_at_the_same_time_are_found():
    assert writers(seen("node1", True, 1, 40, 130), seen("node2", False, 91, 120)) == ["node1", "node2", "node1"]


def test_a_copy_that_nobody_writes_to_is_not_taken_for_a_writer():
    assert writers(seen("node1", True, 1, 40, 130), seen("node2", False, 91, 91, 91)) == ["node1"]


def test_a_line_that_is_not_whole_is_none():
    lines = watch.Lines("node1", True)
    for line in ("", "\n", "12", "12 17952624", "12 1795262400000000000 9", "x 1795262400000000000"):
        lines.see(line)
    assert (lines.highest, lines.written) == (0, [])


class Here(Host):
    """A host that is this machine."""

    def ask(self, script: str, seconds: float = 60) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=seconds, check=False)


def test_a_line_that_is_being_written_is_neither_the_last_nor_the_head_of_the_next(tmp_path, monkeypatch):
    ledger = tmp_path / "ledger"
    ledger.write_text(f"2338 {NOON}\n2")
    host = Here("node1", "", (), str(ledger))
    begun = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda command, **options: begun(["sh", "-c", command[-1]], **options))
    assert host.last() == 2338
    lines = watch.Lines("node1", True)
    with host.follow() as shown:
        lines.see(shown.stdout.readline())
        ledger.write_text(f"2338 {NOON}\n2339 {NOON}\n2364 {NOON}\n")
        while not lines.highest:
            lines.see(shown.stdout.readline())
        shown.kill()
    assert lines.highest == 2364
