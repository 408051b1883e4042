# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What tests/bench/freeze.py has measured: kept row by row, held to the bars, and written as a table and a chart."""

from __future__ import annotations

import datetime
import html
import json
import statistics
import typing as t
from pathlib import Path

from results import Bar, save, spread, table

# Row, key of a sample and words of what may not happen in any move of handover's.
COUNTED = (
    ("postgres", "failed", "PostgreSQL: transactions of pgbench that failed"),
    ("docker", "failed", "docker: transactions of pgbench that failed"),
    ("docker", "lost", "docker: connections to the web server that were lost"),
    ("docker", "gone", "docker: lines of the worker's ledger that were lost"),
)
# The stages of a handover that hold its pause one after the other. What lies beside them, the last blocks beside the dump, costs nothing.
HOLDING = ("freeze", "dump", "copy_dump", "seal", "verify", "armed", "attach", "criu_restore", "place", "datasync", "release", "resume")
OTHER = "other"
# What the row `od` depends on, whatever it comes to.
WHY_OD = (
    "podman's pause depends on what its archive has to carry. Here it carries the whole volume, over a bridge without a limit, between hosts that share",
    "one page cache. With nothing to carry it would be podman's pause in the row `idle`. The rows with `+link` and `+disk` show the cost of carrying.",
)
# What the rows with `+disk` show.
WHY_DISK = (
    "With slow disks all images are on a disk of their own, and only that disk is slow: the page cache answers for the parts that it has. A",
    "restore reads the inodes and directories of a file system that was mounted a moment ago. In one move of PostgreSQL these were 170 pieces of 4 KiB.",
    "",
    "That row once had 1.70 s, 2.7 of its floor. The limit was on the workload's own loop device then, and the destination did not have these inodes in",
    "memory before the freeze. The floor has them, since it restores where it dumped.",
)
# What an idle container and a database show.
WHY_CRIU = (
    "In the rows `idle` and `postgres` most of the pause is CRIU's own work: [part by part](../criu-upstream.md). A fifth of a dump of PostgreSQL is its",
    "shared memory, which CRIU cannot leave out.",
)
# What the rows with much memory show.
WHY_MEMORY = (
    "Memory is placed since 2026-11-28. In rows of an earlier day `handover` still has CRIU carry it, as `handover-criu` does.",
    "",
    "With 1 GiB of memory it matters whether the machine has it. The lab is a virtual machine that reports its free memory to its own host. A GiB that",
    "was taken away takes 3.5 to 11 s to touch, and one that was in use a moment ago 0.4 s. So a restore took 0.6 s, or 2.4 to 2.7. The worst of ten moves of",
    "`memory-1G+disk` was 2.07 of their median.",
    "",
    "Hosts that are such machines have these seconds in their pauses, by any means.",
    "",
    "So the benchmark has the kernel report nothing in the meantime (`tests/bench/free_memory.py`): five moves, not kept, took 1.82 to 2.13 s. The rows with",
    "64 MiB, with 1 GiB, and `memory-256M+disk` were measured in this way. All others are from before.",
    "",
    "Two remedies were tried and left out:",
    "",
    "- To take as much memory on both hosts before the freeze, and give it back when it begins. It made no difference without the report (1.83 to 1.93 s).",
    "  With the report it took 1.8 to 3.6 s, presumably since the returned memory is reported too.",
    "- To free the memory that held the pages sent ahead beside the restore, not before it. It took 1.67 to 1.94 s without the report, but 2.6 to 4.9 s",
    "  with it, both remedies together.",
)
# The row `docker`.
WHY_DOCKER = (
    "Three containers move as one in the row `docker`, and its pause is that of the container that stood still longest. The stages are those of the",
    "container that the others have waited for. `handover` moves a project of Docker Compose, and `handover-podman` the same containers of podman's.",
    "`by-hand` is rsync, `docker checkpoint create`, rsync again and `docker start --checkpoint`, all three containers side by side. CRIU's own",
    "configuration tells it to carry connections, since Docker has no option for that.",
)
WHY_BARRIERS = (
    "The second of the source texts measured 25 % on idle nodes, and left the gain of barriers under load to its readers. The same order of",
    "steps, once with a barrier before the freeze (`ploop copy` 1.12) and once without (1.10); seconds, medians.",
)
# Bytes a second of a link that is limited to 1 Gbit/s.
LINK = 125e6
COLOURS = (
    "#3d6fb4", "#5b8fd0", "#4a9d8e", "#8a7cc0", "#b07cb8", "#c9a14a", "#d98a3d", "#e0a468", "#c25450", "#4f9d55", "#7b8794", "#9a6b4f", "#2f7f8c", "#a3a847",
    "#a05195", "#6d8b3a", "#d4779a", "#4b5266",
)  # fmt: skip


