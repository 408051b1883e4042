# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._ceph.peering import Impact, area, latencies, percentile


def counted(peered: int, seconds: float, clean: int = 0) -> dict[str, tuple[int, float]]:
    return {"peering_latency": (peered, seconds), "recovered_latency": (clean, 0.001 * clean)}


def test_what_was_there_before_does_not_count() -> None:
    impact = Impact()
    impact.see(0.0, 1, counted(50, 400.0))
    impact.see(5.0, 1, counted(53, 406.0))
    assert impact.score == 6.0 and impact.by_osd() == {1: 6.0}


def test_counters_that_begin_anew_count_whole() -> None:
    impact = Impact()
    impact.see(0.0, 1, counted(50, 400.0))
    impact.see(5.0, 1, counted(4, 3.0))
    assert impact.score == 3.0


def test_one_that_has_fallen_shows_that_all_begin_anew() -> None:
    """A young process may have peered for longer already than the one before it ever had."""
    impact = Impact()
    impact.see(0.0, 1, counted(3, 2.0, clean=9))
    impact.see(5.0, 1, counted(4, 30.0, clean=2))
    assert impact.score == 30.0 and impact.clean_at == 5.0


def test_the_counter_of_an_osd_that_comes_up_counts_whole_too() -> None:
    impact = Impact()
    impact.appear(2)
    impact.see(5.0, 2, counted(4, 3.0))
    assert impact.score == 3.0


def test_it_is_clean_when_the_last_group_of_any_osd_is() -> None:
    impact = Impact()
    for osd in (0, 1):
        impact.see(0.0, osd, counted(0, 0.0, clean=7))
    assert impact.clean_at is None
    impact.see(3.0, 0, counted(2, 1.0, clean=8))
    impact.see(4.0, 1, counted(2, 1.0, clean=9))
    impact.see(5.0, 0, counted(3, 2.0, clean=8))
    assert impact.clean_at == 4.0


def test_the_area_under_the_curve_is_the_score() -> None:
    impact = Impact()
    for osd in (0, 1):
        impact.see(0.0, osd, counted(0, 0.0))
    impact.see(10.0, 0, counted(4, 20.0))
    impact.see(11.0, 1, counted(2, 3.0))
    impact.see(12.0, 0, counted(5, 21.5))
    curve = impact.curve()
    assert curve == [(5.0, 4), (9.5, 6), (10.0, 2), (10.5, 3), (11.0, 1), (12.0, 0)]
    assert area(curve) == pytest.approx(impact.score) == pytest.approx(24.5)


def test_nothing_seen_is_no_curve() -> None:
    assert Impact().curve() == [] and Impact().score == 0 and area([]) == 0


def test_percentiles_are_values_that_were_seen() -> None:
    values = [0.01 * number for number in range(1, 101)]
    assert (percentile(values, 0.5), percentile(values, 0.99), percentile([7.0], 0.5)) == (0.5, 0.99, 7.0)


def test_the_worst_operation_is_told_with_its_time() -> None:
    seen = latencies([(1.0, 0.01), (2.0, 3.5), (3.0, 0.02)])
    assert (seen["operations"], seen["p50"], seen["worst"], seen["worst_at"]) == (3, 0.02, 3.5, 2.0)
    assert latencies([]) == {"operations": 0}
