# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What tests/bench/ceph has measured: kept row by row, held to the bars, and written as a page, charts and curves."""

from __future__ import annotations

import json
import statistics
import sys
import typing as t
from pathlib import Path

# The picture is the collection's own, which this is not a part of.
sys.path.append(str(Path(__file__).resolve().parent.parent.parent / "plugins" / "module_utils" / "_ceph"))

from peering_plot import Strip, plot
from results import Bar, chart, save, spread, table

# The cells that are held to a bar, and what they are compared with.
AGAINST = {"held": "plain", "held, no compaction": "plain", "prewarmed": "cold", "evicted, prewarmed": "evicted"}
CONTENDERS = {
    "plain": "ceph-ansible's sequence: stop, start, wait",
    "cold": "the same sequence, its disk taken away and brought again in between",
    "evicted": "the same sequence, what it reads taken out of the page cache before",
}
COLUMNS = (("up", "start → up, s"), ("reads", "reads"), ("clean", "up → clean, s"), ("worst", "longest operation, s"), ("score", "score, PG·s"))
ALONE = (
    ("database", "database, MiB"),
    ("stop", "stop, s"),
    ("prewarm", "prewarming, s"),
    ("inside", "of which after the stop, s"),
    ("away", "down by the map, s"),
)
MACHINE = (("gate", "gate, s"), ("worst_from", "which was due, s after the OSD went"), ("busy", "load average"))
OURS = {"bluestore": "held", "filestore": "prewarmed"}
# A share of what it is compared with, at most, where one is asked for.
HALF, HELD = {"up": 1 / 2, "clean": 1 / 2}, {"up": 1 / 5, "reads": 1 / 14}
COLOURS = {
    "plain": "#a9b8bf",
    "cold": "#a9b8bf",
    "hot": "#4a9d8e",
    "held": "#1f6f8b",
    "held, no compaction": "#c9a14a",
    "prewarmed": "#1f6f8b",
    "evicted": "#c8b8a0",
    "evicted, prewarmed": "#8b5a1f",
}
HEAD = """# OSD restarts

`make bench-ceph` writes this page: restarts of one OSD of a cluster of four (16.2, three monitors) on two hosts of one machine. The OSDs' disks are held to
so many reads a second. One client writes objects of 4 KiB, one after the other, and another 50 keys a second. More clients keep both processors
busy, so an OSD that starts waits for those and not for its disk.

The cells of a row come in turn. A cell shows the median, and shortest to longest where there was more than one run. Compare the cells of one row with
each other, not with another machine's. The cluster's balancer is off in all cells, as ceph-ansible's rolling update and our role have it. With it on,
one of the first runs did not end: it saw an OSD away and began to move groups.

- *database*: of the OSD, before its restart. It was grown first; a cold start reads a part of it.
- *cold*: the OSD's disk was taken away and brought again between stop and start, as by a reboot of its host. *evicted*: while the OSD served, the page
  cache lost the blocks that it reads at its start, and the kernel its inodes and directories, as under memory pressure. *prewarmed*: the role's answer to
  each.
- *start → up*: from the end of the old process, or the order to start, until the OSD says that it is active. After a reboot, a FileStore is read before
  that, and the OSD is away in the meantime: its column has that. *Down by the map* is from when the OSD was seen to be down until it was seen to be up.
- *up → clean*: until the last placement group has become clean, by the OSDs' own counters (`recovered_latency`), looked at four times a second.
  *Gate*: from when the order to start came back until the gate has seen that in fresh reports; its own start is in it.
- *longest operation*: of a probe that writes and reads 20 times a second, by when it was due. The column beside it says when, from when the OSD was seen
  to be down.
- *score*: placement groups that were peering times the seconds for which they were, by the OSDs' own counters.
- *load average*: of the machine with both hosts, in the minute that ended when the OSD was up. Above the number of its processors seconds
  are in part time that was waited for a processor; reads are not.
"""


