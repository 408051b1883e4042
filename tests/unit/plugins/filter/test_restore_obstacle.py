# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.livefleet.handover.plugins.filter.restore_obstacle import checked, restore_obstacle

NONE = {"workload": {"exists": False, "running": False, "held": False}, "sessions": [], "problems": []}
STOPPED = {"workload": {"exists": True, "running": False, "held": False, "state": "exited"}, "sessions": [], "problems": []}


def has(**workload):
    return {**NONE, "workload": {"exists": True, "running": False, "held": False, **workload}}


def moves(**session):
    return {**NONE, "sessions": [{"workload": "shop", "role": "destination", **session}]}


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (has(running=True, state="running"), "shop runs on node2 and must not run twice: name that host (handover_source), or end it there first"),
        (has(state="paused"), "shop runs on node2 and must not run twice"),
        (has(held=True), "shop runs on node2 and must not run twice"),
        ({**NONE, "guest": {"exists": True, "state": "running"}}, "shop runs on node2 and must not run twice"),
        ({**NONE, "guest": {"exists": True, "state": "paused"}}, "shop runs on node2 and must not run twice"),
        ({**STOPPED, "guest": {"exists": False, "state": "unknown"}, "problems": ["libvirt is down"]}, "node2: libvirt is down: mend that"),
        (moves(state="copying", running=True, ended=False), "a move of shop has not ended on node2 (copying): wait for it, or end it with the playbook re"),
        (moves(state="in_doubt", ended=True), "a move of shop has not ended on node2 (in_doubt)"),
        ({"unreachable": True, "msg": "No route to host"}, "node2: it could not be asked (No route to host): mend that, or leave a host out that is off"),
        ({"msg": "python is missing"}, "it is not known whether shop runs on another host, and it must not run twice: node2: it could not be"),
        (None, "node2: it was not asked"),
        ({**NONE, "problems": ["podman ps did not answer within 15 s"]}, "node2: podman ps did not answer within 15 s: mend that"),
    ],
)
def test_what_is_not_known_is_refused(answer, said):
    assert said in restore_obstacle({"node1": NONE, "node2": answer, "node3": NONE}, "shop", "node1")


def test_nothing_is_in_the_way():
    moved = {**moves(state="done", ended=True), "workload": STOPPED["workload"]}
    other = {**NONE, "sessions": [{"workload": "other", "state": "copying", "running": True, "ended": False}]}
    given_up = moves(state="prepare", running=False, ended=False)
    assert restore_obstacle({"node1": has(running=True), "node2": moved, "node3": other, "node4": STOPPED, "node5": given_up}, "shop", "node1") == ""
    assert restore_obstacle({}, "shop", "node1") == ""
    off = {**NONE, "guest": {"exists": True, "state": "shut off"}, "problems": ["podman is missing"]}
    assert restore_obstacle({"node1": NONE, "node2": off}, "shop", "node1") == ""


def test_a_move_that_begins_on_the_host_itself_is_one():
    assert "has not ended on node1 (copying)" in restore_obstacle({"node1": moves(state="copying", running=True, ended=False)}, "shop", "node1")


def test_addresses_are_for_one_that_is_made():
    assert "leave handover_addresses (10.0.0.9) away, or have another" in restore_obstacle({"node1": STOPPED}, "shop", "node1", ["10.0.0.9"])
    assert restore_obstacle({"node1": STOPPED}, "shop", "node1", []) == ""
    assert restore_obstacle({"node1": NONE, "node2": STOPPED}, "shop", "node1", ["10.0.0.9"]) == ""


def test_the_filter_wants_answers():
    with pytest.raises(AnsibleFilterError, match="not list"):
        checked([], "shop", "node1")
