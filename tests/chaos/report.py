# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a run of moves came to: a table for people, and JSON."""

from __future__ import annotations

import json
import typing as t
from collections import Counter
from dataclasses import asdict
from pathlib import Path

from plan import Move
from watch import Watch

Marks = t.Mapping[str, str]


def judge(hosts: t.Sequence[Marks], at_home: Marks) -> str:
    """What is wrong with what the hosts have in the end; empty if there is one copy, whole, and nothing beside it."""
    rest = list(hosts)
    if dict(at_home) not in rest:
        return f"no host has the workload as it should be, {dict(at_home)}: {[dict(marks) for marks in hosts]}"
    rest.remove(dict(at_home))
    left = [dict(marks) for marks in rest if marks]
    return f"left over beside it: {left}" if left else ""


def unwritten(ledger: str, watch: Watch, acknowledged: int) -> list[str]:
    """The lines that were seen on either host and that the ledger does not have: a second copy wrote them.

    A copy of a plain volume grows on the destination while its workload runs on the source; its lines are the source's own.
    """
    written = set(ledger.splitlines())
    seen = {f"{number} {when}" for lines in watch.seen for when, _host, number in lines.written if number <= acknowledged}
    return sorted(seen - written)


class Report:
    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.moves: list[dict[str, t.Any]] = []
        self.findings: list[dict[str, t.Any]] = []

    def add(self, move: Move, came: t.Mapping[str, t.Any]) -> None:
        self.moves.append({**asdict(move), **came})

    def finding(self, move: Move, what: str) -> None:
        self.findings.append({**asdict(move), "finding": what})

    def table(self) -> list[str]:
        """A row a kind of fault: how many moves it was in, how they ended, and in how many of them something was found."""
        tried, found = Counter[str](), Counter[str]()
        ends = {where: Counter[str]() for where in ("moved", "stayed", "recovered")}
        for rows, counter in ((self.moves, tried), (self.findings, found)):
            for row in rows:
                counter.update(kinds(row))
        for row in self.moves:
            ends[row["where"]].update(kinds(row))
            if row["recovered"]:
                ends["recovered"].update(kinds(row))
        lines = [f"{'fault':16} {'moves':>6} {'moved':>6} {'stayed':>6} {'recovered':>9} {'findings':>8}"]
        for kind in sorted(tried | found):
            lines.append(
                f"{kind:16} {tried[kind] + found[kind]:6} {ends['moved'][kind]:6} {ends['stayed'][kind]:6} {ends['recovered'][kind]:9} {found[kind]:8}"
            )
        rows = self.moves + self.findings
        last, faults = max((row["seed"] for row in rows), default=self.seed), sum(len(row["strokes"]) for row in rows)
        return [*lines, f"seeds {self.seed} to {last}: {len(rows)} moves, {faults} faults, {len(self.findings)} findings"]

    def write(self, folder: Path) -> None:
        """After each move, since a run may be cut short."""
        told = {"seed": self.seed, "moves": self.moves, "findings": self.findings}
        (folder / f"{self.seed}.json").write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


def kinds(row: t.Mapping[str, t.Any]) -> set[str]:
    return {stroke["kind"] for stroke in row["strokes"]} or {"nothing"}
