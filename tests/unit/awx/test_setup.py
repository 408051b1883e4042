# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The role awx_setup, played with the modules of awx.awx replaced by ones that only check their arguments.

No controller of AWX can run here. The arguments are checked by the real modules' documentation, which says what they take.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from ansible_collections.livefleet.handover.plugins.filter.workflow import workflow_nodes, workflow_steps
from ansible_collections.livefleet.handover.plugins.plugin_utils import _declaration

MODULES = ("organization", "team", "execution_environment", "project", "inventory", "host", "notification_template", "credential_type", "credential",
           "job_template", "workflow_job_template", "schedule", "role")  # fmt: skip
CHECKER = """
import json, os
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.plugins.action import ActionBase

class ActionModule(ActionBase):
    _requires_connection = False

    def run(self, tmp=None, task_vars=None):
        name = self._task.action.rpartition(".")[2]
        checked = ArgumentSpecValidator(json.load(open(os.environ["AWX_SPECS"]))[name]).validate(self._task.args)
        if checked.error_messages:
            return dict(failed=True, msg="; ".join(checked.error_messages))
        with open(os.environ["AWX_CALLS"], "a") as calls:
            calls.write(json.dumps([name, self._task.args], default=str) + "\\n")
        return dict(changed=True)
"""
VARIABLES = {
    "awx_setup_image": "registry.example.com/handover-ee:1",
    "awx_setup_hosts": {"node1": {"ansible_host": "192.0.2.11"}, "node2": None},
    "awx_setup_machine": {"username": "root", "ssh_key_data": "KEY"},
    "awx_setup_fence": {"command": "ipmitool -H {host}-bmc -E chassis power off", "username": "admin", "password": "secret"},
    "awx_setup_notification": {"type": "webhook", "configuration": {"url": "https://hooks.example.com", "headers": {}}},
    "awx_setup_report_host": "archive",
    "awx_setup_extra_vars": {"migrate": {"migrate_hook_timeout": 120}},
    "awx_setup_update_template": "Update a host",
    "awx_setup_ceph_hosts": ["ceph1", "ceph2"],
    "awx_setup_backups": [{"handover_workload": "shop", "handover_source": "node1"}, {"handover_workload": "web", "handover_source": "node2"}],
    "awx_setup_workflows": [{"name": "Nightly snapshot", "steps": [{"template": "Handover snapshot", "variables": {"handover_workload": "shop"}}],
                             "rrule": "DTSTART:20260101T030000Z RRULE:FREQ=DAILY;INTERVAL=1"}],
}  # fmt: skip


def specification(module):
    """The arguments of a module of awx.awx, by its documentation."""
    documented = yaml.safe_load(importlib.import_module(f"ansible_collections.awx.awx.plugins.modules.{module}").DOCUMENTATION)["options"]
    keys = ("type", "required", "choices", "elements")
    return {name: {key: option[key] for key in keys if key in option} for name, option in documented.items()}


@pytest.fixture(scope="module")
def play(tmp_path_factory):
    pytest.importorskip("ansible_collections.awx.awx", reason="awx.awx is not installed beside this ansible-core: the part `python` has it")
    place = tmp_path_factory.mktemp("awx")
    plugins = place / "ansible_collections" / "awx" / "awx" / "plugins"
    (plugins / "action").mkdir(parents=True)
    (plugins / "modules").mkdir()
    (place / "ansible_collections" / "livefleet").mkdir()
    (place / "ansible_collections" / "livefleet" / "handover").symlink_to(_declaration.COLLECTION)
    for module in MODULES:
        (plugins / "action" / f"{module}.py").write_text(CHECKER, encoding="utf-8")
        (plugins / "modules" / f"{module}.py").write_text("", encoding="utf-8")
    (place / "specs.json").write_text(json.dumps({module: specification(module) for module in MODULES}), encoding="utf-8")
    (place / "ansible.cfg").touch()

    def run(variables):
        calls = place / "calls"
        calls.unlink(missing_ok=True)
        environment = {
            **os.environ,
            "ANSIBLE_COLLECTIONS_PATH": str(place),
            "ANSIBLE_CONFIG": str(place / "ansible.cfg"),
            "ANSIBLE_HOME": str(place / "home"),
            "ANSIBLE_NOCOLOR": "1",
            "AWX_CALLS": str(calls),
            "AWX_SPECS": str(place / "specs.json"),
        }
        command = [Path(sys.executable).with_name("ansible-playbook"), "-i", "localhost,", "-e", json.dumps(variables), "livefleet.handover.awx_setup"]
        done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, check=False, timeout=300)
        return done, [json.loads(line) for line in calls.read_text(encoding="utf-8").splitlines()] if calls.exists() else []

    return run


@pytest.fixture(scope="module")
def made(play):
    """What the role has the controller make, by kind and name."""
    done, calls = play(VARIABLES)
    assert done.returncode == 0, done.stdout + done.stderr
    return calls


def named(calls, kind):
    return {arguments["name"]: arguments for module, arguments in calls if module == kind}


