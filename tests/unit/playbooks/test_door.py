# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

"""Runs ansible-playbook on each playbook: the door cannot be gone around. No host is reached."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from ansible_collections.livefleet.handover.plugins.plugin_utils._declaration import COLLECTION, playbooks

PLAYBOOK = Path(sys.executable).with_name("ansible-playbook")
GROUPS = "[ceph_osds]\nnode1\nnode2\n[others]\nnode3\n[all:vars]\nansible_connection=local\nansible_python_interpreter=/bin/false\n"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    place = tmp_path_factory.mktemp("door")
    (place / "inventory").write_text(GROUPS, encoding="utf-8")
    found = place / "collections" / "ansible_collections" / "livefleet"
    found.mkdir(parents=True)
    (found / "handover").symlink_to(COLLECTION)
    environment = {key: value for key, value in os.environ.items() if not key.startswith("ANSIBLE_")}
    environment.update(ANSIBLE_COLLECTIONS_PATH=str(place / "collections"), ANSIBLE_NOCOLOR="1", ANSIBLE_HOME=str(place / "home"), COLUMNS="1000")

    def play(name, *arguments):
        done = subprocess.run(
            [PLAYBOOK, "-i", place / "inventory", *(f"livefleet.handover.{each}" for each in name.split()), *arguments],
            cwd=place, env=environment, capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
        return done.returncode, done.stdout + done.stderr

    return play


@pytest.mark.parametrize("name", playbooks())
def test_nothing_goes_around_the_door(run, name):
    """A misspelt variable is refused, whatever is left out of the run."""
    around = ["--limit", "node3", "--tags", "some", "--skip-tags", "always", "--start-at-task", "Hand it over"]
    status, said = run(name, "-e", "handover_sorce=node1", *around)
    assert status not in (0, 2) and "there is no variable handover_sorce" in said, said
    assert "TASK [" not in said


GIVEN = {
    "migrate": ["handover_workload=shop", "handover_destination=node2"],
    "move": ['{"handover_moves": [{"workload": "shop"}]}'],
    "drain": ["handover_source=node1"],
    "recover": [],
    "kvm_migrate": ["handover_workload=web1", "handover_source=node1", "handover_destination=node2"],
    "kvm_cache": ["handover_workload=web1", "handover_source=node1", "kvm_cache_mode=none"],
    "snapshot": ["handover_workload=shop", "handover_source=node1"],
    "backup_list": ["handover_source=node1", "handover_repository=/srv/backups"],
    "backup_mount": ["handover_source=node1", "handover_workload=shop", "handover_repository=/srv/backups"],
    "clone": ["handover_clone=shop-try", "handover_source=node1"],
}


@pytest.mark.parametrize("name", GIVEN)
def test_a_limit_that_leaves_out_what_was_asked_for_is_refused(run, name):
    given = [word for each in GIVEN[name] for word in ("-e", each)]
    status, said = run(name, *given, "--limit", "node3")
    assert status not in (0, 2) and f"{name}: nothing was touched: --limit" in said, said
    assert "TASK [" not in said


@pytest.mark.parametrize("switch", [("--tags", "some"), ("--skip-tags", "all"), ("--start-at-task", "Hand it over")])
def test_a_run_of_some_tasks_is_refused(run, switch):
    status, said = run("drain", "-e", "handover_source=node1", *switch)
    assert status not in (0, 2) and f"drain: nothing was touched: {switch[0]}" in said, said


def test_a_limit_that_chooses_is_taken(run):
    pytest.importorskip("ansible_collections.community.general", reason="community.general is not installed beside this ansible-core: the part `python` has it")
    status, said = run("kvm_audit", "--limit", "node3")
    # The host has no Python, so its own part fails: the door let the run in.
    assert status == 2 and "Read the variables" in said and "ok: [node3]" in said and "node1" not in said, said


def test_playbooks_can_be_looked_at_without_variables(run):
    status, said = run(" ".join(playbooks()), "--syntax-check")
    assert status == 0, said


def tasks_of(node):
    """Every task below a playbook's or a role's node."""
    for each in node if isinstance(node, list) else []:
        yield each
        for part in ("tasks", "pre_tasks", "post_tasks", "block", "rescue", "always"):
            yield from tasks_of(each.get(part))


class WithUnsafe(yaml.SafeLoader):
    """A text that Ansible leaves as it is, since another program fills it in."""


WithUnsafe.add_constructor("!unsafe", lambda loader, node: loader.construct_scalar(node))


def test_what_runs_on_the_controller_never_becomes():
    """A variable of an inventory wins over the keyword, and a variable of the play or the task over that."""
    files = [*COLLECTION.glob("playbooks/**/*.yml"), *COLLECTION.glob("roles/*/tasks/*.yml")]
    found = 0
    for path in files:
        if path.parent.name == "vars":
            continue
        for each in tasks_of(yaml.load(path.read_text(encoding="utf-8"), Loader=WithUnsafe)):
            local = each.get("hosts") == "localhost" or str(each.get("hosts", "")).count("'") == 4 or each.get("delegate_to") == "localhost"
            if local:
                found += 1
                assert each.get("become") is False and (each.get("vars") or {}).get("ansible_become") is False, (path, each["name"])
    assert found > 8


def test_a_fence_on_the_controller_does_not_become(run, tmp_path):
    inventory = "node1\nlocalhost\n[all:vars]\nansible_connection=local\nansible_become=true\nansible_become_user=nobody\nansible_become_exe=/bin/false\n"
    (tmp_path / "hosts").write_text(inventory, encoding="utf-8")
    (tmp_path / "fence.yml").write_text(FENCE.format(sys.executable), encoding="utf-8")
    _status, said = run("", "-i", str(tmp_path / "hosts"), str(tmp_path / "fence.yml"))
    assert "Switch the destination off" in said and "could not be fenced" not in said and "Let the source continue without it" in said, said


FENCE = """
- hosts: node1
  gather_facts: false
  tasks:
    - ansible.builtin.include_role: {{name: livefleet.handover.migrate, tasks_from: fence}}
      vars: {{migrate_fence: "true '{{host}} off'", migrate_destination: node2, migrate_workload: shop, ansible_python_interpreter: {0}}}
"""
