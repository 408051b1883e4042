# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import math
import posixpath
import typing as t

from ansible import constants
from ansible_collections.livefleet.handover.plugins.filter.binary_size import FilterModule as Sizes
from ansible_collections.livefleet.handover.plugins.filter.timeline import FilterModule as Timeline
from ansible_collections.livefleet.handover.plugins.plugin_utils._report_chart import of_template
from jinja2 import Environment, FileSystemBytecodeCache, FileSystemLoader

PAGE = "report.html.j2"
MOVES = "moves.html.j2"
SCHEMA = "https://github.com/livefleet/handover/blob/main/docs/reference/move-report.schema.json"


def report_files(record: str, templates: str) -> dict[str, str]:
    """The two files of a report, by name: the record of a move as it is, and the page that is drawn from it."""
    report = json.loads(record)
    return {report["session"] + ".json": record + "\n", report["session"] + ".html": drawn(PAGE, templates, report=report, schema=SCHEMA)}


def moves_files(moves: t.Sequence[t.Mapping[str, t.Any]], templates: str, title: str, name: str, finished: str) -> dict[str, str]:
    """The two files on all moves of a playbook, by name: their results as JSON, and a page that leads to each one's own, which is beside it.

    moves: workload, from, to, verdict, frozen_ms, path, the page of its report or empty, and why it has not moved.
    """
    record = {"title": title, "finished": finished, "moves": moves}
    links = [posixpath.basename(move.get("path") or "") for move in moves]
    return {
        name + ".json": json.dumps(record, indent=4) + "\n",
        name + ".html": drawn(MOVES, templates, moves=moves, links=links, title=title, finished=finished, name=name),
    }


def drawn(page: str, templates: str | t.Sequence[str], **variables: t.Any) -> str:
    """A page from its template, which is in one of these folders."""
    # Each task of a play has a process of its own. One compiled template serves all of them, where Ansible would compile it for each move.
    compiled = FileSystemBytecodeCache(constants.DEFAULT_LOCAL_TMP)
    jinja = Environment(loader=FileSystemLoader(templates), bytecode_cache=compiled, trim_blocks=True, keep_trailing_newline=True)
    jinja.filters.update({"livefleet.handover." + name: call for module in (Sizes, Timeline) for name, call in module().filters().items()}, log=math.log)
    jinja.globals.update(of_template())
    return jinja.get_template(page).render(**variables)


class FilterModule:
    """Moves for people to look at, and for programs to read."""

    def filters(self) -> dict[str, t.Callable]:
        """Name → filter."""
        return {"moves_files": moves_files, "report_files": report_files}
