# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from ansible.module_utils.basic import AnsibleModule
from ansible_collections.livefleet.handover.plugins.module_utils._drivers.steps import STEPS
from ansible_collections.livefleet.handover.plugins.module_utils._podman.copies import converted_volume
from ansible_collections.livefleet.handover.plugins.modules import host_steps, session
from ansible_collections.livefleet.handover.plugins.plugin_utils._host_steps import of_one

COLLECTION = Path(__file__).resolve().parents[4]


@pytest.fixture
def steps(run_module, helper):
    def run(*asked, check=False):
        return run_module(host_steps.main, {"steps": [{name: {"sessions": str(helper.root), **options}} for name, options in asked]}, check=check)

    return run


def test_the_steps_run_in_turn_and_each_result_is_there(helper, steps):
    known = ("session_info", {})
    result = steps(known, ("session", {"session": "shop-1", "state": "identity", "plan": {"workload": "shop"}}), known)
    assert [len(each.get("sessions", ())) for each in result["results"]] == [0, 0, 1]
    assert result["last"]["session_info"] == result["results"][2] and result["last"]["session"]["fingerprint"] == "sha256:6c0c"
    assert result["changed"] and result["reasons"] == result["results"][1]["reasons"] and len(result["reasons"]) == 2


def test_nothing_follows_a_step_that_fails(helper, steps):
    helper.place("shop-1", state="released")
    with pytest.raises(Exception, match="cannot be given up until its outcome is known") as failed:
        steps(("session", {"session": "shop-1", "state": "absent", "role": "source"}), ("session", {"session": "shop-2", "state": "identity"}))
    assert [set(each) for each in failed.value.result["results"]] == [{"msg"}]
    assert not (helper.root / "shop-2").exists()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"session": {"session": "shop-2", "state": "absent"}}, "session: state is absent but all of the following are missing: role"),
        ({"session": {"session": "shop-2", "state": "gone"}},
         "session: value of state must be one of: identity, started, recovered, resolved, withdrawn, removable, absent"),
        ({"session": {"session": "shop-2", "state": "identity", "roll": "source"}}, "session: roll. Supported parameters include"),
        ({"sesion": {}}, "steps: sesion is not a step: use one of cutover, docker_workload, image_volume"),
        ({"session": {}, "session_info": {}}, "steps: one of them has 2 names .session, session_info.: each is one module"),
    ],
)
def test_nothing_runs_if_one_is_asked_for_wrongly(helper, run_module, wrong, said):
    made = {"session": {"session": "shop-1", "state": "identity", "sessions": str(helper.root)}}
    with pytest.raises(Exception, match=said):
        run_module(host_steps.main, {"steps": [made, wrong]})
    assert not (helper.root / "shop-1").exists()


def test_a_check_changes_nothing(helper, steps):
    result = steps(("session", {"session": "shop-1", "state": "identity"}), check=True)
    assert result["changed"] and not (helper.root / "shop-1").exists()


def test_the_answer_of_the_only_step_is_that_of_its_module():
    answer = {"changed": True, "results": [{"changed": True, "status": None}], "last": {}, "failed": True, "msg": "m", "warnings": []}
    assert of_one(answer) == {"changed": True, "status": None, "failed": True, "msg": "m", "warnings": []}
    assert of_one({"unreachable": True, "msg": "m"}) == {"unreachable": True, "msg": "m"}


def test_all_steps_are_sent_by_one_way():
    routed = yaml.safe_load((COLLECTION / "meta" / "runtime.yml").read_text())["plugin_routing"]["modules"]
    sent = {name: row for name, row in routed.items() if "action_plugin" in row}
    # As a module image_volume does more than its step.
    assert sent == {name: {"action_plugin": "livefleet.handover.host_steps"} for name in STEPS if name != "image_volume"}
    assert set(STEPS["image_volume"]().arguments) < set(converted_volume.STEP.arguments)
    assert all(set(row) == {"redirect"} for name, row in routed.items() if name not in sent)


def test_no_option_is_written_into_the_journal_of_the_host(run_module, helper, monkeypatch):
    written = []
    monkeypatch.setattr(AnsibleModule, "log", lambda self, message, log_args=None: written.append(message))
    plan = {"workload": "shop", "by": "PASSWORD=geheim"}
    step = {"session": "shop-1", "state": "identity", "plan": plan, "sessions": str(helper.root)}
    # As a controller calls it whose task has no no_log.
    run_module(host_steps.main, {"steps": [{"session": step}], "_ansible_no_log": False})
    run_module(session.main, {**step, "_ansible_no_log": False})
    assert written == []
