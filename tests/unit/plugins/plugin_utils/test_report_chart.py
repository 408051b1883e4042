# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import re
from pathlib import Path

import pytest
from ansible_collections.livefleet.handover.plugins.plugin_utils import _report_chart as chart

JOURNAL = Path(__file__).resolve().parents[4] / "helper" / "internal" / "session" / "record" / "journal.go"
# A move that came to one of these has no page.
WITHOUT_PAGE = {"refused", "thawed", "discarded", "failed"}


def luminance(colour: str) -> float:
    """By WCAG 2.1."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_each_state_of_the_helper_that_a_page_may_show_has_a_colour_of_its_own():
    states = set(re.findall(r'State = "([a-z_]+)"', JOURNAL.read_text(encoding="utf-8")))
    assert set(chart.STATES) == states - WITHOUT_PAGE
    assert len({*chart.STATES.values(), chart.OTHER_STATE}) == len(chart.STATES) + 1


@pytest.mark.parametrize("colour", [*chart.STATES.values(), chart.OTHER_STATE])
def test_a_state_can_be_read_on_its_colour(colour):
    assert 1.05 / (luminance(colour) + 0.05) >= 4.5


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [
        (0, 636, [0, 200, 400, 600]),
        (0, 18000, [0, 5000, 10000, 15000]),
        (0, 0.4, [0, 0.1, 0.2, 0.3, 0.4]),
        (-130, 250, [-100, 0, 100, 200]),
        (0, 0, [0]),
    ],
)
def test_the_marks_of_an_axis_are_round(first, last, expected):
    assert chart.marks(first, last) == expected


@pytest.mark.parametrize(("mark", "span", "expected"), [(200.0, 636, "200 ms"), (0.1, 0.4, "0.1 ms"), (5000, 18000, "5 s"), (1500, 2000, "1.5 s")])
def test_a_mark_has_the_unit_of_its_axis(mark, span, expected):
    assert chart.spelled(mark, span) == expected


def test_a_legend_names_each_that_occurs_once():
    found = chart.legend(["done", "presync", "done", "unheard-of"], chart.STATES, chart.OTHER_STATE)
    assert found == [("presync", chart.STATES["presync"]), ("done", chart.STATES["done"]), ("unheard-of", chart.OTHER_STATE)]