def test_each_playbook_has_a_template_with_its_survey(made):
    templates = named(made, "job_template")
    assert set(templates) == {f"Handover {name}" for name in _declaration.playbooks()} | {"Handover back into use"}
    for name in _declaration.playbooks():
        template = templates[f"Handover {name}"]
        assert (_declaration.COLLECTION / template["playbook"]).is_file()
        assert template["survey_spec"] == yaml.safe_load((_declaration.COLLECTION / "awx" / "surveys" / f"{name}.yml").read_text(encoding="utf-8"))
        # A variable that a survey asks for is not set beside it, and one that the playbook does not know would be refused.
        assert not set(template["extra_vars"]) & {each["variable"] for each in template["survey_spec"]["spec"]}
        declared = _declaration.of_playbook(name)
        assert set(template["extra_vars"]) <= {*declared.takes, *declared.roles}
        assert ("Handover fence" in template["credentials"]) == ("handover_fence" in declared.takes)
    assert templates["Handover migrate"]["extra_vars"] == {
        "handover_report_dir": "/var/lib/handover/reports", "handover_report_host": "archive", "migrate_hook_timeout": 120,
    }  # fmt: skip
    # The controller fills it in when the job starts.
    assert templates["Handover back into use"]["extra_vars"] == {"handover_host": "{{ handover_source }}", "handover_maintenance": False}


def test_an_operator_drains_and_does_not_resolve(made):
    may = {}
    for arguments in (arguments for module, arguments in made if module == "role"):
        assert arguments["role"] == "execute"
        for team in arguments["teams"]:
            may.setdefault(team, set()).update(arguments.get("job_templates") or arguments.get("workflows"))
    assert {"Handover drain", "Handover migrate", "Handover maintenance", "Handover refill"} <= may["Handover operators"]
    assert not {"Handover recover", "Handover rollback", "Handover kvm_cache", "Nightly snapshot", "Handover Ceph restart"} & may["Handover operators"]
    assert may["Handover resolvers"] >= may["Handover operators"] | {"Handover recover", "Handover rollback"}
    assert may["Handover resolvers"] == (set(named(made, "job_template")) | set(named(made, "workflow_job_template"))) - {"Handover back into use"}


def test_the_workflows_name_templates_that_there_are(made):
    workflows = named(made, "workflow_job_template")
    assert set(workflows) == {"Handover maintenance", "Handover Ceph restart", "Handover nightly backup", "Nightly snapshot"}
    own = set(named(made, "job_template")) | {"Update a host"}
    for workflow in workflows.values():
        assert {node["unified_job_template"]["name"] for node in workflow["workflow_nodes"]} <= own
    nodes = [node["unified_job_template"]["name"] for node in workflows["Handover maintenance"]["workflow_nodes"]]
    assert nodes == ["Handover drain", "Update a host", "Handover reboot", "Handover back into use", "Handover refill"]
    asked = [question["variable"] for question in workflows["Handover maintenance"]["survey_spec"]["spec"]]
    assert asked == ["handover_source", "handover_hosts"] and workflows["Handover maintenance"]["survey_enabled"]
    assert [node["extra_data"] for node in workflows["Handover Ceph restart"]["workflow_nodes"]] == [{"ceph_hosts": "ceph1"}, {"ceph_hosts": "ceph2"}]
    backups = workflows["Handover nightly backup"]["workflow_nodes"]
    assert [node["extra_data"] for node in backups] == VARIABLES["awx_setup_backups"]
    survey = _declaration.of_playbook("backup").takes
    assert all(set(node["extra_data"]) <= set(survey) for node in backups)
    assert [len(node["related"]["always_nodes"]) for node in backups] == [1, 0] and not backups[0]["related"]["success_nodes"]
    schedules = named(made, "schedule")
    assert "DAILY" in schedules["Handover nightly backup"]["rrule"] and "Handover Ceph restart" not in schedules
    assert schedules["Handover look for moves in doubt"]["job_type"] == "check" and "Nightly snapshot" in schedules


def test_the_fence_keeps_its_password_out_of_the_variables(made):
    (kind,) = named(made, "credential_type").values()
    assert kind["injectors"]["extra_vars"] == {"handover_fence": "{{ command }}"}
    assert kind["injectors"]["env"]["IPMI_PASSWORD"] == "{{ password }}"
    assert [field["id"] for field in kind["inputs"]["fields"] if field.get("secret")] == ["password"]


def test_nothing_is_made_that_was_not_asked_for(play):
    done, calls = play({"awx_setup_image": "registry.example.com/handover-ee:1"})
    assert done.returncode == 0, done.stdout + done.stderr
    assert not named(calls, "workflow_job_template") and not named(calls, "credential") and not named(calls, "notification_template")
    assert all(template["credentials"] == ["Handover hosts"] for template in named(calls, "job_template").values())


def test_a_misspelt_argument_is_found(play):
    """The check of the arguments bites: a kind of notification that the module does not have."""
    done, _calls = play({**VARIABLES, "awx_setup_notification": {"type": "pigeon", "configuration": {}}})
    assert done.returncode != 0


def test_a_chain_of_steps():
    steps = workflow_steps(["a", "b"], "Handover ceph_restart_osds", "ceph_hosts")
    first, second = workflow_nodes(steps, "Handover")
    assert first["related"]["success_nodes"] == [{"identifier": second["identifier"]}] and second["related"]["success_nodes"] == []
    assert second["extra_data"] == {"ceph_hosts": "b"} and first["unified_job_template"]["organization"] == {"name": "Handover"}
