# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import calendar

from ansible_collections.livefleet.handover.plugins.filter.earlier_moves import earlier_moves
from ansible_collections.livefleet.handover.plugins.filter.recovery import recovery
from ansible_collections.livefleet.handover.plugins.plugin_utils import _operator

ELSEWHERE = {"who": "alice", "on": "bastion", "since": "2026-11-25T20:00:00Z", "boot": "another", "pid": 7, "began": "1"}
NOW = calendar.timegm((2026, 11, 25, 20, 1, 0))


def test_this_run_is_at_work_and_one_that_has_died_is_not():
    me = _operator.myself({"awx_user_name": "bob"})
    assert me["who"] == "bob" and _operator.at_work(me)
    assert not _operator.at_work({**me, "began": "1"}), "its number is another process's by now"
    assert not _operator.at_work({**me, "pid": 2**22 + 1})
    assert not _operator.at_work({**me, "boot": "before"}), "this controller was booted since"
    assert not _operator.at_work(None) and not _operator.at_work({})


def test_a_run_is_the_process_of_ansible_and_not_its_wrapper(monkeypatch):
    playbook = ["/usr/bin/python3", "/usr/bin/ansible-playbook", "migrate.yml"]
    tree = {
        20: (1, ["python", "-m", "pytest", "--ansible-inventory=hosts"]),
        21: (20, ["sh", "/opt/ansible/nightly.sh"]),
        22: (21, playbook),
        23: (22, playbook),
        24: (23, ["module"]),
        30: (21, ["python3", "-m", "ansible", "playbook", "migrate.yml"]),
    }
    monkeypatch.setattr(_operator, "_parent", lambda pid: tree.get(pid, (0, []))[0])
    monkeypatch.setattr(_operator, "_words", lambda pid: tree.get(pid, (0, [""]))[1])
    assert [_operator._leader(pid) for pid in (22, 23, 24, 30, 21)] == [22, 22, 22, 30, 21]


def test_a_run_on_another_controller_is_given_some_minutes():
    assert _operator.at_work(ELSEWHERE, NOW)
    assert not _operator.at_work(ELSEWHERE, NOW + _operator.PATIENCE)
    assert not _operator.at_work({**ELSEWHERE, "since": "soon"}, NOW)


def session(by, state="prepare", running=False):
    plan = {"source": "node1", "destination": "node2", "by": by}
    return {"id": "shop-1", "role": "source", "workload": "shop", "state": state, "running": running, "restarted": False, "ended": False, "plan": plan}


def test_a_second_run_does_not_take_back_the_move_that_another_one_prepares():
    alive, dead = session(_operator.myself({})), session({**_operator.myself({}), "began": "1"})
    assert earlier_moves([alive], "shop", "node2")["hopeless"] == []
    assert earlier_moves([dead], "shop", "node2")["hopeless"] == [dead]
    assert earlier_moves([alive], "shop", "node2", session="shop-1", end_only=True)["hopeless"] == [alive]
    assert not recovery({"node1": {"sessions": [alive]}, "node2": {"sessions": []}})[0]["end"]
    assert recovery({"node1": {"sessions": [dead]}, "node2": {"sessions": []}})[0]["end"]
    assert recovery({"node1": {"sessions": [alive]}, "node2": {"sessions": []}}, "shop-1")[0]["end"]
