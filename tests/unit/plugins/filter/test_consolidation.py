# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from ansible_collections.livefleet.handover.plugins.filter.consolidation import consolidation_guests, consolidation_row, scaled

LOADS = [{"load": "files", "count": 10}, {"load": "sums", "name": "taken", "count": 3}]


def test_each_load_is_there_so_many_times_under_a_name_of_its_own():
    guests = consolidation_guests(LOADS, 2, "measure")
    assert [(each["name"], each["load"]) for each in guests] == [
        ("measure-1-1", "files"), ("measure-1-2", "sums"), ("measure-2-1", "files"), ("measure-2-2", "sums"),
    ]  # fmt: skip
    assert guests[3]["count"] == 3
    assert consolidation_guests(LOADS, 0, "measure") == []


def test_a_row_has_the_figures_of_the_guests_and_of_the_host():
    measured = {"seconds": 12.5, "loads": {"files": 8}, "host": {"memory": 3, "reads": 9}, "changed": True}
    assert consolidation_row(measured, 2, "none", 4) == {
        "tiles": 2, "cache": "none", "guests": 4, "seconds": 12.5, "loads": {"files": 8}, "memory": 3, "reads": 9,
    }  # fmt: skip


def test_a_short_measurement_still_does_each_work_once():
    assert scaled({"files": 1000, "sums": 1}, 0.01) == {"files": 10, "sums": 1}
