# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

from ansible.plugins.action import ActionBase
from ansible_collections.livefleet.handover.plugins.filter.move_results import stays
from ansible_collections.livefleet.handover.plugins.filter.whereabouts import checked
from ansible_collections.livefleet.handover.plugins.plugin_utils._ansible import add_host
from ansible_collections.livefleet.handover.plugins.plugin_utils._people import say


class ActionModule(ActionBase):
    """Decides on the controller, from the answers that are there."""

    TRANSFERS_FILES = False
    BYPASS_HOST_LOOP = True
    _VALID_ARGS = frozenset(("asked", "answers", "group"))
    _requires_connection = False

    def run(self, tmp: t.Any = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        super().run(tmp, task_vars)
        _validation, given = self.validate_argument_spec(
            argument_spec={
                "asked": {"type": "dict", "required": True},
                "answers": {"type": "dict", "required": True},
                "group": {"type": "str", "required": True},
            }
        )
        found = checked(given["answers"], given["asked"])
        if found["problem"]:
            return dict(failed=True, msg=found["problem"])
        if found["source"]:
            return {"changed": False, "source": found["source"], **add_host(self, found["source"], [given["group"]])}
        say(found["sentence"])
        results = {"handover_results": [stays(found["sentence"], given["asked"])]}
        return {"changed": False, "source": "", "ansible_stats": {"data": results, "per_host": False, "aggregate": True}}
