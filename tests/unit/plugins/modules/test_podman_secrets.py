# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""podman_secrets on one host: each state does its part, and a check does none. The way between two hosts is in the tests of the wing."""

from __future__ import annotations

import base64
import json

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._core.pcopy import Pcopy, PcopyError
from ansible_collections.livefleet.handover.plugins.module_utils._core.runtime import Completed, Runtime
from ansible_collections.livefleet.handover.plugins.modules import podman_secrets


class Host:
    """podman with a store of secrets in a folder, and a helper whose envelope is base64 alone."""

    def __init__(self, folder):
        self.folder = folder
        self.values = {}
        self.commands = []
        self.failing = ""

    def run(self, argv, accept=(0,), stdin=None, timeout=None):
        words = [str(word) for word in argv[1:]]
        self.commands.append(" ".join(words))
        out = ""
        if words[:2] == ["secret", "ls"]:
            out = "\n".join(self.values)
        elif words[:2] == ["secret", "inspect"]:
            driver = {"Name": "file", "Options": {"path": str(self.folder)}}
            out = json.dumps([{"ID": "id-" + name, "Spec": {"Name": name, "Driver": driver, "Labels": {}}} for name in words[2:]])
        elif words[:2] == ["secret", "create"]:
            self.values[words[-2]] = stdin
            out = "id-" + words[-2] + "\n"
        elif words[:2] == ["secret", "rm"]:
            del self.values[words[2]]
        (self.folder / "secretsdata.json").write_text(json.dumps({"id-" + name: base64.b64encode(value).decode() for name, value in self.values.items()}))
        return Completed(tuple(argv), 0, out, "")

    def call(self, *words, stdin=None, timeout=None):
        self.commands.append("pcopy " + " ".join(words))
        if self.failing and self.failing in words:
            raise PcopyError(f"pcopy: envelope: {self.failing} failed as the test wants it", 1, [])
        return {"offer": {"key": "4b"}, "seal": {"sealed": stdin and base64.b64encode(stdin).decode()}, "open": {"base64": stdin and stdin.decode()}}.get(
            words[2], []
        )


@pytest.fixture(name="host")
def the_host(monkeypatch, tmp_path):
    fake = Host(tmp_path)
    monkeypatch.setattr(Runtime, "run", lambda self, argv, accept=(0,), stdin=None, timeout=None: fake.run(argv, accept, stdin, timeout))
    monkeypatch.setattr(Runtime, "find", lambda self, tool: "/usr/bin/" + tool)
    monkeypatch.setattr(Pcopy, "call", lambda self, *words, **more: fake.call(*words, **more))
    monkeypatch.setattr(Pcopy, "events", lambda self, *words, **more: fake.call(*words, **more))
    monkeypatch.setattr(podman_secrets, "RECORDS", str(tmp_path / "records"))
    return fake


@pytest.fixture(name="act")
def the_module(run_module, host):
    return lambda state, check=False, **params: run_module(podman_secrets.main, {"session": "move-1", "state": state, **params}, check=check)


def envelope(**values):
    secrets = [{"name": name, "labels": {}, "value": base64.b64encode(value).decode()} for name, value in values.items()]
    return base64.b64encode(json.dumps(secrets).encode()).decode()


@pytest.mark.parametrize(
    "asked",
    [
        {"state": "offered"},
        {"state": "sealed", "names": ["token"], "key": "4b"},
        {"state": "present", "sealed": envelope(token=b"x")},
        {"state": "absent", "names": ["token"]},
        {"state": "kept"},
    ],
    ids=lambda asked: asked["state"],
)
def test_check_mode_runs_nothing_and_writes_nothing(act, host, tmp_path, asked):
    assert act(**asked, check=True)["changed"]
    assert host.commands == [] and not list(tmp_path.iterdir())


def test_they_are_made_recorded_and_removed_again(act, host, tmp_path):
    act("offered")
    made = act("present", sealed=envelope(token=b"one", other=b"two"))
    assert (made["changed"], made["names"]) == (True, ["other", "token"])
    assert host.values == {"token": b"one", "other": b"two"}
    assert act("absent", names=["token", "other"])["names"] == ["token", "other"]
    assert host.values == {} and not list((tmp_path / "records").iterdir())
    assert "pcopy internal envelope forget move-1" in host.commands


def test_one_that_was_there_before_the_move_survives_its_end(act, host):
    host.values["token"] = b"the operator's"
    act("offered")
    with pytest.raises(Exception, match="podman has a secret token on this host already, and it is not written over"):
        act("present", sealed=envelope(token=b"another"))
    assert not act("absent", names=["token"])["changed"]
    assert host.values == {"token": b"the operator's"}


def test_one_that_the_move_never_came_to_make_is_not_suspected(act, host):
    act("offered")
    host.values["token"] = b"the operator's"
    ended = act("absent", names=["token"])
    assert (ended["changed"], "msg" in ended, list(host.values)) == (False, False, ["token"])


def test_after_a_boot_the_operator_is_told_of_them(act, host):
    host.values["token"] = b"x"
    told = act("absent", names=["token"])
    assert told["msg"].startswith("the secret token may have been made by this move and stays")
    assert (told["changed"], list(host.values)) == (False, ["token"])


def test_a_secret_that_is_gone_cannot_be_sealed(act):
    with pytest.raises(Exception, match="the secret token is not in podman's store on this host any more: see `podman secret inspect token`"):
        act("sealed", names=["token"], key="4b")


@pytest.mark.parametrize(("verb", "asked"), [("offer", {"state": "offered"}), ("open", {"state": "present", "sealed": envelope(token=b"x")})])
def test_the_helpers_reason_is_told_and_nothing_is_made(act, host, verb, asked):
    host.failing = verb
    with pytest.raises(Exception, match=f"envelope: {verb} failed as the test wants it"):
        act(**asked)
    assert host.values == {}


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"state": "sealed", "names": ["token"]}, "state is sealed but all of the following are missing: key"),
        ({"state": "present"}, "state is present but all of the following are missing: sealed"),
        ({"state": "copied"}, "value of state must be one of: offered, sealed, present, absent, kept, got: copied"),
    ],
)
def test_a_request_that_lacks_something_is_refused(act, asked, sentence):
    with pytest.raises(Exception, match=sentence):
        act(**asked)
