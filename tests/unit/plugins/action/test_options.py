# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""options is the door of each playbook: values come out with their types, or a sentence for each that is wrong. The rules are in the tests of _door."""

from __future__ import annotations

import pytest
from ansible.errors import AnsibleError
from ansible.parsing.dataloader import DataLoader
from ansible_collections.livefleet.handover.plugins.action import options
from ansible_collections.livefleet.handover.plugins.plugin_utils import _declaration


class Templar:
    """Fills in nothing, and fails for a variable that needs another host's."""

    @staticmethod
    def template(value):
        if value == "{{ inventory_hostname }}":
            raise AnsibleError("'inventory_hostname' is undefined")
        return value


@pytest.fixture(name="ask")
def the_action(action, monkeypatch):
    # The inventory's hosts are matched as Ansible does, which needs a loader.
    monkeypatch.setattr(options, "matcher", lambda groups, _loader, made=options.matcher: made(groups, DataLoader()))

    def ask(playbook="maintenance", hosts=("node1", "node2"), **variables):
        return action(options, {"playbook": playbook}, {"groups": {"all": list(hosts)}, **variables}, Templar())

    return ask


def test_values_come_out_with_their_types_and_without_the_prefix(ask):
    assert ask(handover_host="node1", handover_maintenance="false") == {"changed": False, "asked": {"host": "node1", "maintenance": False, "reason": None}}


def test_all_that_is_wrong_is_told_in_one_message_and_as_a_list(ask):
    answer = ask(handover_maintenance="maybe", handover_hots="node1")
    assert answer["failed"] and "asked" not in answer
    assert answer["problems"][:2] == ["there is no variable handover_hots: did you mean handover_host?", "handover_maintenance is 'maybe': write true or false"]
    assert answer["problems"][2].startswith("handover_host is missing (") and len(answer["problems"]) == 3
    assert all(each in answer["msg"] for each in answer["problems"])


def test_a_host_that_the_inventory_has_not(ask):
    answer = ask("migrate", handover_workload="shop", handover_destination="node9")
    assert answer["failed"] and any("node9" in each for each in answer["problems"])


def test_a_variable_that_needs_a_host_s_own_is_left_for_later(ask):
    assert ask(handover_host="node1", handover_maintenance=True, handover_reason="{{ inventory_hostname }}")["asked"]["reason"] is None


def test_variables_of_other_software_do_not_matter(ask):
    assert "failed" not in ask(handover_host="node1", handover_maintenance=True, ansible_user="root", database_url="x")


def test_a_secret_is_not_part_of_the_answer(ask, monkeypatch):
    declared = _declaration.of_playbook("maintenance")
    secret = declared._replace(takes={**declared.takes, "handover_reason": {**declared.takes["handover_reason"], "no_log": True}})
    monkeypatch.setattr(options, "of_playbook", lambda name: secret)
    assert ask(handover_host="node1", handover_maintenance=True, handover_reason="x")["asked"] == {"host": "node1", "maintenance": True}


def test_a_playbook_that_is_none(ask):
    with pytest.raises(KeyError, match="drian"):
        ask("drian")
