# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.livefleet.handover.plugins.modules import preflight


def facts(address, **workload):
    podman = {"installed": True, "containers": [{"name": "cache", "id": "1", "state": "running"}]}
    return {
        "workload": {"exists": False, "running": False, "held": False, "name": "shop", **workload},
        "host": {"podman": podman, "pcopy": {"sessions": []}, "addresses": [{"address": address, "prefix": 24, "interface": "eth0"}]},
        "problems": [],
    }


PARAMS = {"workload": "shop", "source": "node1", "destination": "node2", "source_facts": facts("10.0.0.1"), "destination_facts": facts("10.0.0.2")}


def test_one_finding_is_the_message(run_module):
    with pytest.raises(Exception, match=r"^there is no container named shop on node1: name one of its containers \(cache\)$") as failed:
        run_module(preflight.main, PARAMS)
    assert [finding["check"] for finding in failed.value.result["findings"]] == ["workload"]


def test_several_findings_are_counted(run_module):
    with pytest.raises(Exception, match=r"^2 things are in the way: \(1\) shop is on node1 already.*; \(2\) there is no container"):
        run_module(preflight.main, {**PARAMS, "destination": "node1"})


def test_findings_can_be_asked_for_without_a_failure(run_module):
    result = run_module(preflight.main, {**PARAMS, "fail": False})
    assert not result["changed"]
    assert len(result["findings"]) == 1


def test_a_check_that_does_not_exist_cannot_be_ignored(run_module):
    with pytest.raises(Exception, match="ignore: there is no check named colour: name some of action_script, addresses, "):
        run_module(preflight.main, {**PARAMS, "ignore": ["colour"]})


def test_a_destination_that_does_not_answer_is_named_with_what_its_connection_said(run_module):
    silent = {"unreachable": True, "msg": "Task failed: something long\nTask failed: ssh: connect to host ghost port 22: No route to host\n"}
    with pytest.raises(Exception, match=r"^the destination node2 cannot be reached: see whether it is up and `ansible node2 -m ping` works \(ssh: connect"):
        run_module(preflight.main, {**PARAMS, "destination_facts": silent})
    with pytest.raises(Exception, match=r"works \(it gave no reason\)$"):
        run_module(preflight.main, {**PARAMS, "destination_facts": {"unreachable": True}})
