# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the benchmarks make of their figures: medians, the list of bars as JSON, tables and charts.

A chart is a small SVG: one bar for each contender, a tick for its quickest and its slowest run, and a line where the limit is.
"""

from __future__ import annotations

import dataclasses
import datetime
import html
import json
import statistics
import typing as t
from pathlib import Path


def spread(values: list[float]) -> dict[str, float]:
    return {"min": round(min(values), 4), "median": round(statistics.median(values), 4), "max": round(max(values), 4)}


@dataclasses.dataclass
class Bar:
    """One bar of a benchmark, and what was measured of it."""

    what: str
    figure: float
    limit: float
    runs: int
    spread: dict[str, dict[str, float]]
    contender: str
    # Whether the figure has to be at least, or at most, the limit.
    at_least: bool = False
    date: str = dataclasses.field(default_factory=lambda: datetime.date.today().isoformat())

    @property
    def met(self) -> bool:
        return self.figure >= self.limit if self.at_least else self.figure <= self.limit

    def entry(self) -> dict[str, t.Any]:
        return {
            "bar": self.what, "figure": round(self.figure, 4), "limit": self.limit, "met": self.met,
            "runs": self.runs, "spread": self.spread, "contender": self.contender, "date": self.date,
        }  # fmt: skip

    def sentence(self) -> str:
        sign = "at least" if self.at_least else "at most"
        far = abs(self.figure / self.limit - 1) if self.limit else 0
        said = "met" if self.met else f"**missed by {far:.0%}**"
        return f"{self.what}: **{self.figure:.3g}**, {sign} {self.limit:g}: {said}"


def save(bars: list[Bar], path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps([b.entry() for b in bars], indent=2) + "\n", encoding="utf-8")


def table(head: t.Sequence[str], rows: t.Iterable[t.Sequence[object]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows])


# Sizes of a chart, in its own units.
WIDTH, LEFT, ROW, TOP, RIGHT = 720, 210, 26, 40, 110
OURS, OTHERS, MARK = "#1f6f8b", "#a9b8bf", "#b5382a"


def short(value: float) -> str:
    """Three digits, and noughts where others write a power of ten."""
    text = f"{value:.3g}"
    return f"{float(text):,.0f}" if value >= 1000 else text


def chart(title: str, unit: str, values: dict[str, list[float]], limit: float | None = None, ours: str = "") -> str:
    """Horizontal bars as long as the medians. Those whose names begin with `ours` stand out."""
    most = max([max(v) for v in values.values()] + ([limit] if limit else []))
    # What a letter of the names is wide at most, on average.
    left = max(LEFT, 20 + round(7 * max(len(name) for name in values)))
    scale = (WIDTH - left - RIGHT) / most
    height = TOP + ROW * len(values) + 16
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="13">',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="10" y="22" font-size="15" font-weight="bold">{html.escape(title)}</text>',
    ]
    for n, (name, runs) in enumerate(values.items()):
        s = spread(runs)
        y = TOP + ROW * n
        middle = y + 9
        parts += [
            f'<text x="{left - 8}" y="{y + 14}" text-anchor="end">{html.escape(name)}</text>',
            f'<rect x="{left}" y="{y}" width="{s["median"] * scale:.1f}" height="18" fill="{OURS if name.startswith(ours) else OTHERS}"/>',
            f'<path d="M{left + s["min"] * scale:.1f} {middle}H{left + s["max"] * scale:.1f}" stroke="#333333"/>',
            f'<text x="{left + s["max"] * scale + 6:.1f}" y="{y + 14}">{short(s["median"])} {html.escape(unit)}</text>',
        ]
    if limit:
        at = f"{left + limit * scale:.1f}"
        parts.append(f'<path d="M{at} {TOP - 6}V{height - 10}" stroke="{MARK}" stroke-dasharray="4 3"/>')
    return "\n".join([*parts, "</svg>", ""])
