# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How the charts of a report page look: a colour for each state, stage and series, and the marks of an axis.

Words stand in white on the colour of their state, so each of those has a contrast of at least 4.5 to white, as WCAG 2.1 (1.4.3) asks.
"""

from __future__ import annotations

import math
import typing as t

# State of a session that a move may have come through → colour; no two are alike.
STATES = {
    "prepare": "#5f6b7a",
    "presync": "#3d6fb4",
    "barrier": "#6f5fb0",
    "frozen": "#b5403c",
    "flushed": "#8c3a66",
    "prepared": "#9a5a12",
    "released": "#7a4a2a",
    "resumed": "#2f7a37",
    "settled": "#1f7468",
    "done": "#3f4a57",
    "in_doubt": "#a8326e",
    "fenced": "#5a2020",
}
OTHER_STATE = "#6b5b73"

# Stage of the pause → colour. Stages of one kind have one.
STAGES = {
    "freeze": "#3d6fb4",
    "dump": "#5b8fd0",
    "last_pass": "#4a9d8e",
    "copy_dump": "#6cb5a5",
    "copy_layer": "#6cb5a5",
    "freeze_fs": "#a79bd6",
    "seal": "#8a7cc0",
    "flush": "#8a7cc0",
    "verify": "#b07cb8",
    "attach": "#c9a14a",
    "restore": "#d98a3d",
    "criu_restore": "#e0a468",
    "place": "#b07cb8",
    "datasync": "#4a9d8e",
    "release": "#c25450",
    "resume": "#4f9d55",
}
OTHER_STAGE = "#7b8794"

# What is drawn over time, in the order of the legend → its colour and its words.
SERIES = {
    "dirty": ("#c25450", "dirty"),
    "pass": ("#3d6fb4", "sent by a pass over the volumes"),
    "memory": ("#c9a14a", "new in a look at the memory"),
}

STEPS = (1, 2, 5, 10)


def marks(first: float, last: float, at_most: int = 6) -> list[float]:
    """Round values from first to last, as many as an axis bears: multiples of 1, 2 or 5 times a power of ten."""
    span = last - first
    if span <= 0:
        return [first]
    power = 10.0 ** math.floor(math.log10(span / at_most))
    step = next(power * each for each in STEPS if span / (power * each) <= at_most)
    lowest = math.ceil(first / step - 1e-9)
    return [round(n * step, 9) for n in range(lowest, math.floor(last / step + 1e-9) + 1)]


def spelled(milliseconds: float, span: float) -> str:
    """A mark of an axis of that length, in the unit that suits the whole of it."""
    value, unit = (milliseconds / 1000, "s") if span >= 2000 else (milliseconds, "ms")
    return f"{value:g} {unit}"


def legend(seen: t.Iterable[str], colours: t.Mapping[str, str], other: str) -> list[tuple[str, str]]:
    """The names that occur, in the order of the table, each with its colour."""
    there = set(seen)
    known = [(name, colours[name]) for name in colours if name in there]
    return known + [(name, other) for name in sorted(there - set(colours))]


def of_template() -> dict[str, t.Any]:
    """What the template of a page calls by these names."""
    return {
        "states": STATES, "other_state": OTHER_STATE, "stage_colours": STAGES, "other_stage": OTHER_STAGE, "series": SERIES,
        "marks": marks, "spelled": spelled, "legend": legend,
    }  # fmt: skip
