# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import re
import typing as t
import xml.etree.ElementTree as ET

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.livefleet.handover.plugins.filter.restart_impact import FilterModule

FILTERS = FilterModule().filters()
row, beside, picture = (FILTERS[name] for name in ("restart_impact", "restart_beside", "restart_picture"))

DONE = [
    {"id": 2, "stop_seconds": 0.5, "up_seconds": 2.5, "reads": 14},
    {"id": 3, "stop_seconds": 0.75, "up_seconds": 2.25, "reads": 16},
]


def seen(*events: tuple[float, int, bool], clean_at: float | None = 20.0, **more: t.Any) -> dict[str, t.Any]:
    """What a watch returns."""
    return {
        "osds": [{"at": at, "osd": osd, "up": up} for at, osd, up in events], "clean_at": clean_at, "score": 15.0, "peak": 10,
        "curve": [[11.0, 10], [12.5, 0]], "probe": {"operations": 0}, **more,
    }  # fmt: skip


def test_a_row_is_about_its_own_osds() -> None:
    watch = seen((5.0, 0, False), (8.0, 0, True), (10.0, 2, False), (10.25, 3, False), (13.0, 2, True), (14.0, 3, True), (19.0, 0, True))
    found = row(watch, [2, 3], DONE, "held")
    assert (found["osds"], found["how"], found["whole"]) == ("osd.2, osd.3", "held", True)
    assert (found["away"], found["stop"], found["up"], found["reads"]) == (3.75, 0.75, 2.5, 30)
    assert (found["clean"], found["score"], found["peak"]) == (6.0, 15.0, 10)
    assert found["curve"] == [[1.0, 10], [2.5, 0]]
    assert found["worst"] is None


def test_an_earlier_restart_and_one_that_has_not_come_up_do_not_count() -> None:
    watch = seen((10.0, 2, False), (13.0, 2, True))
    assert row(watch, [2], [*DONE, {"id": 2, "tidy": True}])["reads"] == 14
    assert row(watch, [4], DONE)["stop"] is None


def test_an_osd_that_goes_twice_was_away_since_the_first_time() -> None:
    assert row(seen((10.0, 2, False), (12.0, 2, True), (13.0, 2, False), (16.0, 2, True)), [2])["away"] == 6.0


def test_what_a_client_waited_for_is_in_it() -> None:
    probe = {"operations": 900, "p50": 0.004, "p95": 0.02, "p99": 0.31, "worst": 1.02, "worst_at": 12.1}
    assert row(seen((10.0, 2, False), (12.0, 2, True), probe=probe), [2])["worst"] == 1.02


def test_one_that_was_not_seen_to_come_up_is_not_whole() -> None:
    found = row(seen((10.0, 2, False)), [2])
    assert (found["whole"], found["away"], found["clean"], found["up"], found["reads"]) == (False, None, None, None, None)
    assert not row(seen((10.0, 2, False), (12.0, 2, True)), [2, 3])["whole"]


def test_an_osd_that_was_down_before_is_whole() -> None:
    found = row(seen((12.0, 2, True), clean_at=None), [2])
    assert (found["whole"], found["away"], found["clean"]) == (True, None, None)


def test_an_earlier_run_is_laid_beside_where_it_is_about_the_same() -> None:
    two, three = (row(seen((10.0, osd, False), (12.0, osd, True)), [osd]) for osd in (2, 3))
    record = json.dumps({"host": "store2", "restarts": [dict(two, score=140.0), dict(three, osds="osd.9")]})
    found = beside([two, three], record, "old.json")
    assert [(each["osds"], each["when"], each["score"]) for each in found] == [("osd.2", "before", 140.0), ("osd.2", "now", 15.0), ("osd.3", "now", 15.0)]


@pytest.mark.parametrize("record", ["nothing", "[]", "{}", '{"restarts": [{"osds": "osd.2"}]}', '{"restarts": 3}', '{"restarts": [3]}', "null"])
def test_what_is_no_record_is_refused_with_its_name(record: str) -> None:
    with pytest.raises(AnsibleFilterError, match="old.json is no record of restarts: name a file"):
        beside([], record, "old.json")


def test_the_picture_has_a_strip_for_each_with_its_area_to_scale() -> None:
    short = row(seen((10.0, 2, False), (12.0, 2, True)), [2], how="<held>")
    tall = dict(short, score=60.0, curve=[[0.0, 20], [3.0, 0]])
    drawn = picture([dict(tall, when="before"), dict(short, when="now"), dict(short, curve=[], when="now")])
    ET.fromstring(drawn)
    assert "osd.2, &lt;held&gt;" in drawn and "3.0 s; up to 20 at once" in drawn
    # Wide and high of each curve: 3 s with 20 groups, and 1.5 s with 10.
    sizes = []
    for path in re.findall(r'<path d="M([^"]+)V[^"]*Z" fill', drawn):
        left, base, high, right = map(float, re.match(r"([\d.]+) ([\d.]+)V([\d.]+)H([\d.]+)", path).groups())
        sizes.append((right - left, base - high))
    assert sizes[0] == pytest.approx((2 * sizes[1][0], 2 * sizes[1][1])) and len(sizes) == 2
