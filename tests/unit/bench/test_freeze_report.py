# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))
import freeze_report

STAGES = [
    {"stage": "barrier", "start_ms": -40.0, "ms": 30.0},
    {"stage": "freeze", "start_ms": 0.0, "ms": 2.0},
    {"stage": "dump", "start_ms": 2.0, "ms": 60.0},
    {"stage": "last_pass", "start_ms": 2.0, "ms": 20.0},
    {"stage": "copy_dump", "start_ms": 63.0, "ms": 10.0},
    {"stage": "criu_restore", "start_ms": 80.0, "ms": 50.0},
]


def row(ours, theirs, floor, **more):
    by = {
        "handover": [{"seconds": s, "stages": {"dump": 60.0}} for s in ours],
        "podman": [{"seconds": s, "stages": {"copy": 100.0}} for s in theirs],
        "floor": [{"seconds": s} for s in floor],
    }
    return {"what": "an idle <container>", "memory": 0, "date": "2026-11-21", "cores": 2, "by": by, **more}


@pytest.fixture
def runs(tmp_path):
    found = freeze_report.Runs(tmp_path / "benchmarks")
    found.put("idle", row([0.2, 0.25, 0.6], [1.0, 1.1, 1.2], [0.2, 0.2]))
    found.write()
    return found


def test_what_lies_beside_another_stage_holds_nothing():
    held = freeze_report.holds(STAGES, 150.0)
    assert held == {"freeze": 2.0, "dump": 60.0, "copy_dump": 11.0, "criu_restore": 57.0, "other": 20.0}
    assert sum(held.values()) == 150.0


def test_when_it_was_told_to_stop():
    told = {"event": "stage", "stage": "freeze", "start_ms": 0.5, "ms": 2.0, "time": "2026-11-22T22:18:41.184601328Z"}
    assert freeze_report.stopped_at([{"event": "state"}, told]) == pytest.approx(1795385921.182101, abs=1e-5)


def test_the_pause_is_the_gap_in_which_it_was_frozen():
    beats = [0.0, 0.001, 0.501, 0.502, 0.503, 0.703, 0.704, 0.804]
    assert freeze_report.silences(beats, 0.505) == pytest.approx((0.2, 0.5))
    assert freeze_report.silences(beats, 0.501) == pytest.approx((0.2, 0.5))
    assert freeze_report.silences(beats, None) == pytest.approx((0.5, 0.2))
    # It had not beaten for 0.1 s when it was told to stop.
    assert freeze_report.silences(beats, 0.601) == pytest.approx((0.2, 0.5))
    with pytest.raises(ValueError):
        freeze_report.silences(beats, 9.0)


def test_bars_are_what_the_samples_say(runs):
    bars = {each.what.split(":", 1)[1].strip(): each for each in runs.bars()}
    floor = bars["frozen time, median, as a multiple of CRIU's floor"]
    assert (round(floor.figure, 4), floor.limit, floor.met, floor.runs) == (1.25, 0.7, False, 3)
    worst = bars["worst frozen time as a multiple of the median"]
    assert (round(worst.figure, 4), worst.met) == (2.4, False)
    assert json.loads((runs.folder / "freeze.json").read_text()) == [each.entry() for each in runs.bars()]


def test_rows_and_contenders_have_an_order_of_their_own(tmp_path):
    found = freeze_report.Runs(tmp_path, ["idle", "od"], ["handover", "podman", "floor"])
    for name in ("od+disk+link", "od", "other", "idle+link", "od+link", "idle"):
        found.put(name, {**row([], [], []), "by": {who: [{"seconds": 1.0}] for who in ("floor", "somebody", "handover")}})
    found.write()
    again = freeze_report.Runs(tmp_path, ["idle", "od"], ["handover", "podman", "floor"])
    for each in (found, again):
        assert list(each.rows) == ["idle", "idle+link", "od", "od+link", "od+disk+link", "other"]
        assert list(each.rows["od"]["by"]) == ["handover", "floor", "somebody"]
    assert "| od+link | 1.000 |  | 1.000 | 1.000 |" in (tmp_path / "freeze.md").read_text(encoding="utf-8")


