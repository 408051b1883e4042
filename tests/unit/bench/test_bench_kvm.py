# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What `make bench-kvm` makes of its figures."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).resolve().parent.parent.parent / "bench" / "kvm")]
import kvm

HOW = {"memory": 1, "dirty": 1, "cores": 1}


def samples(**changes: float) -> kvm.Samples:
    """Each contender takes about a second, three times, and sends 100 MiB, but for those that are given milliseconds."""
    return {
        (load, link, contender): [{"total, ms": changes.get(contender, 1000.0) + run, "RAM transferred, MiB": 100.0} for run in (-1, 0, 1)]
        for load in kvm.LOADS
        for link in kvm.LINKS
        for contender in (*kvm.CONTENDERS, kvm.AUTO)
    }


def figures(found: kvm.Samples) -> dict[str, kvm.Bar]:
    return {each.what: each for each in kvm.bars(found)}


def test_auto_is_held_against_what_is_named() -> None:
    found = figures(samples(**{kvm.AUTO: 400.0, kvm.OLD_PLAIN: 800.0, "XBZRLE": 500.0}))
    old = found["idle guest at 1 Gbit/s: total time, as a part of plain without zero pages"]
    assert (old.figure, old.contender, old.met) == (0.5, kvm.OLD_PLAIN, True)
    assert found["idle guest at 1 Gbit/s: RAM transferred, as a part of that"].met is False
    today = found["idle guest, no limit: total time, as a part of today's plain"]
    assert (today.figure, today.contender) == (0.4, kvm.PLAIN)
    best = found["writer, 1 Gbit/s: total time, as a part of the best single setting"]
    assert (best.figure, best.contender) == (0.8, "XBZRLE")


def test_what_was_plain_in_2015_is_no_setting_of_today() -> None:
    best = figures(samples(**{kvm.OLD_PLAIN: 10.0}))["writer, no limit: total time, as a part of the best single setting"]
    assert best.contender != kvm.OLD_PLAIN


def test_the_page_has_every_table_and_bar(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(kvm, "CHECKOUT", tmp_path)
    (tmp_path / "docs").mkdir()
    found = samples()
    for each in found.values():
        for sample in each:
            sample.update({column: 1.0 for column in kvm.COLUMNS if column not in sample})
    measured = kvm.bars(found)
    kvm.write(measured, found, {"memory": 256, "dirty": 32, "cores": 2})
    page = (tmp_path / "docs" / "benchmarks" / "kvm.md").read_text(encoding="utf-8")
    assert "@" not in page.replace("@media", "")
    assert page.count("![Total time]") == len(kvm.LOADS) * len(kvm.LINKS)
    assert all(each.what in page for each in measured)


def test_a_load_that_is_run_again_replaces_its_own_part(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(kvm, "RUNS", tmp_path / "kvm-runs.json")
    slow, quick = samples(), samples(**{kvm.AUTO: 5.0})
    for load in kvm.LOADS:
        kvm.keep({key: each for key, each in slow.items() if key[0] == load}, load, HOW, add=False)
    kvm.keep({key: each for key, each in quick.items() if key[0] == "idle"}, "idle", HOW, add=False)
    found = kvm.samples_of(kvm.kept())
    assert found == {key: (quick if key[0] == "idle" else slow)[key] for key in slow}


def test_what_is_added_joins_what_was_measured_alike(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(kvm, "RUNS", tmp_path / "kvm-runs.json")
    idle = {key: each for key, each in samples().items() if key[0] == "idle"}
    kvm.keep(idle, "idle", HOW, add=True)
    kvm.keep(idle, "idle", HOW, add=True)
    assert all(len(each) == 6 for each in kvm.samples_of(kvm.kept()).values())
    with pytest.raises(SystemExit, match="another guest"):
        kvm.keep(idle, "idle", {**HOW, "memory": 2}, add=True)
