#!/usr/bin/env python
# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How fast pcopy copies, against what people use today, in turn, in one run, between two lab hosts.

Each row of the table of bars is a benchmark of its own (rows.py). What was measured is kept in docs/benchmarks/pcopy-runs.json, row by
row, so that a row that is run again replaces its own results and no others; pcopy.json, pcopy.md and the charts are made of all of it.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import sys
import typing as t
from pathlib import Path

import rows
from contenders import Pair
from hosts import CHECKOUT
from results import Bar, chart, save, spread, table

FOLDER = CHECKOUT / "docs" / "benchmarks"
RUNS = FOLDER / "pcopy-runs.json"
# What is shown of each contender beside what is compared: heading and unit.
BESIDES = {
    "processor": ("processor, s", 1.0),
    "sent": ("sent, MiB", 2.0**20),
    "peak": ("memory here, MiB", 2.0**20),
    "peak_there": ("memory there, MiB", 2.0**20),
}
TEMPLATE = Path(__file__).resolve().parent / "pcopy.md.in"


def measure(row: rows.Row, pair: Pair, runs: int) -> dict[str, t.Any]:
    samples: dict[str, list[dict[str, t.Any]]] = {}
    load = []
    with row.ready(pair) as rounds:
        for number in range(runs):
            load.append(round(os.getloadavg()[0], 1))
            for name, result in rounds(number):
                samples.setdefault(name, []).append(result)
                said = "  ".join(f"{k} {v:.4g}" for k, v in result.items() if isinstance(v, (int, float)) and k != "status")
                print(f"{row.name:8} {number + 1:2} of {runs}  {name:28} {said}", flush=True)
    return {
        "date": datetime.date.today().isoformat(),
        "runs": runs,
        "load": load,
        "machine": f"{platform.release()}, {os.cpu_count()} processors",
        "samples": samples,
    }


def write(kept: dict[str, t.Any]) -> list[Bar]:
    """All files but the record of the runs."""
    bars: list[Bar] = []
    sections = []
    for name, row in rows.ROWS.items():
        if name not in kept:
            sections.append(f"## {row.title}\n\nNot measured yet: `make bench ROWS={name}`.\n")
            continue
        found = kept[name]
        mine = row.bars(found["samples"])
        for each in mine:
            each.date, each.runs = found["date"], found["runs"]
        bars += mine
        measured: dict[str, list[float]] = {who: [run[row.key] for run in runs] for who, runs in found["samples"].items()}
        (FOLDER / f"pcopy-{name}.svg").write_text(chart(row.title, row.unit, measured, ours=row.ours), encoding="utf-8")
        extra = [k for k in BESIDES if any(k in run for runs in found["samples"].values() for run in runs)]
        lines = []
        for who, runs in found["samples"].items():
            s = spread(measured[who])
            cells = [f"{s[k]:.3g}" for k in ("min", "median", "max")]
            cells += [f"{spread([run[k] / BESIDES[k][1] for run in runs])['median']:.3g}" if k in runs[0] else "" for k in extra]
            lines.append([who, *cells])
        sections.append(
            f"## {row.title}\n\n{row.what}\n\n![{row.title}](pcopy-{name}.svg)\n\n"
            + table(["", f"least, {row.unit}", "median", "most", *(BESIDES[k][0] for k in extra)], lines)
            + "\n\n" + "\n".join(f"- {each.sentence()}" for each in mine)
            + f"\n\n{found['runs']} runs each, turn about, on {found['date']}; Linux {found['machine']}; load average before each round: "
            + ", ".join(map(str, found["load"])) + ".\n"
        )  # fmt: skip
    save(bars, FOLDER / "pcopy.json")
    met = table(
        ["bar", "figure", "limit", "met"],
        [[b.what, f"{b.figure:.3g}", f"{'≥' if b.at_least else '≤'} {b.limit:g}", "yes" if b.met else "**no**"] for b in bars],
    )
    text = TEMPLATE.read_text(encoding="utf-8").replace("@TABLE@", met).replace("@ROWS@", "\n".join(sections))
    (FOLDER / "pcopy.md").write_text(text, encoding="utf-8")
    return bars


def main() -> int:
    parser = argparse.ArgumentParser(description=t.cast(str, __doc__).splitlines()[0])
    parser.add_argument("--rows", default=",".join(rows.ROWS), help="which rows, by name (all): " + ", ".join(rows.ROWS))
    parser.add_argument("--runs", type=int, default=5, help="rounds of each row (5)")
    given = parser.parse_args()
    chosen = given.rows.replace(",", " ").split()
    unknown = set(chosen) - set(rows.ROWS)
    if unknown or given.runs < 0:
        parser.error(f"there is no row {', '.join(sorted(unknown))}: there are {', '.join(rows.ROWS)}" if unknown else "a number of runs from 0 on")
    FOLDER.mkdir(exist_ok=True)
    kept = json.loads(RUNS.read_text(encoding="utf-8")) if RUNS.exists() else {}
    if given.runs:
        pair = Pair()
        for name in chosen:
            kept[name] = measure(rows.ROWS[name], pair, given.runs)
            RUNS.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    bars = write(kept)
    for each in bars:
        print(f"{'met   ' if each.met else 'MISSED'} {each.figure:8.4g} {'>=' if each.at_least else '<='} {each.limit:<6g} {each.what}")
    return 0 if all(each.met for each in bars) else 1


if __name__ == "__main__":
    sys.exit(main())
