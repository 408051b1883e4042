# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._peering import (
    Impact,
    area,
    latencies,
    percentile,
)


def test_what_was_there_before_does_not_count() -> None:
    impact = Impact()
    impact.see(0.0, 1, 50, 400.0)
    impact.see(5.0, 1, 53, 406.0)
    assert impact.score == 6.0 and impact.by_osd() == {1: 6.0}


def test_a_counter_that_begins_anew_counts_whole() -> None:
    impact = Impact()
    impact.see(0.0, 1, 50, 400.0)
    impact.see(5.0, 1, 4, 3.0)
    assert impact.score == 3.0


def test_the_counter_of_an_osd_that_comes_up_counts_whole_too() -> None:
    impact = Impact()
    impact.appear(2)
    impact.see(5.0, 2, 4, 3.0)
    assert impact.score == 3.0


def test_the_area_under_the_curve_is_the_score() -> None:
    impact = Impact()
    for osd in (0, 1):
        impact.see(0.0, osd, 0, 0.0)
    impact.see(10.0, 0, 4, 20.0)
    impact.see(11.0, 1, 2, 3.0)
    impact.see(12.0, 0, 5, 21.5)
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
