# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

from ansible.plugins.action import ActionBase
from ansible_collections.livefleet.handover.plugins.plugin_utils._people import say


class ActionModule(ActionBase):
    """Shows lines on the controller, and asks no host."""

    TRANSFERS_FILES = False
    _VALID_ARGS = frozenset(("lines",))
    _requires_connection = False

    def run(self, tmp: t.Any = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        super().run(tmp, task_vars)
        _validation, arguments = self.validate_argument_spec(argument_spec={"lines": {"type": "list", "elements": "str", "required": True}})
        for line in arguments["lines"]:
            say(line)
        return {"changed": False}
