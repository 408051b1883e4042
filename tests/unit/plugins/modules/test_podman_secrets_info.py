# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""podman_secrets_info tells digests and no values, and none where podman is missing."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._core.runtime import Completed, HandoverError, Runtime
from ansible_collections.livefleet.handover.plugins.modules import podman_secrets_info


@pytest.fixture(name="host")
def a_podman(monkeypatch, tmp_path):
    """A podman that keeps the secret token in its own file, and `vaulted` elsewhere."""
    (tmp_path / "secretsdata.json").write_text(json.dumps({"id-token": base64.b64encode(b"hunter2").decode()}))
    host = {"podman": True, "dead": False, "folder": tmp_path}
    drivers = {"token": {"Name": "file", "Options": {"path": str(tmp_path)}}, "vaulted": {"Name": "shell", "Options": {}}}

    def run(_self, argv, accept=(0,), stdin=None, timeout=None):
        if host["dead"]:
            raise HandoverError("podman secret ls failed: database is locked")
        listed = argv[1:3] == ["secret", "ls"]
        documents = [{"ID": "id-" + name, "Spec": {"Name": name, "Driver": drivers[name]}} for name in argv[3:] if name in drivers]
        return Completed(tuple(argv), 0, "\n".join(drivers) if listed else json.dumps(documents), "")

    monkeypatch.setattr(Runtime, "run", run)
    monkeypatch.setattr(Runtime, "find", lambda self, tool: "/usr/bin/podman" if host["podman"] else None)
    return host


@pytest.fixture(name="ask")
def the_module(run_module, host):
    def ask(check=False, **params):
        return run_module(podman_secrets_info.main, {"names": ["token", "vaulted", "missing"], "key": "nonce", **params}, check=check)

    return ask


@pytest.mark.parametrize("check", [False, True])
def test_a_digest_under_the_key_stands_for_the_value(ask, check):
    answer = ask(check=check)
    digest = hmac.new(b"nonce", b"hunter2", hashlib.sha256).hexdigest()
    assert answer["secrets"] == {
        "token": {"driver": "file", "digest": digest, "changed": False},
        "vaulted": {"driver": "shell", "digest": "", "changed": False},
    }
    assert not answer["changed"] and "hunter2" not in str(answer)


def test_a_container_that_still_has_the_older_value_is_told(ask, host):
    (host["folder"] / "secrets").mkdir()
    (host["folder"] / "secrets" / "token").write_bytes(b"before")
    assert ask(static_dir=str(host["folder"]))["secrets"]["token"]["changed"]


def test_a_host_without_podman_has_none(ask, host):
    host["podman"] = False
    assert ask()["secrets"] == {}


def test_a_podman_that_does_not_answer_is_no_host_without_secrets(ask, host):
    host["dead"] = True
    with pytest.raises(Exception, match="podman secret ls failed: database is locked"):
        ask()


def test_the_key_is_needed(run_module):
    with pytest.raises(Exception, match="missing required arguments: key"):
        run_module(podman_secrets_info.main, {"names": []})