def holds(stages: t.Iterable[t.Mapping[str, t.Any]], frozen_ms: float) -> dict[str, float]:
    """How much of the pause each stage holds, in milliseconds: from the end of the one before to its own end."""
    at = {stage["stage"]: float(stage["start_ms"]) + float(stage["ms"]) for stage in stages}
    found: dict[str, float] = {}
    before = 0.0
    for name in HOLDING:
        if name in at and at[name] > before:
            found[name] = at[name] - before
            before = at[name]
    if frozen_ms > before:
        found[OTHER] = frozen_ms - before
    return found


def stopped_at(events: t.Iterable[t.Mapping[str, t.Any]]) -> float:
    """When the workload was told to stop, in seconds of the wall clock: the stage `freeze` counts from then, and is told of at its end."""
    told = next(event for event in events if event["event"] == "stage" and event["stage"] == "freeze")
    # To nanoseconds, which Python does not read.
    end = datetime.datetime.fromisoformat(told["time"][:26].rstrip("Z") + "+00:00").timestamp()
    return end - (told["start_ms"] + told["ms"]) / 1000


# The freeze begins when a task is told to stop, and that is soon after its last beat, or before it.
BEFORE, AFTER = 0.05, 0.1


def silences(beats: t.Sequence[float], frozen: float | None) -> tuple[float, float]:
    """Seconds of the gap in which the freeze began, or of the longest if that moment is not known, and of the longest but that."""
    gaps = [(b - a, a) for a, b in zip(beats, beats[1:])]
    near = [gap for gap in gaps if frozen is None or frozen - BEFORE <= gap[1] <= frozen + AFTER]
    # On a machine that has much to do the last beat may have been earlier.
    pause = max(near or [gap for gap in gaps if frozen is not None and gap[1] <= frozen < gap[1] + gap[0]])
    return pause[0], max((gap[0] for gap in gaps if gap != pause), default=0.0)


