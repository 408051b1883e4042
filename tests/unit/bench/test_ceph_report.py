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
import ceph_report


def sample(up, reads=10, worst=1.0, score=10.0, curve=((1.0, 3), (2.0, 0))):
    seconds = {"stop": 0.5, "up": up, "prewarm": 2.0, "clean": up, "gate": up + 5, "worst": worst, "worst_from": 0.0, "p99": 0.1}
    return {**seconds, "reads": reads, "score": score, "busy": 1.5, "database": 700, "curve": list(map(list, curve))}


def row(**by):
    return {"date": "2026-11-22", "cores": 2, "fill": 40, "by": by}


@pytest.fixture
def runs(tmp_path):
    found = ceph_report.Runs(tmp_path / "benchmarks")
    found.put("bluestore+100", row(plain=[sample(10.0, 140), sample(20.0, 280, score=12.0)], held=[sample(2.0, 15), sample(4.0, 15)]), add=False)
    found.write()
    return found


def figures(runs):
    return {each.what.partition(", held: ")[2].partition(",")[0]: each for each in runs.bars()}


def test_bars_are_what_the_samples_say(runs):
    bars = figures(runs)
    assert (bars["start → up"].figure, bars["start → up"].limit, bars["start → up"].met) == (0.2, 0.2, True)
    assert (bars["reads"].figure, bars["reads"].met) == (pytest.approx(15 / 210), False)
    assert bars["longest operation"].limit == 1.0
    # The plain runs' own difference is the noise.
    assert bars["score"].limit == round(12 / 11, 4)
    assert json.loads((runs.folder / "ceph.json").read_text()) == [each.entry() for each in runs.bars()]


def test_more_runs_are_added_and_others_replace(runs):
    runs.put("bluestore+100", row(plain=[sample(30.0)], held=[sample(30.0)]), add=True)
    assert runs.values("bluestore+100", "plain", "up") == [10.0, 20.0, 30.0]
    runs.put("bluestore+100", row(plain=[sample(30.0)], held=[sample(30.0)]), add=False)
    assert runs.values("bluestore+100", "held", "up") == [30.0]


@pytest.mark.parametrize("add", [False, True])
def test_a_cell_that_was_not_measured_this_time_is_kept(runs, add):
    runs.put("bluestore+100", row(plain=[], held=[sample(1.0)]), add=add)
    assert runs.values("bluestore+100", "plain", "up") == [10.0, 20.0]
    assert runs.values("bluestore+100", "held", "up") == ([2.0, 4.0, 1.0] if add else [1.0])


def test_a_row_survives_when_another_is_run(runs):
    again = ceph_report.Runs(runs.folder)
    again.put("filestore+40", row(cold=[sample(9.0)], prewarmed=[sample(4.0)], hot=[]), add=False)
    again.write()
    text = (runs.folder / "ceph.md").read_text()
    assert "## bluestore, 100 reads a second" in text and "## filestore, 40 reads a second" in text
    assert "| hot |" not in text
    assert "**0.444**, at most 0.5: met" in text


def test_each_cold_cache_has_its_own_contender(runs):
    runs.put("filestore+250", row(cold=[sample(9.0)], prewarmed=[sample(6.0)], **{"evicted": [sample(8.0)], "evicted, prewarmed": [sample(2.0)]}), add=False)
    told = [each.sentence() for each in runs.bars()]
    assert "filestore+250, prewarmed: up → clean, median, as a part of cold's: **0.667**, at most 0.5: **missed by 33%**" in told
    assert "filestore+250, evicted, prewarmed: start → up, median, as a part of evicted's: **0.25**, at most 0.5: met" in told


def test_a_note_goes_with_the_runs_that_it_is_about(runs):
    runs.rows["bluestore+100"]["note"] = "With an older disk."
    assert "before each restart.\n\nWith an older disk.\n\n| how |" in runs.page()
    runs.put("bluestore+100", row(plain=[sample(30.0)], held=[]), add=False)
    assert "older disk" not in runs.page()


def test_the_curve_begins_with_the_first_group(runs):
    picture = (runs.folder / "ceph-bluestore-100-peering.svg").read_text()
    ET.fromstring(picture)
    ET.fromstring((runs.folder / "ceph-bluestore-100.svg").read_text())
    assert "1.0 s; up to 3 at once" in picture
