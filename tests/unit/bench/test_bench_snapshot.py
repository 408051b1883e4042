# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What `make bench-snapshot` does to its disk, and what it makes of its figures."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parent.parent.parent.parent
sys.path[:0] = [str(CHECKOUT / "tests" / "bench"), str(CHECKOUT / "tests" / "bench" / "snapshot")]
import database
import disks
import files
import snapshot

OURS = disks.OURS


def runs(**changes: float) -> list[dict[str, float]]:
    """Three rounds about the seconds."""
    return [{**changes, "seconds": changes["seconds"] + run} for run in (-0.001, 0.0, 0.001)]


def test_as_many_clusters_change_as_were_asked_for(tmp_path: Path) -> None:
    files.fill(tmp_path, 128)
    assert [path.stat().st_size for path in sorted(tmp_path.iterdir())] == [files.EACH, files.EACH]
    before = [path.read_bytes() for path in sorted(tmp_path.iterdir())]
    files.rewrite(tmp_path, 20, 7)
    after = [path.read_bytes() for path in sorted(tmp_path.iterdir())]
    other = [
        place for old, new in zip(before, after) for place in range(0, files.EACH, files.CLUSTER)
        if old[place : place + files.CLUSTER] != new[place : place + files.CLUSTER]
    ]  # fmt: skip
    assert len(other) == 20


def test_a_part_of_the_disk_is_so_many_clusters() -> None:
    assert disks.Sizes(used_mib=2048).clusters(0.01) == 328


def test_the_second_backup_is_held_against_the_better_one() -> None:
    found = {OURS: runs(seconds=1.0, read=0.011, sent=0.02), "restic": runs(seconds=40.0), "borg": runs(seconds=25.0)}
    time, read, sent = disks.Second().bars(found)
    assert (time.figure, time.contender, time.met) == (pytest.approx(0.04), "borg", True)
    assert (read.met, sent.met) == (True, False)


def test_a_stall_is_counted_beyond_that_of_its_own_minute() -> None:
    found = {OURS: [{"seconds": 0.10}, {"seconds": 0.30}, {"seconds": 0.20}], database.Stall.usual: [{"seconds": 0.08}, {"seconds": 0.29}, {"seconds": 0.10}]}
    (stall,) = database.Stall().bars(found)
    assert (stall.figure, stall.met) == (pytest.approx(0.02), True)


def every_row() -> dict[str, disks.Samples]:
    return {
        "stall": {OURS: runs(seconds=0.2), database.Stall.usual: runs(seconds=0.1)},
        "memory": {OURS: runs(seconds=0.2), database.Memory.other: runs(seconds=0.1)},
        "second": {OURS: runs(seconds=1.0, read=0.01, sent=0.01, by_marks=1.0), "restic": runs(seconds=9.0), "borg": runs(seconds=9.0)},
        "rollback": {OURS: runs(seconds=1.0, written=0.01, by_marks=1.0), disks.Rollback.other: runs(seconds=9.0)},
        "chain": {disks.Chain.many: runs(seconds=2.0), disks.Chain.single: runs(seconds=1.0)},
    }


def test_the_page_has_every_row_and_bar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "OUT", tmp_path)
    beside = {"date": "2026-11-28", "runs": 3, "load": [0.1, 0.2, 0.3], "machine": "a machine", "sizes": vars(disks.Sizes())}
    bars = snapshot.write({name: {**beside, "samples": samples} for name, samples in every_row().items()})
    assert len(bars) == 7
    page = (tmp_path / "snapshot.md").read_text(encoding="utf-8")
    assert "@" not in page and "Not measured yet" not in page
    assert all(each.what in page for each in bars)
    assert all((tmp_path / f"snapshot-{name}.svg").exists() for name in snapshot.ROWS)


def test_a_row_that_was_not_measured_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "OUT", tmp_path)
    assert snapshot.write({}) == []
    page = (tmp_path / "snapshot.md").read_text(encoding="utf-8")
    assert all(f"make bench-snapshot ROWS={name}" in page for name in snapshot.ROWS)
