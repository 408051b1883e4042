# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Calls of host_steps from actions."""

from __future__ import annotations

import typing as t

from ansible.plugins.action import ActionBase

MODULE = "livefleet.handover.host_steps"
Result = t.Dict[str, t.Any]


def ask(action: ActionBase, name: str, arguments: t.Mapping[str, t.Any], task_vars: t.Any, wrap_async: bool = False) -> Result:
    """The answer of one module on the host, as if it had run alone."""
    asked = {"steps": [{name: dict(arguments)}]}
    return of_one(action._execute_module(module_name=MODULE, module_args=asked, task_vars=task_vars, wrap_async=wrap_async))


def of_one(answer: Result) -> Result:
    """The answer of the only step. One that has not begun has none."""
    rest = {key: value for key, value in answer.items() if key not in ("results", "last")}
    return {**rest, **(answer.get("results") or [{}])[-1]}
