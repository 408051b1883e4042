# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._core.timeline import timeline


def event(at, kind, **more):
    """An event so many milliseconds after a full minute, in a helper's own form."""
    return {"time": "2026-11-21T04:{0:02d}:{1:012.9f}Z".format(15 + int(at // 60000), at % 60000 / 1000), "event": kind, **more}


def state(at, name):
    return event(at, "state", state=name, why="")


def moved(**change):
    """Frozen 2000 ms after the minute; the destination's clock is 500 ms ahead."""
    return {
        "frozen_ms": 300.0,
        "source_session": {
            "mode": "live",
            "stages": [
                {"stage": "barrier", "start_ms": -120.0, "ms": 100.0},
                {"stage": "freeze", "start_ms": 0.0, "ms": 2.0},
                {"stage": "criu_restore", "start_ms": 100.0, "ms": 90.0},
                {"stage": "settle", "start_ms": 310.0, "ms": 40.0},
            ],
        },
        "source_events": [
            event(500, "sending"),
            state(600, "presync"),
            event(1400, "pass", **{"pass": 1}, ms=700.0, bytes=5000, sent=4000),
            event(1410, "converged", dirty=70),
            event(1600, "pass", **{"pass": 2}, ms=50.0, bytes=70, sent=60),
            event(1700, "clock", ahead_ms=500.0, within_ms=0.25),
            event(2002, "stage", stage="freeze", ms=2.0, start_ms=0),
            state(2003, "frozen"),
            state(2350, "done"),
        ],
        "destination_events": [state(1000, "presync"), state(2503, "frozen"), state(2800, "resumed"), state(2840, "done")],
        **change,
    }


def test_the_freeze_is_the_origin_and_both_sides_have_the_sources_clock():
    line = timeline(moved())
    assert line["begin_ms"] == pytest.approx(-1500)
    assert line["end_ms"] == pytest.approx(350)
    assert [(each["state"], round(each["from_ms"]), round(each["to_ms"])) for each in line["states"]["destination"]] == [
        ("presync", -1500, 3), ("frozen", 3, 300), ("resumed", 300, 340), ("done", 340, 340),
    ]  # fmt: skip
    assert [each["state"] for each in line["states"]["source"]] == ["presync", "frozen", "done"]
    assert line["skew"] == {"ahead_ms": 500.0, "within_ms": 0.25, "known": True}


def test_passes_and_what_was_dirty():
    line = timeline(moved())
    assert [(each["pass"], round(each["start_ms"]), each["sent"]) for each in line["passes"]] == [(1, -1300, 4000), (2, -450, 60)]
    assert [(round(each["at_ms"]), each["bytes"]) for each in line["dirty"]] == [(-1300, 5000), (-590, 70), (-450, 70)]


def test_a_workload_that_was_slowed_down():
    steps = [event(at, "throttle", percent=percent) for at, percent in ((400, 20), (900, 30), (1500, 0))]
    line = timeline(moved(source_events=steps + moved()["source_events"]))
    assert [(each["percent"], round(each["from_ms"]), round(each["to_ms"])) for each in line["throttle"]] == [(20, -1600, -1100), (30, -1100, -500)]
    assert timeline(moved())["throttle"] == []


def test_memory_that_goes_ahead_and_the_rest_of_its_dump():
    looked = [event(400, "memory", scan=1, bytes=9000, fresh=8000, full=False, ms=300.0), event(2040, "pages", bytes=9500, sent=500)]
    line = timeline(moved(source_events=looked + moved()["source_events"]))
    assert line["begin_ms"] == pytest.approx(-1900)
    assert line["memory"][0] == {"what": "Memory 1", "start_ms": pytest.approx(-1900), "ms": 300.0, "bytes": 9000, "sent": 8000}
    assert line["memory"][1] == {"what": "Dump", "bytes": 9500, "sent": 500}
    assert timeline(moved())["memory"] == []


def test_each_stage_is_the_hosts_that_it_ran_on():
    stages = timeline(moved())["stages"]
    assert [each["stage"] for each in stages["source"]] == ["barrier", "freeze", "settle"]
    assert [each["stage"] for each in stages["destination"]] == ["criu_restore"]


def test_a_move_over_a_full_hour_and_an_unknown_clock():
    late = [dict(each, time=each["time"].replace("T04:15", "T04:59")) for each in moved()["source_events"] if each["event"] != "clock"]
    late[-1]["time"] = "2026-11-21T05:00:00Z"
    line = timeline(moved(source_events=late, destination_events=[]))
    assert not line["skew"]["known"]
    assert line["end_ms"] == pytest.approx(58000)


@pytest.mark.parametrize("missing", [[], [state(1, "presync")]])
def test_without_the_freeze_there_is_no_picture(missing):
    assert timeline(moved(source_events=missing)) == {}
