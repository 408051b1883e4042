# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

from ansible.plugins.action import ActionBase
from ansible_collections.livefleet.handover.plugins.lookup.hosts import sentences
from ansible_collections.livefleet.handover.plugins.plugin_utils import _door
from ansible_collections.livefleet.handover.plugins.plugin_utils._ansible import given, matcher
from ansible_collections.livefleet.handover.plugins.plugin_utils._declaration import of_playbook


class ActionModule(ActionBase):
    """Reads a playbook's variables on the controller, and asks no host."""

    TRANSFERS_FILES = False
    _VALID_ARGS = frozenset(("playbook",))
    _requires_connection = False

    def run(self, tmp: t.Any = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        super().run(tmp, task_vars)
        _validation, arguments = self.validate_argument_spec(argument_spec={"playbook": {"type": "str", "required": True}})
        variables = task_vars or {}
        playbook = of_playbook(arguments["playbook"])
        asked = _door.ask(playbook, given(variables, self._templar), strict=False)
        groups = variables.get("groups") or {}
        problems = asked.problems + _door.strangers(playbook, asked.values, groups.get("all", []), matcher(groups, self._loader))
        if problems:
            return dict(failed=True, msg=sentences(playbook.name, problems), problems=problems)
        secret = {_door.short(name) for name, spec in playbook.takes.items() if spec.get("no_log")}
        return {"changed": False, "asked": {key: value for key, value in asked.values.items() if key not in secret}}