class Runs:
    """All samples, by row and contender, in a file of their own; in the order of the workloads and contenders that are named."""

    def __init__(self, folder: Path, workloads: t.Iterable[str] = (), contenders: t.Iterable[str] = ()) -> None:
        self.folder = folder
        self.workloads, self.contenders = list(workloads), list(contenders)
        self.path = folder / "freeze-runs.json"
        self.rows: dict[str, dict[str, t.Any]] = json.loads(self.path.read_text(encoding="utf-8")) if self.path.exists() else {}
        self._sort()

    def _sort(self) -> None:
        """Whatever came last: a workload's rows together, and the same contenders at the same place."""

        def place(names: list[str], name: str) -> int:
            return names.index(name) if name in names else len(names)

        def by_workload(row: str) -> tuple[int, int, str]:
            workload, *conditions = row.split("+")
            return place(self.workloads, workload), len(conditions), row

        self.rows = {name: self.rows[name] for name in sorted(self.rows, key=by_workload)}
        for row in self.rows.values():
            row["by"] = {who: row["by"][who] for who in sorted(row["by"], key=lambda who: place(self.contenders, who))}

    def put(self, name: str, row: dict[str, t.Any], add: bool = False) -> None:
        """Puts a row in place of what there is of it, or adds it to that. Contenders that it leaves out stay, with the day of their last run."""
        before = self.rows.get(name, {"by": {}, "date": ""})
        earlier = {who: before.get("earlier", {}).get(who, before["date"]) for who in before["by"] if who not in row["by"]}
        measured = {who: (before["by"].get(who, []) if add else []) + samples for who, samples in row["by"].items()}
        self.rows[name] = {**row, "by": {**before["by"], **measured}, "earlier": earlier}
        self._sort()

    def day(self, row: str, contender: str) -> str:
        return str(self.rows[row].get("earlier", {}).get(contender, self.rows[row]["date"]))

    def write(self) -> None:
        self.folder.mkdir(exist_ok=True)
        for path, text in (
            (self.path, json.dumps(self.rows, indent=1) + "\n"),
            (self.folder / "freeze.md", self.page()),
            (self.folder / "freeze.svg", self.chart()),
        ):
            path.write_text(text, encoding="utf-8")
        save(self.bars(), self.folder / "freeze.json")

    def seconds(self, row: str, contender: str) -> list[float]:
        return [sample["seconds"] for sample in self.rows.get(row, {}).get("by", {}).get(contender, [])]

    def median(self, row: str, contender: str) -> float | None:
        values = self.seconds(row, contender)
        return statistics.median(values) if values else None

    def bars(self) -> list[Bar]:
        """The bars of the rows that were measured."""
        found = []
        for row, contender, limit, words in (
            ("idle", "floor", 0.7, "idle: frozen time, median, as a multiple of CRIU's floor"),
            ("idle", "podman", 0.2, "idle: frozen time, median, as a part of podman's"),
            ("od", "floor", 1.5, "od: frozen time, median, as a multiple of CRIU's floor"),
            ("od", "podman", 1 / 20, "od: frozen time, median, as a part of podman's"),
            ("postgres", "floor", 0.75, "PostgreSQL: frozen time, median, as a multiple of CRIU's floor"),
            ("memory-256M", "floor", 0.5, "256 MiB memory writer: frozen time, median, as a multiple of CRIU's floor"),
            ("memory-1G", "floor", 0.4, "1 GiB memory writer: frozen time, median, as a multiple of CRIU's floor"),
            ("docker", "handover-podman", 1.3, "docker: pause, median, as a part of podman's"),
            ("od+disk+link", "vz", 1 / 5, "od, disk throttled and link limited: frozen time, median, as a part of vzmigrate's order"),
        ):
            ours, theirs = self.median(row, "handover"), self.median(row, contender)
            if ours is not None and theirs:
                found.append(self._bar(words, row, contender, ours / theirs, limit))
        ours, floor = self.median("memory-1G+link", "handover"), self.median("memory-1G+link", "floor")
        if ours is not None and floor:
            allowed = self.rows["memory-1G+link"]["memory"] / LINK + floor
            words = "1 GiB memory writer: frozen time, median, as a multiple of bytes by link and floor"
            found.append(self._bar(words, "memory-1G+link", "floor", ours / allowed, 1.3))
        lazy = self.median("memory-1G", "handover-lazy")
        for contender, other in (("handover-lazy", "that of 64 MiB"), ("handover", "that of 64 MiB without")):
            small = self.median("memory-64M", contender)
            if lazy is not None and small:
                words = f"1 GiB memory writer with lazy pages: frozen time, median, as a multiple of {other}"
                large = self.seconds("memory-1G", "handover-lazy")
                spreads = {"handover-lazy": spread(large), f"64 MiB, {contender}": spread(self.seconds("memory-64M", contender))}
                found.append(Bar(words, lazy / small, 2, len(large), spreads, contender, date=self.day("memory-1G", "handover-lazy")))
        found += self._risks()
        for row, key, words in COUNTED:
            counts = [sample[key] for sample in self.rows.get(row, {}).get("by", {}).get("handover", []) if key in sample]
            if counts:
                found.append(self._bar(words, row, "handover", sum(counts), 0))
        stalls = [sample["stall"] - sample["seconds"] for sample in self.rows.get("postgres", {}).get("by", {}).get("handover", []) if "stall" in sample]
        if stalls:
            words = "PostgreSQL: longest stall of a client beyond the frozen time, seconds, the worst of the moves"
            found.append(self._bar(words, "postgres", "handover", max(stalls), 0.03))
        for row in self.rows:
            values = self.seconds(row, "handover")
            if len(values) > 1:
                found.append(self._bar(f"{row}: worst frozen time as a multiple of the median", row, "handover", max(values) / statistics.median(values), 2))
        return found

    def _risks(self) -> list[Bar]:
        """Of lazy pages over a link of 1 Gbit/s, with a writer to a tenth of the memory each second."""
        row, by, found = "tenth-1G+link", "handover-lazy", []
        large, small = self.median(row, by), self.median("tenth-64M+link", by)
        if large is not None and small:
            words = "1 GiB, a tenth written each second, lazy pages, 1 Gbit/s: frozen time ÷ that of 64 MiB"
            spreads = {by: spread(self.seconds(row, by)), f"64 MiB, {by}": spread(self.seconds("tenth-64M+link", by))}
            found.append(Bar(words, large / small, 1.5, len(self.seconds(row, by)), spreads, by, date=self.day(row, by)))
        risks = [sample["at_risk"] for sample in self.rows.get(row, {}).get("by", {}).get(by, []) if "at_risk" in sample]
        if risks:
            words = "1 GiB, a tenth written each second, lazy pages, 1 Gbit/s: time at risk, seconds"
            found.append(Bar(words, statistics.median(risks), 1.5, len(risks), {by: spread(risks)}, by, date=self.day(row, by)))
        return found

    def _bar(self, words: str, row: str, contender: str, figure: float, limit: float) -> Bar:
        spreads = {name: spread(self.seconds(row, name)) for name in sorted({"handover", contender})}
        return Bar(words, figure, round(limit, 4), len(self.seconds(row, "handover")), spreads, contender, date=self.day(row, "handover"))

    def risks(self, row: str) -> str:
        """A table of the times at risk, where memory has followed; empty otherwise."""
        cells = []
        for who, samples in self.rows[row]["by"].items():
            values = [sample["at_risk"] for sample in samples if "at_risk" in sample]
            if values:
                s = spread(values)
                cells.append((who, len(values), *(f"{s[key]:.3f}" for key in ("min", "median", "max"))))
        return table(("time at risk, s", "moves", "shortest", "median", "longest"), cells) if cells else ""

    def holders(self, row: str, contender: str) -> dict[str, float]:
        """Seconds that each stage holds, the median of the runs."""
        samples = [sample["stages"] for sample in self.rows[row]["by"].get(contender, []) if "stages" in sample]
        names = list(dict.fromkeys(name for sample in samples for name in sample))
        return {name: statistics.median([sample.get(name, 0.0) for sample in samples]) / 1000 for name in names}

    def page(self) -> str:
        lines = [
            "# Frozen time",
            "",
            "`make bench-freeze` writes this page: moves between two lab hosts of one machine, turn about. A figure is the seconds without a beat in the",
            "pause, seen from inside the container. *Silent else* is the longest other time without a beat in any of the moves, from begin to end (`od` has",
            "0.16 s in a minute without any move). The floor is CRIU's own count of its times. Compare the rows of one table with each other, not with another",
            "machine's.",
            "",
            "![The pause by stage](freeze.svg)",
            "",
            "## Medians",
            "",
            self.overview(),
        ]
        for name, row in self.rows.items():
            lines += ["", f"## {name}", "", f"{row['what'][0].upper()}{row['what'][1:]}. {row['date']}, {row['cores']} processors.", ""]
            floor = self.median(name, "floor")
            cells = []
            for contender in row["by"]:
                values = self.seconds(name, contender)
                if not values:
                    continue
                s = spread(values)
                times = f"{s['median'] / floor:.2f}" if floor else ""
                held = ", ".join(f"{stage.replace('_', ' ')} {seconds:.3f}" for stage, seconds in self.holders(name, contender).items() if seconds >= 0.0005)
                other = max((sample["other"] for sample in row["by"][contender] if "other" in sample), default=None)
                silent = f"{other:.3f}" if other is not None else ""
                who = f"{contender}, {row['earlier'][contender]}" if contender in row.get("earlier", {}) else contender
                cells.append((who, len(values), *(f"{s[key]:.3f}" for key in ("min", "median", "max")), times, silent, held))
            lost, risks = self.losses(name), self.risks(name)
            lines.append(table(("who", "moves", "shortest", "median", "longest", "of the floor", "silent else", "what holds the pause (medians)"), cells))
            if lost:
                lines += ["", table(("who", "transactions that failed", "connections that were lost", "lines of the ledger that were lost"), lost)]
            if risks:
                lines += ["", risks]
        lines += ["", "## Bars", "", *(f"- {each.sentence()}" for each in self.bars())]
        theirs, floor = self.median("idle", "podman"), self.median("idle", "floor")
        if theirs and floor and theirs < 3 * floor:
            lines += [
                "",
                f"In the row `idle` podman's pause is {theirs / floor:.2f} of the floor, and a third of it {theirs / floor / 3:.2f}.",
                "Nothing that waits for CRIU's dump and restore is shorter than these.",
            ]
        if {"idle", "postgres"} <= self.rows.keys():
            lines += ["", *WHY_CRIU]
        if "od" in self.rows:
            lines += ["", *WHY_OD]
        if any("disk" in row.split("+") for row in self.rows):
            lines += ["", *WHY_DISK]
        if "docker" in self.rows:
            lines += ["", *WHY_DOCKER]
        if any(row.startswith("memory-1G") for row in self.rows):
            lines += ["", *WHY_MEMORY]
        gains = self.gains()
        if gains:
            head = ("row", "with barriers", "without", "gain", "last blocks with", "without")
            lines += ["", "## What barriers gain", "", *WHY_BARRIERS, "", table(head, gains)]
        return "\n".join(lines) + "\n"

    def losses(self, name: str) -> list[tuple[object, ...]]:
        """By contender, all that was lost in all moves of a row whose clients count it."""
        counted = {who: samples for who, samples in self.rows[name]["by"].items() if samples and "lost" in samples[0]}
        return [(who, *(sum(sample[key] for sample in samples) for key in ("failed", "lost", "gone"))) for who, samples in counted.items()]

    def overview(self) -> str:
        """Every row in one line: the median of each contender."""
        contenders = list(dict.fromkeys([*self.contenders, *(who for row in self.rows.values() for who in row["by"])]))
        lines = []
        for row in self.rows:
            medians = (self.median(row, who) for who in contenders)
            lines.append((row, *(f"{each:.3f}" if each is not None else "" for each in medians)))
        return table(("row", *contenders), lines)

    def gains(self) -> list[tuple[str, ...]]:
        """By row: vzmigrate's order with barriers and without, and how long its last blocks took in the pause."""
        found = []
        for row in self.rows:
            with_one, without = self.median(row, "vz"), self.median(row, "vz-no-barrier")
            if with_one and without:
                last = [f"{self.holders(row, name)['disk']:.3f}" for name in ("vz", "vz-no-barrier")]
                found.append((row, f"{with_one:.3f}", f"{without:.3f}", f"{1 - with_one / without:.0%}", *last))
        return found

    def chart(self) -> str:
        """A stacked bar for each contender of each row; the floor is a line across them."""
        left, width, step = 210, 560, 22
        stages = list(dict.fromkeys(s for row in self.rows for c in self.rows[row]["by"] for s in self.holders(row, c)))
        colour = {stage: COLOURS[i % len(COLOURS)] for i, stage in enumerate(stages)}
        out: list[str] = []
        y = 20
        for name, row in self.rows.items():
            movers = [c for c in row["by"] if c != "floor" and self.median(name, c) is not None]
            top = max([t.cast(float, self.median(name, c)) for c in movers] + [0.001])
            out.append(f'<text x="10" y="{y}" class="head">{html.escape(name)}</text>')
            begun = y
            told = []  # after the line that may go through it
            for mover in movers:
                y += step
                x = float(left)
                median = t.cast(float, self.median(name, mover))
                out.append(f'<text x="{left - 10}" y="{y}" text-anchor="end">{html.escape(mover)}</text>')
                parts = self.holders(name, mover)
                parts["not by a stage"] = max(0.0, median - sum(parts.values()))
                for stage, seconds in parts.items():
                    w = min(width * seconds / top, left + width - x)
                    out.append(
                        f'<rect x="{x:.1f}" y="{y - 13}" width="{w:.1f}" height="16" fill="{colour.get(stage, "#d5dae0")}">'
                        f"<title>{html.escape(stage)}: {seconds:.3f} s</title></rect>"
                    )
                    x += w
                told.append(f'<text x="{x + 6:.1f}" y="{y}" class="soft told">{median:.3f} s</text>')
            floor = self.median(name, "floor")
            if floor:
                x = left + min(1.0, floor / top) * width
                out.append(f'<line x1="{x:.1f}" y1="{begun + 6}" x2="{x:.1f}" y2="{y + 6}" class="floor"><title>CRIU: {floor:.3f} s</title></line>')
            out += told
            y += step + 14
        for i, stage in enumerate([*stages, "not by a stage"]):
            x, line = 10 + (i % 5) * 168, y + (i // 5) * 18
            out.append(f'<rect x="{x}" y="{line - 10}" width="11" height="11" fill="{colour.get(stage, "#d5dae0")}"/>')
            out.append(f'<text x="{x + 16}" y="{line}" class="soft">{html.escape(stage.replace("_", " "))}</text>')
        y += (len(stages) // 5) * 18 + 22
        out.append(f'<line x1="10" y1="{y - 4}" x2="34" y2="{y - 4}" class="floor"/>')
        out.append(f'<text x="42" y="{y}" class="soft">CRIU\'s floor. Each row has a scale of its own; the figures are the medians of the whole pause.</text>')
        height = y + 16
        style = (
            "text{font:13px system-ui,sans-serif;fill:#1d2530}.soft{font-size:11.5px;fill:#64707f}.head{font-weight:650}"
            ".told{paint-order:stroke;stroke:#fff;stroke-width:4px}.floor{stroke:#c25450;stroke-width:1.5;stroke-dasharray:4 3}"
        )
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 860 {height}" role="img" aria-label="The pause by stage; a dashed line is CRIU\'s floor">'
            f"<style>{style}</style><rect width=\"860\" height=\"{height}\" fill=\"#ffffff\"/>{''.join(out)}</svg>\n"
        )
