# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._core import runtime
from ansible_collections.livefleet.handover.plugins.modules import kvm_load


class Agents:
    """Guests whose agents need so many questions until what they do is through; a script `fail` fails."""

    def __init__(self, questions):
        self.questions, self.scripts, self.left = questions, [], {}

    def run(self, argv, accept=(0,), **_rest):
        name, asked = argv[argv.index("--domain") + 1], json.loads(argv[-1])
        given = asked["arguments"]
        if asked["execute"] == "guest-exec":
            if self.questions is None:
                return runtime.Completed(tuple(argv), 1, "", "error: Guest agent is not responding")
            self.scripts.append((name, given["arg"][1]))
            self.left[len(self.scripts)] = self.questions
            answer = {"pid": len(self.scripts)}
        else:
            number = given["pid"]
            self.left[number] -= 1
            failed = self.scripts[number - 1][1] == "fail"
            answer = {"exited": self.left[number] <= 0, "exitcode": int(failed)}
        return runtime.Completed(tuple(argv), 0, json.dumps({"return": answer}), "")


@pytest.fixture(name="agents")
def some_agents(monkeypatch, tmp_path):
    def make(questions=3):
        agents = Agents(questions)
        monkeypatch.setattr(runtime.Runtime, "tool", lambda self, tool, package: f"/usr/bin/{tool}")
        monkeypatch.setattr(runtime.Runtime, "run", lambda self, argv, **rest: agents.run(argv, **rest))
        monkeypatch.setattr(kvm_load, "POLL_SECONDS", 0.01)
        return agents

    return make


def asked(tmp_path, *guests, **more):
    listed = [{"name": name, "load": load, "prepare": prepare, "run": run} for name, load, prepare, run in guests]
    return {"guests": listed, "folder": str(tmp_path), "interval": 0.01, **more}


def test_all_are_ready_before_any_begins(agents, tmp_path, run_module):
    there = agents()
    result = run_module(kvm_load.main, asked(tmp_path, ("a", "copy", "make", "work"), ("b", "copy", "", "work"), ("c", "web", "make", "serve")))
    assert there.scripts == [("a", "make"), ("c", "make"), ("a", "work"), ("b", "work"), ("c", "serve")]
    assert set(result["loads"]) == {"copy", "web"}
    assert result["seconds"] >= max(result["loads"].values()) > 0
    assert 0 <= result["host"]["user"] <= 1
    assert 0 < result["host"]["memory"] <= result["host"]["memory_with_cache"]


def test_what_fails_in_a_guest_is_told(agents, tmp_path, run_module):
    agents()
    with pytest.raises(Exception, match="what b was given to do ended with status 1"):
        run_module(kvm_load.main, asked(tmp_path, ("a", "copy", "", "work"), ("b", "copy", "", "fail")))


def test_a_guest_without_an_agent(agents, tmp_path, run_module):
    agents(questions=None)
    with pytest.raises(Exception, match="the agent of a started nothing: it needs QEMU's guest agent"):
        run_module(kvm_load.main, asked(tmp_path, ("a", "copy", "", "work")))


def test_what_never_ends_is_given_up(agents, tmp_path, run_module):
    agents(questions=10**9)
    with pytest.raises(Exception, match="a was not through within 1 s: give it less to do, or more time"):
        run_module(kvm_load.main, asked(tmp_path, ("a", "copy", "", "work"), timeout=1))


def test_the_folder_has_to_be_there(agents, tmp_path, run_module):
    agents()
    with pytest.raises(Exception, match="there is no folder /nowhere"):
        run_module(kvm_load.main, {**asked(tmp_path, ("a", "copy", "", "work")), "folder": "/nowhere"})
