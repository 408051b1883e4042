# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A table on a page of the documentation, a row a fault and a column a step: a run puts its cells into it and leaves the others."""

from __future__ import annotations

import fcntl
import typing as t
from dataclasses import dataclass
from pathlib import Path

Cells = t.Mapping[tuple[str, str], str]


@dataclass(frozen=True)
class Table:
    """Between two lines of the page."""

    page: Path
    begin: str
    end: str
    rows: t.Collection[str]
    columns: t.Sequence[str]

    def lines(self, results: Cells) -> list[str]:
        rows = [[row, *(results.get((row, column), "") for column in self.columns)] for row in self.rows]
        return ["| " + " | ".join(cells) + " |" for cells in [["fault", *self.columns], ["---"] * (len(self.columns) + 1), *rows]]

    def cells(self, lines: t.Iterable[str]) -> dict[tuple[str, str], str]:
        """What a table says."""
        rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines if line.startswith("|")]
        return {(row[0], column): cell for row in rows if row[0] in self.rows for column, cell in zip(self.columns, row[1:]) if cell}

    def put(self, text: str, results: Cells) -> str:
        """The page with these cells in its table."""
        before, _begin, rest = text.partition(self.begin)
        old, _end, after = rest.partition(self.end)
        return "\n".join([before + self.begin, "", *self.lines({**self.cells(old.splitlines()), **results}), "", self.end]) + after

    def keep(self, row: str, column: str, cell: str) -> None:
        """At once, since a run may be cut short; another one, on a fleet of its own, may write beside it."""
        with self.page.open("r+", encoding="utf-8") as page:
            fcntl.flock(page, fcntl.LOCK_EX)
            text = self.put(page.read(), {(row, column): cell})
            page.seek(0)
            page.truncate()
            page.write(text)