class Runs:
    """All samples, by row and cell, in a file of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "ceph-runs.json"
        self.rows: dict[str, dict[str, t.Any]] = json.loads(self.path.read_text(encoding="utf-8")) if self.path.exists() else {}

    def put(self, name: str, row: dict[str, t.Any], add: bool) -> None:
        before = self.rows.get(name, {"by": {}})["by"]
        # A cell that was not measured this time keeps what there was.
        row["by"] = {cell: (before.get(cell, []) if add or not samples else []) + samples for cell, samples in row["by"].items()}
        self.rows[name] = row

    def write(self) -> None:
        self.folder.mkdir(exist_ok=True)
        self.path.write_text(json.dumps(self.rows) + "\n", encoding="utf-8")
        (self.folder / "ceph.md").write_text(self.page(), encoding="utf-8")
        for name, row in self.rows.items():
            up = {cell: self.values(name, cell, "up") for cell in row["by"] if row["by"][cell]}
            title = f"{name.replace('+', ', ')} reads a second: start → up"
            (self.folder / f"ceph-{name.replace('+', '-')}.svg").write_text(chart(title, "s", up, ours=OURS[name.partition("+")[0]]), encoding="utf-8")
            (self.folder / f"ceph-{name.replace('+', '-')}-peering.svg").write_text(curves(row["by"]), encoding="utf-8")
        save(self.bars(), self.folder / "ceph.json")

    def values(self, row: str, cell: str, what: str) -> list[float]:
        """What was measured of it; a run from before it was has none."""
        return [float(sample[what]) for sample in self.rows[row]["by"].get(cell, []) if what in sample]

    def bars(self) -> list[Bar]:
        """The bars of what was measured."""
        found = []
        for row, measured in self.rows.items():
            for ours, theirs in AGAINST.items():
                if not measured["by"].get(ours) or not measured["by"].get(theirs):
                    continue
                limits = HALF if row.startswith("filestore") else HELD if row.endswith("+100") else {}
                for what, words in COLUMNS:
                    limit = limits.get(what, 1.0 if what == "worst" else None)
                    if what == "score":
                        # Never above the other's by more than its own runs differ.
                        limit = max(self.values(row, theirs, what)) / statistics.median(self.values(row, theirs, what))
                    if limit is not None:
                        found.append(self._bar(row, ours, theirs, what, words, limit))
        return found

    def _bar(self, row: str, ours: str, theirs: str, what: str, words: str, limit: float) -> Bar:
        mine, other = self.values(row, ours, what), self.values(row, theirs, what)
        name = words.partition(",")[0]
        return Bar(
            f"{row}, {ours}: {name}, median, as a part of {theirs}'s", statistics.median(mine) / statistics.median(other), round(limit, 4), len(mine),
            {ours: spread(mine), theirs: spread(other)}, CONTENDERS[theirs], date=self.rows[row]["date"],
        )  # fmt: skip

    def page(self) -> str:
        lines = [HEAD]
        for name, row in self.rows.items():
            store, _plus, reads = name.partition("+")
            lines += [f"## {store}, {reads} reads a second", "", f"{row['date']}, {row['cores']} processors, {row['fill']} s of load before each restart.", ""]
            # What these runs have differently from what would be measured now.
            lines += [row["note"], ""] if "note" in row else []
            head = ("how", "runs", *(words for _what, words in (*ALONE, *COLUMNS, *MACHINE)))
            lines.append(table(head, ((cell, len(samples), *(told(self.values(name, cell, w)) for w, _words in (*ALONE, *COLUMNS, *MACHINE)))
                                      for cell, samples in row["by"].items() if samples)))  # fmt: skip
            stem = f"ceph-{name.replace('+', '-')}"
            lines += ["", f"![start → up]({stem}.svg)", "", f"![placement groups that are peering]({stem}-peering.svg)", ""]
        lines += ["## Bars", "", *(f"- {each.sentence()}" for each in self.bars()), ""]
        return "\n".join(lines)


def told(values: list[float]) -> str:
    if not values:
        return ""
    middle = f"{statistics.median(values):.4g}"
    return middle if len(values) < 2 else f"{middle} ({min(values):.4g} to {max(values):.4g})"


def curves(cells: dict[str, list[dict[str, t.Any]]]) -> str:
    """Placement groups that are peering over time, in the last run of each cell."""
    last = {cell: samples[-1] for cell, samples in cells.items() if samples and samples[-1]["curve"]}
    return plot([Strip(cell, sample["score"], sample["curve"], COLOURS.get(cell, "#7b8794")) for cell, sample in last.items()])