def test_a_row_is_replaced_or_added_to(runs):
    runs.put("idle", {**row([0.3], [], []), "by": {"handover": [{"seconds": 0.3}], "vz": [{"seconds": 2.0}]}}, add=True)
    assert (runs.seconds("idle", "handover"), runs.seconds("idle", "vz")) == ([0.2, 0.25, 0.6, 0.3], [2.0])
    assert runs.seconds("idle", "podman") == [1.0, 1.1, 1.2]
    runs.put("idle", {**row([0.3], [2.0], [0.2]), "date": "2026-11-30"})
    assert (runs.seconds("idle", "handover"), runs.seconds("idle", "podman")) == ([0.3], [2.0])


def test_a_contender_that_a_row_leaves_out_stays_with_its_day(runs):
    first = runs.rows["idle"]["date"]
    for date in ("2026-11-30", "2026-12-01"):
        runs.put("idle", {**row([], [], []), "by": {"handover": [{"seconds": 0.3}]}, "date": date})
    assert (runs.seconds("idle", "handover"), runs.seconds("idle", "podman")) == ([0.3], [1.0, 1.1, 1.2])
    assert (runs.day("idle", "handover"), runs.day("idle", "podman")) == ("2026-12-01", first)
    assert f"| podman, {first} | 3 |" in runs.page() and "| handover | 1 |" in runs.page()


def test_a_row_survives_when_another_is_run(runs):
    again = freeze_report.Runs(runs.folder)
    again.put("od", row([0.3], [2.0], [0.2]))
    again.write()
    last = freeze_report.Runs(runs.folder)
    assert last.rows["idle"] == runs.rows["idle"]
    assert "## idle" in last.page() and "## od" in last.page()


def test_the_chart_is_a_picture_of_all_movers(runs):
    text = (runs.folder / "freeze.svg").read_text()
    ET.fromstring(text)
    assert "podman" in text and "CRIU: 0.200 s" in text


def test_a_failed_transaction_misses_its_bar(runs):
    failed = row([0.3], [2.0], [0.25])
    failed["by"]["handover"][0]["failed"] = 1
    runs.put("postgres", failed)
    (found,) = (each for each in runs.bars() if "pgbench that failed" in each.what)
    assert (found.figure, found.met) == (1, False)


def test_what_a_move_under_load_may_not_lose(runs):
    lost = row([0.3, 0.4], [1.0], [0.3])
    for sample in lost["by"]["handover"]:
        sample |= {"failed": 0, "lost": 1, "gone": 0}
    lost["by"]["handover-podman"] = [{"seconds": 0.25}]
    runs.put("docker", lost)
    assert "| handover | 0 | 2 | 0 |" in runs.page()
    found = {each.what: (each.figure, each.met) for each in runs.bars() if each.what.startswith("docker:")}
    assert found["docker: transactions of pgbench that failed"] == found["docker: lines of the worker's ledger that were lost"] == (0, True)
    assert found["docker: connections to the web server that were lost"] == (2, False)
    assert found["docker: pause, median, as a part of podman's"] == (pytest.approx(1.4), False)


def test_a_client_may_stand_hardly_longer_than_its_server(runs):
    postgres = row([0.3, 0.4], [1.0], [0.3])
    for sample, longest in zip(postgres["by"]["handover"], (0.31, 0.47)):
        sample |= {"stall": longest, "failed": 0}
    runs.put("postgres", postgres)
    (stall,) = [each for each in runs.bars() if "stall" in each.what]
    assert (round(stall.figure, 4), stall.limit, stall.met) == (0.07, 0.03, False)


def test_the_time_at_risk_has_a_table_and_bars(runs):
    def lazy(seconds, risks):
        by = {"handover-lazy": [{"seconds": s, "at_risk": r, "stages": {"dump": 60.0}} for s, r in zip(seconds, risks)]}
        return {"what": "a writer", "memory": 0, "date": "2026-11-29", "cores": 2, "by": by}

    assert "time at risk" not in runs.page()
    runs.put("tenth-64M+link", lazy([0.2, 0.2], [0.1, 0.1]))
    runs.put("tenth-1G+link", lazy([0.25, 0.35, 0.32], [1.2, 1.6, 1.4]))
    assert "| time at risk, s | moves | shortest | median | longest |" in runs.page() and "| handover-lazy | 3 | 1.200 | 1.400 | 1.600 |" in runs.page()
    found = {each.what: (round(each.figure, 3), each.met) for each in runs.bars() if "a tenth written" in each.what}
    assert list(found.values()) == [(1.6, False), (1.4, True)]
