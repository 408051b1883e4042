# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every label of the report pages can be read: a contrast of 4.5 at least, as WCAG 2 asks of text, by day, in the dark and in print."""

from __future__ import annotations

import re

import pytest
from ansible_collections.livefleet.handover.plugins.plugin_utils import _report_chart
from ansible_collections.livefleet.handover.plugins.plugin_utils._declaration import COLLECTION

STYLE = (COLLECTION / "roles" / "migrate" / "templates" / "page.css.j2").read_text(encoding="utf-8")
# By day, in the dark, in print: each set names all colours.
SETS = [dict(re.findall(r"--(\w+): (#\w+)", found)) for found in re.findall(r":root \{([^}]*)\}", STYLE)]
LEAST = 4.5


def luminance(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(digit * 2 for digit in colour[1:])
    parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("at", range(3), ids=["by day", "in the dark", "in print"])
def test_each_text_stands_out_from_its_ground(at: int) -> None:
    assert len(SETS) == 3 and {"ink", "soft", "accent", "good", "bad", "paper", "ground"} <= set(SETS[0])
    colours = {**SETS[0], **SETS[at]}
    assert not [(text, ground) for text in ("ink", "soft", "accent", "good", "bad") for ground in ("paper", "ground")
                if contrast(colours[text], colours[ground]) < LEAST]  # fmt: skip


def test_the_name_of_a_state_stands_out_from_its_bar() -> None:
    """It is white, on the colour of the state."""
    states = {**_report_chart.STATES, "another": _report_chart.OTHER_STATE}
    assert len(states) >= 13 and not [name for name, colour in states.items() if contrast("#ffffff", colour) < LEAST]
