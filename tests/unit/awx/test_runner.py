# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Each playbook under ansible-runner, in the layout in which AWX starts a job: a survey's answers as extra variables, and no terminal.

The hosts have no Python, so a run that the door lets in ends with the first task on a host. Nothing is touched.
"""

from __future__ import annotations

import concurrent.futures
import importlib.util
import json
import os
import sys
from pathlib import Path

import pytest
from ansible_collections.livefleet.handover.plugins.plugin_utils import _declaration

pytest.importorskip("ansible_runner", reason="ansible-runner is not installed beside this ansible-core: the part `python` has it")
import ansible_runner  # noqa: E402


def _load(path):
    spec = importlib.util.spec_from_file_location(f"awx_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


forms = _load(Path(__file__).with_name("test_surveys.py"))
job = _load(Path(__file__).parents[2] / "environment" / "job.py")

# A job takes a second or two. Every playbook gets a filled survey, and some a blank or a wrong one; HANDOVER_AWX=all gives all of them all three.
# test_surveys.py has them all go through the door without a job.
ALL = os.environ.get("HANDOVER_AWX") == "all"
BLANK = forms.PLAYBOOKS if ALL else forms.PLAYBOOKS[::4]
WRONG = forms.PLAYBOOKS if ALL else forms.PLAYBOOKS[1::4]
INVENTORY = "[ceph_osds]\nnode1\n[others]\nnode2\nnode3\nnode4\narchive\nmon1\n[hypervisors]\nnode1\n[storage]\nnode1\n[openvz]\nnode1\n" \
            "[all:vars]\nansible_connection=local\nansible_python_interpreter=/bin/false\n"  # fmt: skip
# Variables that AWX adds to those of each job.
AWX = {"awx_job_id": 7, "tower_job_id": 7, "awx_user_name": "operator", "awx_job_template_name": "Handover"}


@pytest.fixture(scope="module")
def layout(tmp_path_factory):
    """What AWX makes for each job: the project, the inventory and the environment, with the collection where an execution environment has it."""
    found = tmp_path_factory.mktemp("collections")
    (found / "ansible_collections" / "livefleet").mkdir(parents=True)
    (found / "ansible_collections" / "livefleet" / "handover").symlink_to(_declaration.COLLECTION)
    (found / "ansible.cfg").touch()

    def make(name, answers):
        place = tmp_path_factory.mktemp("job")
        for folder in ("env", "inventory", "project"):
            (place / folder).mkdir()
        (place / "inventory" / "hosts").write_text(INVENTORY, encoding="utf-8")
        (place / "env" / "extravars").write_text(job.extravars({}, {**AWX, **answers}), encoding="utf-8")
        (place / "project" / "awx").symlink_to(_declaration.COLLECTION / "awx")
        environment = {
            "ANSIBLE_COLLECTIONS_PATH": str(found),
            "ANSIBLE_HOME": str(found / "home"),
            "ANSIBLE_CONFIG": str(found / "ansible.cfg"),
            "ANSIBLE_NOCOLOR": "1",
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }
        (place / "env" / "envvars").write_text(json.dumps(environment), encoding="utf-8")
        return dict(private_data_dir=str(place), playbook=f"awx/playbooks/{name}.yml", quiet=True)

    return make


@pytest.fixture(scope="module")
def jobs(layout):
    """Every playbook with every kind of answers, two jobs side by side."""
    every = {(name, kind): {**forms.extra(name), **answers} for name in forms.PLAYBOOKS for kind, answers in kinds(name).items()
             if kind == "filled" or name in {"blank": BLANK, "wrong": WRONG}[kind]}  # fmt: skip

    def run(job):
        done = ansible_runner.run(**layout(job[0], every[job]))
        return done.rc, list(done.events)

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        return dict(zip(every, pool.map(run, every)))


def kinds(name):
    """The answers to a survey: filled as an older form sends them, not filled, and filled with one that its question does not take."""
    questions = forms.surveys.survey(name)["spec"]
    filled = forms.answers(name, forms.as_lines)
    wrong = next((each for each in questions if each["type"] in forms.WRONG), None)
    blank = {each["variable"]: [] if each["type"] == "multiselect" else "" for each in questions}
    return {"filled": filled, "blank": blank, "wrong": {**filled, **({wrong["variable"]: "purple"} if wrong else {"handover_sorce": "node1"})}}


def said(events):
    return "\n".join(event.get("stdout", "") for event in events)


@pytest.mark.parametrize("name", forms.PLAYBOOKS)
def test_a_filled_survey_is_let_in(jobs, name):
    _status, events = jobs[name, "filled"]
    read = [event for event in events if event["event"] == "runner_on_ok" and event["event_data"]["task"] == "Read the variables"]
    assert read, said(events)


@pytest.mark.parametrize("name", BLANK)
def test_a_blank_survey_is_let_in_or_refused_for_what_it_needs(jobs, name):
    status, events = jobs[name, "blank"]
    needed = [each["variable"] for each in forms.surveys.survey(name)["spec"] if each["required"]]
    if needed:
        assert status != 0 and "nothing was touched" in said(events) and all(each + " is missing" in said(events) for each in needed), said(events)
        assert not [event for event in events if event["event"] == "playbook_on_task_start"]
    else:
        assert [event for event in events if event["event"] == "runner_on_ok"], said(events)


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_survey_is_refused_before_a_task(jobs, name):
    status, events = jobs[name, "wrong"]
    assert status != 0 and f"{name}: nothing was touched" in said(events), said(events)
    assert not [event for event in events if event["event"] == "playbook_on_task_start"]


def test_the_result_leaves_the_container(jobs):
    """AWX hands the custom stats of a job to the next one of its workflow."""
    _status, events = jobs["kvm_migrate", "filled"]
    (stats,) = [event["event_data"] for event in events if event["event"] == "playbook_on_stats"]
    (result,) = stats["artifact_data"]["handover_results"]
    assert (result["workload"], result["from"], result["to"], result["verdict"]) == ("web1", "node1", "node2", "failed") and result["why"]


def test_a_workflow_gives_each_playbook_the_variables_of_all(layout):
    """The drain's host and results are no variables of the playbook that lifts the mark; a misspelt one is refused in a workflow, too."""
    variables = {"handover_host": "node3", "handover_maintenance": "false", "handover_source": "node3", **forms.extra("refill")}
    alone = ansible_runner.run(**layout("maintenance", variables))
    assert "handover_results is no variable of the playbook maintenance" in said(list(alone.events))
    within = ansible_runner.run(**layout("maintenance", {**variables, "awx_workflow_job_id": 12}))
    assert [event for event in within.events if event["event"] == "runner_on_ok"], said(list(within.events))
    wrong = ansible_runner.run(**layout("maintenance", {**variables, "awx_workflow_job_id": 12, "handover_sorce": "node3"}))
    assert "there is no variable handover_sorce" in said(list(wrong.events))
