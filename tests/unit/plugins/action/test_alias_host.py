# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""alias_host adds a host that is reached as another one is, and is a host of its own in everything else."""

from __future__ import annotations

import pytest
from ansible.errors import AnsibleError
from ansible_collections.livefleet.handover.plugins.action import alias_host

NODE1 = {
    "ansible_host": "10.0.0.1", "ansible_user": "root", "ansible_ssh_common_args": "-F /etc/lab", "ansible_become_password": "x", "ansible_connection": "ssh",
    "ansible_facts": {"kernel": "6.1"}, "ansible_check_mode": True, "ansible_hostname": "node1", "migrate_images": "/srv",
    "group_names": ["all", "ungrouped", "stores"],
}  # fmt: skip


@pytest.fixture(name="alias")
def the_action(action):
    def alias(known=None, **arguments):
        return action(alias_host, {"name": "shop@node1", "of": "node1", **arguments}, {"hostvars": {"node1": known or NODE1}})

    return alias


def test_it_is_reached_as_the_other_one_and_has_none_of_its_facts(alias):
    made = alias(groups=["moves"], variables={"workload": "shop"})
    assert not made["changed"]
    assert made["add_host"] == {
        "host_name": "shop@node1",
        "groups": ["stores", "moves"],
        "host_vars": {
            "ansible_host": "10.0.0.1", "ansible_user": "root", "ansible_ssh_common_args": "-F /etc/lab", "ansible_become_password": "x",
            "ansible_connection": "ssh", "workload": "shop",
        },
    }  # fmt: skip


def test_one_without_an_address_is_reached_by_its_name(alias):
    assert alias({"group_names": []})["add_host"]["host_vars"] == {"ansible_host": "node1"}


def test_its_own_variables_win(alias):
    assert alias(variables={"ansible_user": "ann"})["add_host"]["host_vars"]["ansible_user"] == "ann"


def test_a_host_that_is_in_no_inventory(alias):
    assert alias(of="node9") == {"failed": True, "msg": "node9 is not in the inventory: name one of its hosts"}


@pytest.mark.parametrize("arguments", [{"groups": {"moves": 1}}, {"variables": 7}])
def test_arguments_of_other_kinds_are_refused(alias, arguments):
    with pytest.raises(AnsibleError):
        alias(**arguments)


def test_a_newer_ansible_is_told_by_its_own_method(alias, monkeypatch):
    """From 2.21 on a result adds no host."""
    told = []
    monkeypatch.setattr(alias_host.ActionModule, "add_host", lambda _self, name, **how: told.append((name, how)), raising=False)
    made = alias({"group_names": []}, groups=["moves"])["add_host"]
    assert told == [("shop@node1", {"host_vars": made["host_vars"], "parent_group_names": ["moves"]})]
