# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import time
import typing as t

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase
from ansible_collections.livefleet.handover.plugins.module_utils._core.sizes import format_size
from ansible_collections.livefleet.handover.plugins.plugin_utils._people import say

# A host that is out of reach for a moment has not stopped migrating.
UNREACHABLE_SECONDS = 60.0


def line(guest: str, job: t.Mapping[str, t.Any] | None) -> str:
    """How far a migration has come, in one line."""
    if not job:
        return ""
    parts = []
    if job.get("disk_total"):
        parts.append("{0} of {1} of its disks".format(format_size(job.get("disk_transferred") or 0), format_size(job["disk_total"])))
    if job.get("ram_total"):
        parts.append("pass {0}, {1} of memory left".format(job.get("iterations") or 1, format_size(job.get("ram_remaining") or 0)))
    if job.get("ram_rate"):
        parts.append("{0}/s".format(format_size(job["ram_rate"])))
    return "{0}: {1}".format(guest, ", ".join(parts)) if parts else ""


class ActionModule(ActionBase):
    """Asks for the job, and shows its changes."""

    TRANSFERS_FILES = False
    _VALID_ARGS = frozenset(("guest", "job", "uri", "interval", "timeout"))

    def run(self, tmp: t.Any = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        super().run(tmp, task_vars)
        _validation, asked = self.validate_argument_spec(
            argument_spec={
                "guest": {"type": "str", "required": True},
                "job": {"type": "str", "required": True},
                "uri": {"type": "str", "default": "qemu:///system"},
                "interval": {"type": "float", "default": 1.0},
                "timeout": {"type": "int", "default": 3600},
            }
        )
        status = {"jid": asked["job"], "_async_dir": self.get_shell_option("async_dir", default="~/.ansible_async")}
        began = heard = time.monotonic()
        shown = ""
        while True:
            answer = self._ask("ansible.builtin.async_status", status, task_vars)
            if answer is not None:
                heard = time.monotonic()
                if answer.get("finished") or answer.get("failed"):
                    return answer
                question = {"guest": asked["guest"], "uri": asked["uri"], "async_job": asked["job"]}
                progress = self._ask("livefleet.handover.kvm_job_info", question, task_vars)
                if progress is not None and progress.get("at_work") is False:
                    # It may have ended between the two questions.
                    answer = self._ask("ansible.builtin.async_status", status, task_vars) or {}
                    if answer.get("finished") or answer.get("failed"):
                        return answer
                    killed = "the module that migrated {0} was killed, or its host was started anew, before it could say how it ended"
                    return dict(failed=True, msg=killed.format(asked["guest"]))
                current = line(asked["guest"], (progress or {}).get("job"))
                if current and current != shown:
                    say(current)
                    shown = current
            now = time.monotonic()
            if now - heard > UNREACHABLE_SECONDS:
                raise AnsibleConnectionFailure(
                    "{0}: its host has been out of reach for {1:.0f} s; the migration goes on there".format(asked["guest"], now - heard)
                )
            if now - began > asked["timeout"]:
                late = "{0} has not arrived within {1} s; the migration goes on: look again later".format(asked["guest"], asked["timeout"])
                return dict(failed=True, msg=late)
            time.sleep(asked["interval"])

    def _ask(self, module: str, arguments: dict[str, t.Any], task_vars: dict[str, t.Any] | None) -> dict[str, t.Any] | None:
        """A module's answer, or None where the host cannot be reached."""
        try:
            answer = self._execute_module(module_name=module, module_args=arguments, task_vars=task_vars)
        except AnsibleConnectionFailure:
            return None
        return None if answer.get("unreachable") else answer
