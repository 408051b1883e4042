# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A project of compose whose containers each have a move of their own: it is asked for by its name, and they go as one wave."""

from __future__ import annotations

import typing as t

Rows = t.Mapping[str, t.Sequence[t.Mapping[str, t.Any]]]
Moves = t.List[t.Dict[str, t.Any]]


def members(rows: Rows, name: str, sources: t.Sequence[str] = ()) -> list[str]:
    """The containers of the project of this name. `rows` are host_info's workloads by host, `sources` the only hosts that are meant."""
    return sorted({row["name"] for host, each in rows.items() if host in (sources or rows) for row in each if row.get("project") == name})


def of_containers(moves: Moves, rows: Rows) -> tuple[Moves, dict[str, list[str]], list[str]]:
    """The moves with those of a project's containers in place of the project's, the waves that this makes, and what cannot be.

    A workload is meant before a project of the same name.
    """
    known = {row["name"] for each in rows.values() for row in each}
    found: Moves = []
    waves: dict[str, list[str]] = {}
    problems: list[str] = []
    for move in moves:
        name = move.get("workload") or ""
        sources = move.get("from") or []
        names = [] if name in known else members(rows, name, [sources] if isinstance(sources, str) else sources)
        if names and not move.get("to"):
            problems.append("{0} is a project of {1}, which are to stay on one host: name it with `to`".format(name, ", ".join(names)))
        elif names:
            waves[name] = names
            found += [{**move, "workload": each} for each in names]
        else:
            found.append(move)
    return found, waves, problems
