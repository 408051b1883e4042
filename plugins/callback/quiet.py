# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: quiet
type: stdout
short_description: The stages of each move, its table, and the reason of a failure
version_added: 0.1.0
description:
  - Prints a line when a workload comes to another stage, the lines and tables that the playbooks print for people, and warnings.
  - A task that fails is named at the end, with its reason, unless a playbook has dealt with it.
  - With C(-v), prints everything, as Ansible's own P(ansible.builtin.default#callback) does.
extends_documentation_fragment:
  - ansible.builtin.default_callback
  - ansible.builtin.result_format_callback
requirements:
  - chosen as C(stdout_callback = livefleet.handover.quiet) in C(ansible.cfg), or by E(ANSIBLE_STDOUT_CALLBACK)
author:
  - The Handover maintainers (@livefleet)
"""

import typing as t

from ansible import constants
from ansible.plugins.callback.default import CallbackModule as Default
from ansible_collections.livefleet.handover.plugins.filter.failure_reason import failure_reason
from ansible_collections.livefleet.handover.plugins.plugin_utils._live import key, stage_of

# All that Ansible's own callback prints for a play, or before a task.
_SILENCED = (
    "v2_on_file_diff",
    "v2_playbook_on_cleanup_task_start",
    "v2_playbook_on_handler_task_start",
    "v2_playbook_on_include",
    "v2_playbook_on_no_hosts_remaining",
    "v2_playbook_on_play_start",
    "v2_playbook_on_start",
    "v2_playbook_on_task_start",
    "v2_runner_on_async_failed",
    "v2_runner_on_async_ok",
    "v2_runner_on_async_poll",
    "v2_runner_retry",
)
# For a result, of which only the warnings are left.
_WARNED = ("v2_runner_item_on_failed", "v2_runner_item_on_ok", "v2_runner_item_on_skipped", "v2_runner_on_ok", "v2_runner_on_skipped")


def _nothing(*arguments: t.Any, **options: t.Any) -> None:
    """Prints nothing."""


class CallbackModule(Default):
    """Ansible's own callback, of which only the end of a failed play is left."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "livefleet.handover.quiet"

    def __init__(self) -> None:
        super().__init__()
        self.quiet = not self._display.verbosity
        self.stages: dict[str, str] = {}
        self.reasons: dict[str, str] = {}
        if self.quiet:
            for name in _SILENCED:
                setattr(self, name, _nothing)
            for name in _WARNED:
                setattr(self, name, self._warn)

    def v2_runner_on_start(self, host: t.Any, task: t.Any) -> None:
        if not self.quiet:
            super().v2_runner_on_start(host, task)
            return
        stage, name = stage_of(task.get_name()), key(host.get_vars())
        if stage and self.stages.get(name) != stage:
            self.stages[name] = stage
            self._display.display("{0}: {1}".format(name, stage))

    def v2_runner_on_failed(self, result: t.Any, ignore_errors: bool = False) -> None:
        if not self.quiet:
            super().v2_runner_on_failed(result, ignore_errors)
        elif ignore_errors:
            self._warn(result)
        else:
            self._keep(result)

    def v2_runner_on_unreachable(self, result: t.Any) -> None:
        if self.quiet:
            self._keep(result)
        else:
            super().v2_runner_on_unreachable(result)

    def v2_playbook_on_stats(self, stats: t.Any) -> None:
        if not self.quiet:
            super().v2_playbook_on_stats(stats)
            return
        for host in sorted(stats.processed):
            counted = stats.summarize(host)
            # A failure that was rescued or ignored is not among these.
            if counted["failures"] or counted["unreachable"]:
                said = self.reasons.get(host, "it failed, without a reason")
                self._display.display("{0}: {1}".format(host, said), color=constants.COLOR_ERROR, stderr=self.get_option("display_failed_stderr"))

    def _warn(self, result: t.Any) -> None:
        """Shows the warnings of a result: many a finding is told by them alone."""
        self._handle_warnings(result._result)

    def _keep(self, result: t.Any) -> None:
        """The last failure of a host, for the end."""
        self._warn(result)
        self.reasons[result._host.get_name()] = failure_reason(result._result)
