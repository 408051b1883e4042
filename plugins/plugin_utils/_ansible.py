# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ansible's facts about a run, for the door: variables, hosts, and the choice of tasks."""

from __future__ import annotations

import typing as t
from pathlib import Path

from ansible import context
from ansible.errors import AnsibleError
from ansible.inventory.manager import InventoryManager
from ansible_collections.livefleet.handover.plugins.plugin_utils._declaration import COLLECTION
from ansible_collections.livefleet.handover.plugins.plugin_utils._door import ours


def given(variables: t.Mapping[str, t.Any], templar: t.Any) -> dict[str, t.Any]:
    """The collection's variables with their templates filled in. One that needs a host's own variables is left for later."""
    values = {}
    for name in list(variables):
        if not (isinstance(name, str) and ours(name)):
            continue
        try:
            values[name] = templar.template(variables[name])
        except AnsibleError:
            continue
    return values


def add_host(action: t.Any, name: str, groups: t.Sequence[str], variables: t.Mapping[str, t.Any] | None = None) -> dict[str, t.Any]:
    """The part of an action's result by which a host comes into the inventory in memory.

    From ansible-core 2.21 on the result adds none: the action itself does, by a method of its own.
    """
    if hasattr(action, "add_host"):
        action.add_host(name, host_vars=dict(variables or {}), parent_group_names=list(groups))
    return {"add_host": {"host_name": name, "groups": list(groups), "host_vars": dict(variables or {})}}


def matcher(groups: t.Mapping[str, t.Sequence[str]], loader: t.Any) -> t.Callable[..., list[str]]:
    """Finds the hosts of a pattern, as Ansible does, within a limit if there is one."""
    inventory = InventoryManager(loader, parse=False)
    for group, hosts in groups.items():
        inventory.add_group(group)
        for host in hosts:
            inventory.add_host(host, group=group)

    def match(pattern: t.Any, limit: str = "") -> list[str]:
        inventory.subset(limit or None)
        try:
            return [host.name for host in inventory.get_hosts(pattern=",".join(pattern) if isinstance(pattern, list) else pattern)]
        except AnsibleError:
            return []
        finally:
            inventory.subset(None)

    return match


def only_listed() -> bool:
    """Whether Ansible only reads the playbook: nothing was asked for, so nothing can be missing."""
    return any(context.CLIARGS.get(each) for each in ("syntax", "listhosts", "listtasks", "listtags"))


def standalone(variables: t.Mapping[str, t.Any]) -> bool:
    """Whether the collection's own playbook was started. In a playbook that imports it, tags choose among the imports."""
    folder = variables.get("playbook_dir")
    return bool(folder) and Path(str(folder)).resolve() == COLLECTION / "playbooks"


def in_workflow(variables: t.Mapping[str, t.Any]) -> bool:
    """Whether a workflow of AWX has started this run: it gives each of its playbooks the variables of all of them."""
    return any(variables.get(each) for each in ("awx_workflow_job_id", "tower_workflow_job_id"))


def chosen_tasks(variables: t.Mapping[str, t.Any]) -> tuple[list[str], list[str]]:
    """The tags that are run, and those that are skipped."""
    return list(variables.get("ansible_run_tags") or ["all"]), list(variables.get("ansible_skip_tags") or [])
