# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import subprocess
import sys
import types

import pytest
from ansible_collections.livefleet.handover.plugins.action import kvm_lock
from ansible_collections.livefleet.handover.plugins.plugin_utils import _operator

MINE = {"run": "mine", "by": {**_operator.myself({}), "pid": 1, "began": "1"}}


@pytest.fixture(name="other")
def another_play():
    """A process that is there, as the play of another run, and its claim."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        by = {**_operator.myself({}), "pid": process.pid, "began": _operator._began(process.pid)}
        yield process, {"run": "theirs", "by": by, "destination": "node2", "since": "now"}
        process.kill()


@pytest.fixture(name="act")
def the_action(monkeypatch):
    monkeypatch.setattr(kvm_lock.ActionBase, "run", lambda *args, **kwargs: {})
    monkeypatch.setattr(kvm_lock, "POLL_SECONDS", 0)
    monkeypatch.setattr(kvm_lock, "say", lambda text: None)

    def act(answers, check_mode=False, **more):
        asked = []
        action = object.__new__(kvm_lock.ActionModule)
        action._task = types.SimpleNamespace(args={"guest": "web1", "claim": MINE, **more}, check_mode=check_mode)
        action._execute_module = lambda module_name, module_args, task_vars: asked.append(module_args) or answers.pop(0)
        return action.run(), asked

    return act


def seen(claim, held=False, idle=1.0):
    return {"claim": claim, "held": held, "idle": idle}


@pytest.mark.parametrize("check_mode", [False, True])
def test_a_run_whose_play_is_there_is_not_disturbed(act, other, check_mode):
    answer, asked = act([seen(other[1])], check_mode)
    assert answer["failed"] and "web1 is being moved to node2" in answer["msg"]
    assert len(asked) == 1


def test_a_run_whose_play_has_ended_is_followed(act, other):
    other[0].kill()
    other[0].wait()
    answer, asked = act([seen(other[1]), {"changed": True}])
    assert answer == {"changed": True}
    assert asked[-1]["over"] == "theirs"


def test_the_last_step_of_such_a_run_is_waited_for(act, other):
    other[0].kill()
    other[0].wait()
    answer, asked = act([seen(other[1], held=True), seen(other[1], held=True), seen(None), {"changed": True}])
    assert answer == {"changed": True}
    assert asked[-1]["over"] == ""
    answer, _asked = act([seen(other[1], held=True)], check_mode=True)
    assert answer["failed"]
    answer, _asked = act([seen(other[1], held=True)], timeout=-1)
    assert answer["failed"]


@pytest.mark.parametrize(("idle", "refused"), [(10.0, True), (1e6, False)])
def test_of_a_run_from_another_controller_the_last_step_counts(act, other, idle, refused):
    claim = {**other[1], "by": {"who": "ann", "on": "desk", "boot": "another", "pid": 1, "began": "1", "since": "2020-01-01T00:00:00Z"}}
    answer, _asked = act([seen(claim, idle=idle), {"changed": True}])
    assert bool(answer.get("failed")) is refused


def test_an_earlier_move_of_the_same_play_is_not_another(act, other):
    answer, asked = act([seen({**other[1], "run": "earlier"}), {"changed": True}], claim={"run": "mine", "by": other[1]["by"]})
    assert answer == {"changed": True}
    assert asked[-1]["over"] == "earlier"


def test_a_process_without_a_run_is_not_disturbed_either(act):
    answer, _asked = act([seen(None, held=True)])
    assert answer["failed"] and "another process on this host" in answer["msg"]


def test_a_step_of_it_that_is_stopped_is_not_waited_for(act, other):
    other[0].kill()
    other[0].wait()
    answer, asked = act([{**seen(other[1], held=True), "stopped": [4711]}])
    assert answer["failed"] and "`kill -CONT 4711`" in answer["msg"]
    assert len(asked) == 1
