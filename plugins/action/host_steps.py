# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import time
import typing as t

from ansible.plugins.action import ActionBase
from ansible_collections.livefleet.handover.plugins.plugin_utils._host_steps import MODULE, ask


class ActionModule(ActionBase):
    """Runs steps on the host. A module that meta/runtime.yml sends here is the only step."""

    TRANSFERS_FILES = False
    _supports_check_mode = True
    _supports_async = True

    def run(self, tmp: t.Any = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        super().run(tmp, task_vars)
        name = self._task.action.rpartition(".")[2]
        detached = bool(self._task.async_val and not self._connection.has_native_async)
        if name == MODULE.rpartition(".")[2]:
            return self._execute_module(module_name=MODULE, module_args=self._task.args, task_vars=task_vars, wrap_async=detached)
        asked = time.time()
        answer = ask(self, name, self._task.args, task_vars, detached)
        # Of facts that are passed on, their age counts; and the host's clock was read between these two.
        return {**answer, "asked_at": asked, "told_at": time.time()} if name == "workload_info" else answer
