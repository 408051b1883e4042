# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._core import foretold
from ansible_collections.livefleet.handover.plugins.module_utils._core.move import Move

MIB = 2**20
GIGABIT = 125_000_000


def a_move(mode="live", running=True, **options):
    container = {"exists": True, "held": False, "running": running, "memory": 650 * MIB, "layer": MIB}
    return Move("shop", "node1", "node2", mode, {"workload": container, "host": {}}, {"workload": {}, "host": {}}, **options)


def sizes(move):
    return foretold.parts(move, [{"size": 1024 * MIB, "allocated": 100 * MIB}], [{"size": 7 * MIB}], [{"size": 40 * MIB}])


def test_all_that_travels_is_counted():
    assert sizes(a_move()) == {"memory": 650 * MIB, "disks": 100 * MIB, "files": 8 * MIB, "images": 40 * MIB}


@pytest.mark.parametrize(("mode", "running"), [("offline", True), ("live", False)])
def test_memory_travels_only_with_what_runs_on(mode, running):
    move = a_move(mode, running)
    assert sizes(move)["memory"] == 0 and foretold.pause_ms(move, 0) is None


def test_memory_goes_through_criu_twice_but_for_lazy_pages():
    assert foretold.pause_ms(a_move(), 650 * MIB) == 200 + 1000
    assert foretold.pause_ms(a_move(), 650 * MIB, placed=True) == 200 + 325
    assert foretold.pause_ms(a_move(lazy_pages=True), 650 * MIB, placed=True) == 200


def test_the_figures_are_those_of_the_helper():
    source = (Path(__file__).resolve().parents[5] / "helper" / "internal" / "session" / "forecast.go").read_text(encoding="utf-8")
    assert f"usualBase = {foretold.USUAL_BASE_MS} * time.Millisecond" in source
    assert f"criuRate = {foretold.CRIU_RATE >> 20} << 20" in source
    assert f"criuWays = {foretold.CRIU_WAYS}.0" in source and f"placedWays = {foretold.PLACED_WAYS}" in source


@pytest.mark.parametrize(
    ("move", "first"),
    [
        (a_move(), "It would stand still for about 1.20 s, and longer by"),
        (a_move("offline"), "It would be stopped, and be down until its last changes are on node2"),
        (a_move(running=False), "148 MiB would be sent (disks 100 MiB, files 8 MiB, images 40 MiB), which takes 1 s or more at 119.2 MiB/s."),
    ],
)
def test_people_read_the_pause_and_the_bytes(move, first):
    lines = foretold.lines(move, sizes(move), GIGABIT, 81)
    assert lines[0].startswith(first)
    assert lines[-1] == "81 checks of both hosts found nothing in the way."


def test_a_container_without_anything_is_no_division_of_nothing():
    lines = foretold.lines(a_move(running=False), {"memory": 0, "disks": 0, "files": 0, "images": 0}, GIGABIT, 81)
    assert lines[0] == "Nothing but its configuration would be sent."
