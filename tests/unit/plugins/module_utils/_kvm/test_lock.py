# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._core.runtime import HandoverError
from ansible_collections.livefleet.handover.plugins.module_utils._kvm import lock

FIRST = {"run": "one", "by": {"who": "ann", "on": "desk"}, "since": "2026-11-26T00:10:20Z", "destination": "node2"}
SECOND = {**FIRST, "run": "two"}


@pytest.fixture(autouse=True)
def a_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "FOLDER", str(tmp_path / "run"))


def test_a_second_run_is_told_whose_the_guest_is():
    lock.take("web1", FIRST)
    with pytest.raises(lock.Busy, match=r"web1 is being moved to node2 by ann on desk since 2026-11-26T00:10:20Z \(run one\): wait"):
        lock.take("web1", SECOND)
    assert lock.look("web1")["claim"] == FIRST


def test_a_run_whose_play_has_ended_is_followed_by_the_next_and_its_steps_touch_nothing_any_more():
    lock.take("web1", FIRST)
    lock.take("web1", SECOND, over="one")
    with pytest.raises(lock.Busy, match="run two"), lock.hold("web1", "one"):
        pytest.fail("a step of the run that has lost the guest")
    with lock.hold("web1", "two"):
        pass


def test_nobody_takes_a_guest_that_a_process_works_on():
    lock.take("web1", FIRST)
    with lock.hold("web1", "one"):
        assert lock.look("web1")["held"] is True
        with pytest.raises(lock.Busy):
            lock.take("web1", SECOND, over="one")
        assert lock.release("web1", "one") is False
    assert lock.look("web1")["held"] is False


def test_the_lock_ends_with_the_copier_and_not_with_the_one_that_started_it():
    lock.take("web1", FIRST)
    with lock.hold("web1", "one") as descriptor:
        copier = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=(descriptor,))
    try:
        assert lock.look("web1")["held"] is True
        with pytest.raises(lock.Busy):
            lock.take("web1", SECOND, over="one")
    finally:
        copier.communicate(b"\n")
    lock.take("web1", SECOND, over="one")


def test_what_is_released_is_nobodys_and_leaves_nothing():
    lock.take("web1", FIRST)
    assert lock.release("web1", "two") is False
    assert lock.release("web1", "one") is True
    assert lock.release("web1", "one") is False
    assert os.listdir(lock.FOLDER) == []
    assert lock.look("web1") == {"claim": None, "held": False, "stopped": [], "idle": 0.0}


def test_a_step_without_a_run_heeds_one_that_may_be_at_work():
    with lock.hold("web1"):
        pass
    assert os.listdir(lock.FOLDER) == []
    lock.take("web1", FIRST)
    with pytest.raises(lock.Busy), lock.hold("web1"):
        pytest.fail("it has begun")
    with lock.hold("web1", forward=False):
        pass
    long_ago = time.time() - lock.PATIENCE - 1
    os.utime(lock.path_of("web1"), (long_ago, long_ago))
    with lock.hold("web1"):
        pass


def test_a_run_that_is_given_up_goes_back_and_not_on():
    assert lock.give_up("web1") is None
    lock.take("web1", FIRST)
    with lock.hold("web1", "one") as descriptor:
        assert lock.given_up(descriptor) is False
        lock.give_up("web1")
        assert lock.given_up(descriptor) is True
    with pytest.raises(HandoverError, match="was given up"), lock.hold("web1", "one"):
        pytest.fail("it went on")
    with lock.hold("web1", "one", forward=False):
        pass


def test_names_are_not_paths():
    lock.take("../web 1/a", FIRST)
    assert os.listdir(lock.FOLDER) == ["..%2Fweb%201%2Fa.lock"]


CLAIMS_MEANWHILE = """
import fcntl, json, os, sys, time
descriptor = os.open(sys.argv[1], os.O_RDWR)
fcntl.lockf(descriptor, fcntl.LOCK_EX)
print("has it", flush=True)
time.sleep(0.3)
os.pwrite(descriptor, json.dumps({"run": "two"}).encode().ljust(os.fstat(descriptor).st_size), 0)
"""


def test_giving_up_does_not_write_over_a_run_that_takes_the_guest_meanwhile():
    lock.take("web1", FIRST)
    with subprocess.Popen([sys.executable, "-c", CLAIMS_MEANWHILE, lock.path_of("web1")], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "has it\n"
        assert lock.give_up("web1") == {"run": "two"}
    assert lock.look("web1")["claim"] == {"run": "two", "given_up": True}


def test_a_run_that_was_given_up_does_not_forget_that():
    lock.take("web1", FIRST)
    lock.give_up("web1")
    lock.take("web1", FIRST)
    with pytest.raises(HandoverError, match="given up"), lock.hold("web1", "one"):
        pass


def test_a_step_that_somebody_has_stopped_is_found():
    lock.take("web1", FIRST)
    holds = "import fcntl, sys; file = open(sys.argv[1]); fcntl.flock(file, fcntl.LOCK_EX); print('has it', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", holds, lock.path_of("web1")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as step:
        assert step.stdout.readline() == "has it\n"
        assert lock.look("web1")["stopped"] == []
        os.kill(step.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, step.pid, os.WSTOPPED | os.WNOWAIT)
        seen = lock.look("web1")
        os.kill(step.pid, signal.SIGKILL)
    assert seen["held"]
    assert seen["stopped"] == [step.pid]
    assert "`kill -CONT {0}`".format(step.pid) in lock.standing("web1", seen["stopped"])
