# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._core.runtime import HandoverError
from ansible_collections.livefleet.handover.plugins.module_utils._podman import group_readied
from ansible_collections.livefleet.handover.plugins.module_utils._podman.group_readied import Readied

SOURCE = {
    "pods": [{"name": "front"}],
    "members": [
        {"name": "infra", "infra": True, "running": True},
        {"name": "db", "infra": False, "running": True, "ipc_mode": "container:infra", "networks": [{"name": "lan"}], "started": ""},
        {"name": "web", "infra": False, "running": True, "ipc_mode": "private", "networks": [{"name": "lan"}], "started": ""},
        {"name": "job", "infra": False, "running": False},
    ],
}


class Runtime:
    def __init__(self, silent, fails):
        self.silent, self.fails, self.ran = silent, fails, []

    def tool(self, name, _package):
        return "/bin/" + name

    def run(self, words):
        self.ran.append(words)
        asked = next(word for word in words if word.startswith("HANDOVER_SILENT=")).partition("=")[2]
        with open(asked, encoding="utf-8"):
            pass  # as long as it starts, the file is there
        if self.fails:
            raise HandoverError("it does not start")


class Podman:
    path = "/bin/podman"

    def __init__(self, runtime, running=False, backend="netavark"):
        self.runtime, self.running, self.backend = runtime, running, backend

    def pods(self, _names):
        return [{"Name": "front", "Id": "f" * 64, "InfraContainerID": "e" * 64}]

    def root(self):
        return "/storage"

    def inspect(self, _name):
        return {"State": {"Running": self.running}}

    def info(self):
        return {"host": {"networkBackend": self.backend, "networkBackendInfo": {"path": "/lib/netavark" if self.backend == "netavark" else ""}}}


@pytest.fixture
def readied(monkeypatch, tmp_path):
    """What was initialised, with which networks, and whose /dev/shm was mounted."""
    seen = []

    class Initialisation:
        def __init__(self, _runtime, _podman, name):
            self.name = name

        def run(self, facts):
            seen.append((self.name, facts["networks"]))
            return {"Id": self.name}

        def mount_shared_memory(self, _inspect):
            seen.append((self.name, "shm"))

    monkeypatch.setattr(group_readied, "Initialisation", Initialisation)
    monkeypatch.setattr(group_readied, "SILENT", str(tmp_path / "silent"))
    return seen


def test_the_infra_container_starts_silent_and_then_each_that_ran_is_readied(readied, tmp_path):
    runtime = Runtime(tmp_path, fails=False)
    Readied(None, Podman(runtime)).run(SOURCE)
    (words,) = runtime.ran
    assert words[-3:] == ["/bin/podman", "start", "e" * 64]
    assert "CONTAINERS_HELPER_BINARY_DIR=/usr/local/libexec/handover/podman" in words and "HANDOVER_NETAVARK=/lib/netavark" in words
    # Their interfaces are the infra container's, and so is the shared memory of one that shares it.
    assert readied == [("db", []), ("web", []), ("web", "shm")]
    assert list((tmp_path / "silent").iterdir()) == [], "a later start would come up silent, too"


def test_a_pod_that_ends_with_its_members_does_not_while_they_are_readied(readied, tmp_path, monkeypatch):
    """podman cleans up behind each that is readied, and would stop the infra container."""
    runtime = Runtime(tmp_path, fails=False)
    monkeypatch.setattr(group_readied, "exit_policy", lambda *words: readied.append((*words, len(runtime.ran))) or "")
    Readied(None, Podman(runtime)).run(SOURCE, ["front"])
    assert readied[:2] == [("/storage", "f" * 64, "continue", 0), ("db", [])]


def test_nothing_starts_in_a_pod_whose_policy_cannot_be_held(readied, tmp_path, monkeypatch):
    runtime = Runtime(tmp_path, fails=False)
    monkeypatch.setattr(group_readied, "exit_policy", lambda *words: "another layout")
    with pytest.raises(HandoverError, match="cannot be told the exit policy continue of the pod front: another layout"):
        Readied(None, Podman(runtime)).run(SOURCE, ["front"])
    assert runtime.ran == [] and readied == []


def test_one_that_does_not_start_leaves_no_file(readied, tmp_path):
    with pytest.raises(HandoverError, match="it does not start"):
        Readied(None, Podman(Runtime(tmp_path, fails=True))).run(SOURCE)
    assert readied == [] and list((tmp_path / "silent").iterdir()) == []


@pytest.mark.parametrize(
    ("podman", "sentence"),
    [
        ({"running": True}, "the infra container eeeeeeeeeeee of the pod runs on this host already"),
        ({"backend": "cni"}, "without netavark, so none of them could"),
    ],
)
def test_nothing_is_started_that_would_be_heard(readied, tmp_path, podman, sentence):
    runtime = Runtime(tmp_path, fails=False)
    with pytest.raises(HandoverError, match=sentence):
        Readied(None, Podman(runtime, **podman)).run(SOURCE)
    assert runtime.ran == [] and readied == []
