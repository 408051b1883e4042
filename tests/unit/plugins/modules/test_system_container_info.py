# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from ansible_collections.livefleet.handover.plugins.modules import system_container_info
from unit.plugins.module_utils._podman.systems.test_plan import facts
from unit.plugins.module_utils._podman.systems.test_request import BOX


def test_it_plans_and_touches_nothing(monkeypatch, run_module):
    monkeypatch.setattr(system_container_info.Look, "facts", lambda self, requests: facts())
    found = run_module(system_container_info.main, {"containers": [BOX], "host": "node1"})
    assert (found["changed"], found["refused"], found["containers"][0]["make"]) == (False, [], True)
    found = run_module(system_container_info.main, {"containers": [{"name": "box", "state": "absent"}], "host": "node1"})
    assert found["containers"] == [] and found["refused"] == ["box: with state=absent the whole system in it is lost: say so with force=true"]
