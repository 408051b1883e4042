# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: progress
type: aggregate
short_description: One live line for each workload that is being moved
version_added: 0.1.0
description:
  - On a terminal, keeps a line for each workload at the bottom of the screen, with its stage, its pass, how fast it goes, how much is left,
    and how long that will take. All other output scrolls above.
  - Where there is no terminal, as in AWX or in a pipe, does nothing. The tasks print plain lines then, one whenever something has
    changed that is worth keeping.
requirements:
  - enabled by name, as in C(callbacks_enabled = livefleet.handover.progress) in C(ansible.cfg)
  - a terminal that knows the control sequences of a VT100
author:
  - The Handover maintainers (@livefleet)
"""

import atexit
import os
import sys
import typing as t

from ansible.plugins.callback import CallbackBase
from ansible_collections.livefleet.handover.plugins.module_utils._core.progress import line
from ansible_collections.livefleet.handover.plugins.plugin_utils._live import Live, key, stage_of, tell


def words(known: dict[str, t.Any]) -> str:
    """The line of one workload."""
    status = known.get("status")
    stage = known.get("stage", "")
    if status and stage == "presync":
        return "{0}  {1}".format(known["key"], line(status).partition(": ")[2])
    return "{0}  {1}".format(known["key"], stage)


class CallbackModule(CallbackBase):
    """Shows the news of session_wait, and the stage of the other tasks."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "livefleet.handover.progress"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self, *arguments: t.Any, **options: t.Any) -> None:
        super().__init__(*arguments, **options)
        self.live: Live | None = None
        self.stages: dict[str, str] = {}
        if sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb":
            self.live = Live(sys.stdout.fileno(), words)
            atexit.register(self._close)

    def v2_runner_on_start(self, host: t.Any, task: t.Any) -> None:
        stage = stage_of(task.get_name())
        if self.live is None or not stage:
            return
        name = key(host.get_vars())
        if self.stages.get(name) != stage:
            self.stages[name] = stage
            tell(key=name, stage=stage)

    def v2_playbook_on_play_start(self, play: t.Any) -> None:
        for name in self.stages:
            tell(key=name, gone=True)
        self.stages = {}

    def v2_playbook_on_stats(self, stats: t.Any) -> None:
        self._close()

    def _close(self) -> None:
        if self.live is not None:
            self.live.close()
            self.live = None
