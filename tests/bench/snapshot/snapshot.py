#!/usr/bin/env python
# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Snapshots, backups and the way back against the tools of the trade, in turn, in one run.

The rows of one disk are in disks.py, on a host of the copies' benchmark. Those of PostgreSQL under pgbench are in database.py, on the lab's own two
hosts. What was measured is kept by row in docs/benchmarks/snapshot-runs.json; a row that is run again replaces its own part. snapshot.json,
snapshot.md and the charts are made of all of it.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import signal
import sys
import typing as t
from pathlib import Path

HERE = Path(__file__).resolve().parent
# A folder of programs and not a package: it can be imported from only when it is in the path.
sys.path.insert(0, str(HERE.parent))
import database
import disks
import freeze
from results import Bar, chart, save, spread, table

CHECKOUT = freeze.CHECKOUT
OUT = CHECKOUT / "docs" / "benchmarks"
RUNS = OUT / "snapshot-runs.json"
ROWS: dict[str, t.Callable[[], t.Any]] = {**database.ROWS, **disks.ROWS}
# What is shown beside the time.
BESIDES = {"read": "read, part of the data", "sent": "sent, part of the data", "written": "written, part of the data", "by_marks": "by marks"}


def fleet_of(name: str) -> freeze.Fleet:
    """The hosts of a row, with the helper on each."""
    folder = HERE.parent / "fleet"
    bench = ("bench1", "bench2"), folder / "inventory.yml", folder / "parameters.yml"
    fleet = freeze.Fleet(("node1", "node2"), None, None) if name in database.ROWS else freeze.Fleet(*bench)
    fleet.names(HERE.parent / "ready.yml")
    return fleet


def measure(name: str, fleet: freeze.Fleet, sizes: disks.Sizes, runs: int) -> dict[str, t.Any]:
    """All rounds of one row, on a disk or a container of its own."""
    row = ROWS[name]()
    samples: disks.Samples = {}
    load = []
    subject = database.Postgres(fleet, sizes) if name in database.ROWS else disks.Disk(fleet, fleet.hosts[0], sizes)
    with subject.ready() as ready:
        row.begin(ready)
        for number in range(runs):
            load.append(round(os.getloadavg()[0], 1))
            for who, result in row.round(ready, number).items():
                samples.setdefault(who, []).append(result)
                said = "  ".join(f"{key} {value:.4g}" for key, value in result.items())
                print(f"{name:9} {number + 1:2} of {runs}  {who:36} {said}", flush=True)
    return {
        "date": datetime.date.today().isoformat(), "runs": runs, "load": load, "machine": f"{platform.release()}, {os.cpu_count()} processors",
        "sizes": vars(sizes), "samples": samples,
    }  # fmt: skip


def section(name: str, found: dict[str, t.Any], bars: list[Bar]) -> str:
    """One row's part of the page."""
    row, samples = ROWS[name](), found["samples"]
    extra = [key for key in BESIDES if any(key in runs[0] for runs in samples.values())]
    lines = []
    for who, runs in samples.items():
        seconds = spread([run["seconds"] for run in runs])
        beside = [f"{spread([run[key] for run in runs])['median']:.3g}" if key in runs[0] else "" for key in extra]
        lines.append([who, *(f"{seconds[key]:.3g}" for key in ("min", "median", "max")), *beside])
    sizes = found["sizes"]
    return (
        f"## {row.title}\n\n{row.what}\n\n![{row.title}](snapshot-{name}.svg)\n\n"
        + table(["", f"least, {row.unit}", "median", "most", *(BESIDES[key] for key in extra)], lines) + "\n\n"
        + "\n".join(f"- {each.sentence()}" for each in bars)
        + f"\n\n{found['runs']} rounds, turn about, on {found['date']}; Linux {found['machine']}. "
        + f"The disk has {sizes['image']}, and {sizes['used_mib']} MiB are in use. Load average before each round: {', '.join(map(str, found['load']))}.\n"
    )  # fmt: skip


def write(kept: dict[str, t.Any]) -> list[Bar]:
    """All files but the record of the runs."""
    bars: list[Bar] = []
    sections = []
    for name, make in ROWS.items():
        if name not in kept:
            sections.append(f"## {make().title}\n\nNot measured yet: `make bench-snapshot ROWS={name}`.\n")
            continue
        found = kept[name]
        mine = make().bars(found["samples"])
        for each in mine:
            each.date, each.runs = found["date"], found["runs"]
        bars += mine
        measured = {who: [run["seconds"] for run in runs] for who, runs in found["samples"].items()}
        (OUT / f"snapshot-{name}.svg").write_text(chart(make().title, make().unit, measured, ours=disks.OURS), encoding="utf-8")
        sections.append(section(name, found, mine))
    save(bars, OUT / "snapshot.json")
    met = table(
        ["bar", "figure", "limit", "met"], [[b.what, f"{b.figure:.3g}", f"≤ {b.limit:g}", "yes" if b.met else "**no**"] for b in bars]
    )
    text = (HERE / "snapshot.md.in").read_text(encoding="utf-8").replace("@TABLE@", met).replace("@ROWS@", "\n".join(sections))
    (OUT / "snapshot.md").write_text(text, encoding="utf-8")
    return bars


def main() -> int:
    parser = argparse.ArgumentParser(description=t.cast(str, __doc__).splitlines()[0])
    parser.add_argument("--rows", default=",".join(ROWS), help="which rows, by name (all): " + ", ".join(ROWS))
    parser.add_argument("--runs", type=int, default=5, help="rounds of each row; 0 only writes the pages (5)")
    parser.add_argument("--used", type=int, default=disks.Sizes.used_mib, help="MiB in use on the disk (2048)")
    given = parser.parse_args()
    chosen = given.rows.replace(",", " ").split()
    unknown = set(chosen) - set(ROWS)
    if unknown or given.runs < 0:
        parser.error(f"there is no row {', '.join(sorted(unknown))}: there are {', '.join(ROWS)}" if unknown else "a number of runs from 0 on")
    # Whoever ends it finds the host as it was.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    kept = json.loads(RUNS.read_text(encoding="utf-8")) if RUNS.exists() else {}
    if given.runs:
        for name in chosen:
            kept[name] = measure(name, fleet_of(name), disks.Sizes(used_mib=given.used), given.runs)
            RUNS.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    bars = write(kept)
    for each in bars:
        print(f"{'met   ' if each.met else 'MISSED'} {each.figure:8.4g} <= {each.limit:<6g} {each.what}")
    return 0 if all(each.met for each in bars) else 1


if __name__ == "__main__":
    sys.exit(main())
