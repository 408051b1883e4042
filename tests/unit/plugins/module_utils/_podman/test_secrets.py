# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import base64
import json

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._core.pcopy import Pcopy
from ansible_collections.livefleet.handover.plugins.module_utils._core.runtime import Completed, HandoverError, Runtime
from ansible_collections.livefleet.handover.plugins.module_utils._podman import container_look as look
from ansible_collections.livefleet.handover.plugins.module_utils._podman.secrets import Made, Secrets
from ansible_collections.livefleet.handover.plugins.modules import podman_secrets

VALUE = b"a\0b\nhunter2"


class Host:
    """podman with a store of secrets in a folder, and what it was told to do with which input."""

    path = "podman"

    def __init__(self, folder, **values):
        self.folder, self.said, self.inputs, self.failing = folder, [], [], ""
        self.drivers = dict.fromkeys(values, "file")
        (folder / "secretsdata.json").write_text(json.dumps({"id-" + name: base64.b64encode(value).decode() for name, value in values.items()}))

    def secrets(self):
        return sorted(self.drivers)

    def run_json(self, argv, accept=(0,)):
        place = {"path": str(self.folder)}
        return [{"ID": "id-" + name, "Spec": {"Name": name, "Driver": {"Name": self.drivers[name], "Options": place}, "Labels": {"team": "web"}}}
                for name in argv[3:]]  # fmt: skip

    def run(self, *argv, stdin=None, **more):
        words = argv[0] if isinstance(argv[0], list) else ["podman", *argv]
        if self.failing and self.failing in words:
            raise HandoverError("podman failed")
        self.said.append(" ".join(words))
        self.inputs.append(stdin)
        if words[1:3] == ["secret", "create"]:
            self.drivers[words[-2]] = "file"
            return Completed(tuple(words), 0, "id-" + words[-2] + "\n", "")
        if words[1:3] == ["secret", "rm"]:
            del self.drivers[words[3]]
        return Completed(tuple(words), 0, "", "")


def secrets(host):
    return Secrets(host, host)


def made(host):
    return Made(str(host.folder / "made" / "move-1.json"))


def test_two_hosts_compare_without_a_value_being_told(tmp_path):
    here = Host(tmp_path, token=VALUE, other=b"x")
    seen = secrets(here).look(["token", "missing"], "k1")
    assert list(seen) == ["token"]
    assert seen == secrets(here).look(["token"], "k1")
    assert seen["token"]["digest"] != secrets(here).look(["token"], "k2")["token"]["digest"]
    assert seen["token"]["digest"] != secrets(here).look(["other"], "k1")["other"]["digest"]
    assert "hunter2" not in str(seen)


def test_what_another_driver_keeps_is_not_known(tmp_path):
    host = Host(tmp_path, token=VALUE)
    host.drivers["token"] = "pass"
    assert secrets(host).look(["token"], "k") == {"token": {"driver": "pass", "digest": "", "changed": False}}
    with pytest.raises(HandoverError, match="the secret token is not in podman's store on this host"):
        secrets(host).take(["token"])


@pytest.mark.parametrize(("copy", "changed"), [(VALUE, False), (b"before", True), (None, False)])
def test_a_container_keeps_the_value_that_it_was_created_with(tmp_path, copy, changed):
    (tmp_path / "secrets").mkdir()
    if copy is not None:  # one that is a variable has no copy
        (tmp_path / "secrets" / "token").write_bytes(copy)
    assert secrets(Host(tmp_path, token=VALUE)).look(["token"], "k", str(tmp_path))["token"]["changed"] is changed


def test_what_is_taken_is_made_again_and_stands_in_no_command(tmp_path):
    (there := tmp_path / "there").mkdir()
    taken = secrets(Host(tmp_path, token=VALUE)).take(["token"])
    host = Host(there)
    assert secrets(host).make(taken, made(host)) == ["token"]
    assert host.said == ["podman secret create --driver=file --label=team=web token -"]
    assert host.inputs == [VALUE]


def test_of_several_all_are_made_or_none(tmp_path):
    (there := tmp_path / "there").mkdir()
    taken = secrets(Host(tmp_path, one=b"1", two=b"2")).take(["one", "two"])
    host = Host(there)
    host.failing = "two"
    with pytest.raises(HandoverError, match="podman failed"):
        secrets(host).make(taken, made(host))
    assert host.secrets() == []


