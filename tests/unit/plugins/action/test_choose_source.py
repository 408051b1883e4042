# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.livefleet.handover.plugins.action import choose_source

ASKED = {"workload": "shop", "destination": "node2", "source": None}
THERE = {"workload": {"exists": True, "running": True, "name": "shop"}, "sessions": []}
NOT_THERE = {"workload": {"exists": False, "running": False, "name": "shop", "pod_members": []}, "sessions": []}


@pytest.fixture(name="choose")
def the_action(action, monkeypatch):
    said = []
    monkeypatch.setattr(choose_source, "say", said.append)

    def choose(answers, **asked):
        return action(choose_source, {"asked": {**ASKED, **asked}, "answers": answers, "group": "source"}, {}), said

    return choose


def test_the_source_comes_into_its_group(choose):
    result, said = choose({"node1": THERE, "node2": NOT_THERE})
    assert result == {"changed": False, "source": "node1", "add_host": {"host_name": "node1", "groups": ["source"], "host_vars": {}}}
    assert said == []


def test_a_workload_that_is_there_stays_and_is_a_result(choose):
    result, said = choose({"node1": NOT_THERE, "node2": THERE})
    assert "add_host" not in result and result["source"] == ""
    (stays,) = result["ansible_stats"]["data"]["handover_results"]
    assert said == [stays["why"]] == ["shop is on node2 already: nothing is left to do."] and stays["verdict"] == "there already"
    assert (result["ansible_stats"]["per_host"], result["ansible_stats"]["aggregate"]) == (False, True)


def test_one_that_is_nowhere_or_on_several_hosts_is_a_failure(choose):
    assert choose({"node1": THERE, "node2": NOT_THERE, "node3": THERE})[0]["msg"].startswith("shop is on node1 and node3: say which of them is meant")
    result, _said = choose({"node1": NOT_THERE})
    assert result["failed"] and result["msg"].startswith("there is no container named shop on node1")
