# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Placement groups that are peering over time, drawn: a strip for each restart, one below the other, all on one scale.

The picture stands alone as a file, and takes the colours of a page that it is put into (`--paper`, `--ink`, `--soft`, `--line`).
"""

from __future__ import annotations

import html
import typing as t
from dataclasses import dataclass

# Sizes in the picture's own units.
LEFT, WIDTH, STRIP, TOP = 210, 620, 70, 34
# The free part of a strip above its curve, and below.
ABOVE, BELOW = 12, 12
TITLE = "Placement groups that are peering, over time"


@dataclass(frozen=True)
class Strip:
    """One restart."""

    name: str
    score: float  # placement groups times seconds, the area under the curve
    curve: t.Sequence[t.Sequence[float]]  # (second, groups that are peering from then on), as Impact.curve has it
    colour: str


def plot(strips: t.Sequence[Strip]) -> str:
    """An SVG. Each curve begins with its first group; one without any is a line."""
    begin = [strip.curve[0][0] if strip.curve else 0.0 for strip in strips]
    span = max([strip.curve[-1][0] - at for strip, at in zip(strips, begin) if strip.curve] + [1.0])
    most = max([level for strip in strips for _at, level in strip.curve] + [1])
    height = TOP + STRIP * len(strips) + 24
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 20} {height}" font-family="sans-serif" font-size="13" role="img">',
        f"<title>{TITLE}</title>",
        f'<rect width="{LEFT + WIDTH + 20}" height="{height}" style="fill:var(--paper,#ffffff)"/>',
        '<g style="fill:var(--ink,#000000)">',
        f'<text x="10" y="20" font-size="15" font-weight="bold">{TITLE}</text>',
    ]
    for number, (strip, at) in enumerate(zip(strips, begin)):
        base = TOP + STRIP * (number + 1) - BELOW
        parts += [
            f'<text x="{LEFT - 10}" y="{base - 14}" text-anchor="end">{html.escape(strip.name)}</text>',
            f'<text x="{LEFT - 10}" y="{base}" text-anchor="end" font-size="11.5" style="fill:var(--soft,#64707f)">{strip.score:.1f} PG·s</text>',
            f'<path d="M{LEFT} {base}H{LEFT + WIDTH}" style="stroke:var(--line,#d5dae0)"/>',
        ]
        if strip.curve:
            x = [LEFT + (moment - at) / span * WIDTH for moment, _level in strip.curve]
            y = [base - level / most * (STRIP - ABOVE - BELOW) for _moment, level in strip.curve]
            line = f"M{x[0]:.1f} {base}" + "".join(f"V{b:.1f}H{c:.1f}" for b, c in zip(y, [*x[1:], x[-1]])) + f"V{base}Z"
            parts.append(f'<path d="{line}" fill="{strip.colour}" fill-opacity="0.75"/>')
    parts += [
        '<g font-size="11.5" style="fill:var(--soft,#64707f)">',
        f'<text x="{LEFT}" y="{height - 8}">0 s</text>',
        f'<text x="{LEFT + WIDTH}" y="{height - 8}" text-anchor="end">{span:.1f} s; up to {most:.0f} at once</text>',
        "</g></g></svg>",
    ]
    return "\n".join([*parts, ""])