def test_nothing_is_written_over(tmp_path):
    (there := tmp_path / "there").mkdir()
    taken = secrets(Host(tmp_path, token=VALUE)).take(["token"])
    host = Host(there, token=b"another")
    with pytest.raises(HandoverError, match="podman has a secret token on this host already, and it is not written over"):
        secrets(host).make(taken, made(host))
    assert host.secrets() == ["token"]
    assert host.said == []


def test_a_store_of_another_layout_is_an_error(tmp_path):
    host = Host(tmp_path, token=VALUE)
    (tmp_path / "secretsdata.json").write_text("[]")
    with pytest.raises(HandoverError, match="podman's store of secrets in .* is not as it is known"):
        secrets(host).look(["token"], "k")


def test_those_that_are_variables_count_too():
    config = {"Secrets": [{"Name": "one"}], "CreateCommand": ["podman", "run", "--secret", "one", "--secret=two,type=env,target=TWO", "image"]}
    assert look.secrets_of(config) == ["one", "two"]


def test_from_host_to_host_nobody_reads_them(tmp_path, monkeypatch, run_module):
    """With a helper that only turns the text round."""
    (there := tmp_path / "there").mkdir()
    here, other, said = Host(tmp_path, token=VALUE), Host(there), []

    def call(self, *words, stdin=None, timeout=None):
        said.append(words)
        if "seal" in words:
            return {"sealed": base64.b64encode(stdin[::-1]).decode()}
        if "forget" in words:
            return []
        return {"key": "4b"} if "offer" in words else {"base64": base64.b64encode(base64.b64decode(stdin)[::-1]).decode()}

    monkeypatch.setattr(Pcopy, "call", call)
    monkeypatch.setattr(Pcopy, "events", call)
    at = [here]
    monkeypatch.setattr(Runtime, "run", lambda self, argv, **more: at[0].run(argv, **more))
    monkeypatch.setattr(podman_secrets, "Secrets", lambda runtime, podman: Secrets(at[0], at[0]))

    monkeypatch.setattr(podman_secrets, "RECORDS", str(tmp_path / "records"))

    def run(**params):
        return run_module(podman_secrets.main, {"session": "move-1", **params})

    offered = run(state="offered")
    sealed = run(state="sealed", names=["token"], key=offered["key"])
    assert "hunter2" not in str(sealed) and base64.b64encode(VALUE).decode() not in str(sealed)
    at[0] = other
    arrived = run(state="present", sealed=sealed["sealed"])
    assert arrived["names"] == ["token"] and arrived["changed"]
    assert "hunter2" not in str(arrived)
    assert other.inputs == [VALUE]
    assert run(state="absent", names=["token", "never"])["names"] == ["token"]
    assert not list((tmp_path / "records").iterdir())
    assert [words[2:] for words in said] == [("offer", "move-1"), ("seal", "move-1", "4b"), ("open", "move-1"), ("forget", "move-1")]


def test_only_those_that_the_move_has_made_are_removed(tmp_path):
    (there := tmp_path / "there").mkdir()
    taken = secrets(Host(tmp_path, token=VALUE, other=b"x")).take(["token", "other"])
    host = Host(there)
    made(host).write({})
    host.drivers["other"] = "file"  # an operator was quicker
    with pytest.raises(HandoverError, match="podman has a secret other on this host already"):
        secrets(host).make(taken, made(host))
    assert host.secrets() == ["other"]
    assert secrets(host).remove(["token", "other"], made(host)) == ([], [])

    made(host).write({"token": "id-token", "other": "another ID"})
    host.drivers["token"] = "file"
    assert secrets(host).remove(["token", "other"], made(host)) == (["token"], [])
    assert host.secrets() == ["other"]


def test_after_a_boot_they_stay_and_are_named(tmp_path):
    host = Host(tmp_path, token=VALUE)
    assert secrets(host).remove(["token", "missing"], made(host)) == ([], ["token"])
    assert host.secrets() == ["token"]


def test_a_record_is_kept_or_forgotten(tmp_path, monkeypatch, run_module):
    monkeypatch.setattr(podman_secrets, "RECORDS", str(tmp_path))
    Made(str(tmp_path / "move-1.json")).write({"token": "id-token"})
    assert run_module(podman_secrets.main, {"session": "move-1", "state": "kept"})["changed"]
    assert not run_module(podman_secrets.main, {"session": "move-1", "state": "kept"})["changed"]
