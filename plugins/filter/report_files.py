# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import math
import typing as t

from ansible import constants
from ansible_collections.livefleet.handover.plugins.filter.binary_size import FilterModule as Sizes
from ansible_collections.livefleet.handover.plugins.filter.timeline import FilterModule as Timeline
from ansible_collections.livefleet.handover.plugins.plugin_utils._report_chart import of_template
from jinja2 import Environment, FileSystemBytecodeCache, FileSystemLoader

PAGE = "report.html.j2"
SCHEMA = "https://github.com/livefleet/handover/blob/main/docs/reference/move-report.schema.json"


def report_files(record: str, templates: str) -> dict[str, str]:
    """The two files of a report, by name: the record of a move as it is, and the page that is drawn from it."""
    report = json.loads(record)
    # Each task of a play has a process of its own. One compiled template serves all of them, where Ansible would compile it for each move.
    compiled = FileSystemBytecodeCache(constants.DEFAULT_LOCAL_TMP)
    jinja = Environment(loader=FileSystemLoader(templates), bytecode_cache=compiled, trim_blocks=True, keep_trailing_newline=True)
    jinja.filters.update({"livefleet.handover." + name: call for module in (Sizes, Timeline) for name, call in module().filters().items()}, log=math.log)
    jinja.globals.update(of_template(), schema=SCHEMA)
    return {report["session"] + ".json": record + "\n", report["session"] + ".html": jinja.get_template(PAGE).render(report=report)}


class FilterModule:
    """A move for people to look at, and for programs to read."""

    def filters(self) -> dict[str, t.Callable]:
        """Name → filter."""
        return {"report_files": report_files}
