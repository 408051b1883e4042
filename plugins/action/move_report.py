# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import typing as t

from ansible.plugins.action import ActionBase
from ansible_collections.livefleet.handover.plugins.action import controller_files
from ansible_collections.livefleet.handover.plugins.filter.move_lines import moved_lines
from ansible_collections.livefleet.handover.plugins.filter.report_files import report_files
from ansible_collections.livefleet.handover.plugins.plugin_utils._people import say
from jinja2 import TemplateError


class ActionModule(controller_files.ActionModule):
    """Makes a record, a page and a table of one move. Its record is put together from templates, which Ansible would do once more for each task."""

    _VALID_ARGS = frozenset(("record", "told", "templates", "directory", "on_host"))

    def run(self, tmp: t.Any = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        ActionBase.run(self, tmp, task_vars)
        _validation, asked = self.validate_argument_spec(
            argument_spec={
                "record": {"type": "dict", "required": True},
                "told": {"type": "list", "elements": "str", "default": []},
                "templates": {"type": "path", "required": True},
                "directory": {"type": "str", "required": True},
                "on_host": {"type": "bool", "default": False},
            }
        )
        record = asked["record"]
        try:
            files = report_files(json.dumps(record, indent=4, sort_keys=True), asked["templates"])
        except (TemplateError, LookupError, TypeError, ValueError) as exc:
            # Not raised: ansible-core 2.18 would take the page's text in the trace of calls for a template.
            return {"failed": True, "msg": str(exc)}
        result = self.put(asked["directory"], files, False, asked["on_host"], task_vars)
        for line in moved_lines(record, asked["told"], result["paths"]):
            say(line)
        return result
