# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from ansible_collections.livefleet.handover.plugins.action import preflight
from ansible_collections.livefleet.handover.plugins.action.preflight import ActionModule


def test_what_the_module_finds_fails_the_task(monkeypatch):
    action = ActionModule.__new__(ActionModule)
    monkeypatch.setattr(preflight.ActionBase, "run", lambda *args, **kwargs: {})
    facts = {"source_facts": {}, "destination_facts": None}
    monkeypatch.setattr(ActionModule, "validate_argument_spec", lambda self, argument_spec: (None, dict(facts, asked=argument_spec)))
    monkeypatch.setattr(preflight, "run", lambda asked: {"changed": False, "findings": [], "asked": set(asked["asked"])})
    result = action.run(task_vars={})
    assert "failed" not in result
    assert {"workload", "source_facts", "ignore"} <= result["asked"]
    monkeypatch.setattr(preflight, "run", lambda asked: {"changed": False, "msg": "shop is on node1 already"})
    assert action.run(task_vars={}) == {"changed": False, "msg": "shop is on node1 already", "failed": True}


def test_each_obstacle_has_its_link(monkeypatch, capsys):
    action = ActionModule.__new__(ActionModule)
    monkeypatch.setattr(preflight.ActionBase, "run", lambda *args, **kwargs: {})
    monkeypatch.setattr(ActionModule, "validate_argument_spec", lambda self, argument_spec: (None, {"source_facts": {}, "destination_facts": {}}))
    found = [{"check": name, "sentence": "…"} for name in ("create_options", "create_options", "inventory:Config.New")]
    monkeypatch.setattr(preflight, "run", lambda asked: {"changed": False, "findings": found, "msg": "3 things are in the way"})
    assert action.run(task_vars={})["failed"]
    assert [line.strip() for line in capsys.readouterr().out.splitlines()] == [
        "create_options: https://livefleet.github.io/handover/troubleshooting.html#check-create-options",
        "inventory:Config.New: https://livefleet.github.io/handover/container-inventory.html",
    ]


def test_a_move_that_another_run_prepares_is_marked(monkeypatch):
    facts = {"host": {"pcopy": {"sessions": [{"id": "shop-1"}, {"id": "shop-2"}]}}}
    action = ActionModule.__new__(ActionModule)
    monkeypatch.setattr(preflight.ActionBase, "run", lambda *args, **kwargs: {})
    monkeypatch.setattr(ActionModule, "validate_argument_spec", lambda self, argument_spec: (None, {"source_facts": facts, "destination_facts": {}}))
    monkeypatch.setattr(preflight, "prepares", lambda session: session["id"] == "shop-1")
    monkeypatch.setattr(preflight, "run", lambda asked: {"changed": False})
    action.run(task_vars={})
    assert [session["prepared_now"] for session in facts["host"]["pcopy"]["sessions"]] == [True, False]
