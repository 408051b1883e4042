# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import types

import pytest


class Clock:
    """Time that passes only while somebody sleeps."""

    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


@pytest.fixture
def clock():
    """Put in the place of a plugin's `time`."""
    return Clock()


@pytest.fixture
def action(monkeypatch):
    """Runs an action plugin of the module given with these arguments, validated as Ansible does."""

    def run(plugin, arguments, task_vars=None, templar=None):
        monkeypatch.setattr(plugin.ActionBase, "run", lambda *args, **kwargs: {})
        made = plugin.ActionModule.__new__(plugin.ActionModule)
        made._task = types.SimpleNamespace(args=arguments, check_mode=False)
        made._templar, made._loader = templar, None
        return made.run(task_vars=task_vars)

    return run
