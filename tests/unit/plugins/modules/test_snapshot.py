# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import os
import shutil
import types
from pathlib import Path

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._core import runtime
from ansible_collections.livefleet.handover.plugins.module_utils._podman import snapshots
from ansible_collections.livefleet.handover.plugins.modules import snapshot


class Host:
    """A host with one container, whose images are real files; it notes what is done in which state of the container."""

    def __init__(self, folder):
        self.folder = folder
        self.state = "running"
        self.identifier = "111"
        self.commands = []
        self.fails = ()
        self.namespace = ""
        self.static = folder / "static"
        for name, text in (("pgdata.img", "data"), ("static/checkpoint/pages.img", "memory"), ("layer/file", "layer")):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)

    def run(self, argv, accept=(0,), stdin=None, timeout=None):
        tool, *rest = [str(word) for word in argv]
        tool = os.path.basename(tool)
        out = ""
        if rest[:2] == ["ps", "--all"]:
            out = json.dumps([{"Id": self.identifier, "Names": ["shop"], "State": self.state}])
        elif rest[:2] == ["container", "inspect"]:
            out = json.dumps([{
                "Id": self.identifier, "Name": "shop", "State": {"Status": self.state, "Running": self.state == "running"},
                "NetworkSettings": {"SandboxKey": self.namespace}, "StaticDir": str(self.static),
                "GraphDriver": {"Data": {"UpperDir": str(self.folder / "layer")}},
            }])  # fmt: skip
        elif tool == "pcopy" and rest[0] == "snapshot":
            out = self.pcopy(*[word for word in rest[1:] if word not in ("--json", "--track=false")])
        else:
            verb = " ".join([tool, *rest]) if tool != "cp" else "cp " + os.path.basename(rest[-1])
            if any(word in verb for word in self.fails):
                raise runtime.HandoverError(verb + " failed: as the test wants it")
            self.commands.append((verb, self.state))
            if tool == "cp":
                (shutil.copytree if os.path.isdir(rest[-2]) else shutil.copy2)(rest[-2], rest[-1])
            for word, state in (("pause", "paused"), ("unpause", "running"), ("checkpoint", "exited"), ("restore", "running"), ("start", "running"),
                                ("stop", "exited"), ("kill", "exited")):  # fmt: skip
                if (tool == "podman" or "shut-door" in rest) and word in rest:
                    self.state = state
        return runtime.Completed(tuple(argv), 0, out, "")

    def pcopy(self, verb, *words):
        """The helper's store of disks: a folder for each snapshot."""
        flags = dict(word[2:].split("=", 1) for word in words if word.startswith("--"))
        store, *names = [Path(word) if n == 0 else word for n, word in enumerate(word for word in words if not word.startswith("--"))]
        name = flags.get("name") or (names[0] if names else "")
        if verb != "list":
            if any(word in verb + " " + name for word in self.fails):
                raise runtime.HandoverError("pcopy snapshot " + verb + " failed: as the test wants it")
            self.commands.append(("pcopy snapshot {0} {1}".format(verb, name), self.state))
        if verb == "list":
            return json.dumps({"snapshots": [{"name": each.name} for each in sorted(store.iterdir()) if each.is_dir()]})
        volume, _equals, path = flags.get("volume", "").partition("=")
        if verb == "take":
            (store / name).mkdir(parents=True)
            (store / "store.json").write_text("{}")
            shutil.copy2(path, store / name / volume)
            return json.dumps({"frozen_ms": 12.3, "volumes": [{"name": volume, "stored": 4}]})
        if verb == "restore":
            assert not os.path.exists(path)
            shutil.copy2(store / name / volume, path)
            return json.dumps({"volumes": []})
        shutil.rmtree(store / name)
        return ""

    @property
    def volumes(self):
        return [{"name": "pgdata", "image": str(self.folder / "pgdata.img"), "mountpoint": "/mnt", "fstype": "ext4", "options": "discard", "size": 4}]


@pytest.fixture
def host(monkeypatch, tmp_path):
    fake = Host(tmp_path)
    monkeypatch.setattr(runtime.Runtime, "run", lambda self, argv, accept=(0,), stdin=None, timeout=None: fake.run(argv, accept, stdin, timeout))
    monkeypatch.setattr(runtime.Runtime, "find", lambda self, tool: "/usr/bin/" + tool)
    monkeypatch.setattr(snapshot.Pcopy, "check_installed", lambda self: None)
    return fake


@pytest.fixture
def act(host):
    def run(state="present", check=False, **params):
        given = {"workload": "shop", "name": "before", "state": state, "memory": False, "volumes": host.volumes, "root": str(host.folder / "root"),
                 "timeout": 60, **params}  # fmt: skip
        return snapshot.Snapshot(types.SimpleNamespace(params=given, check_mode=check)).run()

    return run


def kept(host):
    return {path.name: path for path in (host.folder / "root" / "shop").glob("*")}


def disks(host):
    return {path.name: path for path in (host.folder / "root" / ".disks" / "shop").glob("*") if path.is_dir()}


def test_the_volumes_are_taken_while_it_runs(host, act):
    result = act()
    assert result["changed"]
    assert host.commands == [("pcopy snapshot take before", "running")]
    assert (disks(host)["before"] / "pgdata").read_text() == "data"
    found = result["snapshot"]
    assert (found["container"], found["paused_ms"], found["size"], found["disks"]) == ("111", 12, 4, True)


def test_disks_that_a_killed_run_left_are_taken_again(host, act):
    act()
    shutil.rmtree(host.folder / "root" / "shop" / "before")  # it was killed before there was a record
    (host.folder / "pgdata.img").write_text("later")
    host.commands.clear()
    act()
    assert [verb for verb, _state in host.commands] == ["pcopy snapshot delete before", "pcopy snapshot take before"]
    assert (disks(host)["before"] / "pgdata").read_text() == "later"


def test_disks_without_a_record_are_removed(host, act):
    act()
    shutil.rmtree(host.folder / "root" / "shop" / "before")
    assert act("absent")["changed"]
    assert not disks(host)
    assert not act("absent")["changed"]


def test_an_earlier_snapshot_of_whole_files_is_gone_back_to(host, act):
    folder = host.folder / "root" / "shop" / "before"
    folder.mkdir(parents=True)
    (folder / "pgdata.img").write_text("old")
    record = {"name": "before", "taken": "2026-11-21T20:30:00Z", "container": "111", "memory": False, "running": True, "size": 3, "volumes": host.volumes}
    (folder / "snapshot.json").write_text(json.dumps(record))
    act("staged")
    assert (host.folder / "pgdata.img.rollback").read_text() == "old"
    assert act("absent")["changed"]


def test_the_memory_is_of_the_same_moment(host, act):
    act(memory=True)
    verbs = [verb for verb, _state in host.commands]
    assert verbs[0] == "podman container checkpoint --keep --tcp-established --file-locks shop"
    assert verbs[-1] == "podman container restore --tcp-established --file-locks shop"
    assert {state for verb, state in host.commands if verb.startswith("cp")} == {"exited"}
    assert (kept(host)["before"] / "checkpoint" / "pages.img").read_text() == "memory"
    assert (kept(host)["before"] / "layer" / "file").read_text() == "layer"


def test_nobody_new_gets_in_while_its_memory_is_dumped(host, act):
    host.namespace = "/run/netns/netns-1"
    act(memory=True)
    (dump,) = (verb for verb, _state in host.commands if "checkpoint" in verb and not verb.startswith("cp "))
    assert dump == (
        "pcopy internal shut-door --namespace=/run/netns/netns-1 -- /usr/bin/podman container checkpoint --keep --tcp-established --file-locks shop"
    )
    assert host.state == "running"


def test_it_goes_on_when_copying_fails_and_no_half_is_left(host, act):
    for params, fails in (({}, "take"), ({"memory": True}, "cp pgdata.img")):
        host.fails = (fails,)
        with pytest.raises(runtime.HandoverError, match="as the test wants it"):
            act(**params)
        assert host.state == "running"
        assert not kept(host)


def test_both_reasons_are_told_when_it_does_not_go_on_either(host, act):
    host.fails = "sync", "container restore"
    with pytest.raises(runtime.HandoverError, match="^sync .* as the test wants it; and shop does not run on: podman container restore .* failed"):
        act(memory=True)
    assert not list((host.folder / "root" / "shop").iterdir())


def test_a_dump_that_fails_leaves_it_running(host, act):
    host.fails = ("checkpoint",)
    with pytest.raises(runtime.HandoverError, match="^podman container checkpoint .* as the test wants it$"):
        act(memory=True)
    assert host.commands == []
    assert not kept(host)


def test_going_back_begins_with_whole_copies_or_not_at_all(host, act):
    act()
    host.commands.clear()
    host.fails = ("restore",)
    (host.folder / "pgdata.img.rollback").write_text("a half")
    with pytest.raises(runtime.HandoverError, match="as the test wants it"):
        act("staged")
    assert not (host.folder / "pgdata.img.rollback").exists()
    assert (host.state, host.commands) == ("running", [])


def test_a_layer_that_cannot_be_removed(host, act, monkeypatch):
    act(memory=True)
    host.commands.clear()

    def refuse(path):
        raise PermissionError(1, "Operation not permitted", path)

    monkeypatch.setattr(snapshot.shutil, "rmtree", refuse)
    with pytest.raises(runtime.HandoverError, match="layer cannot be removed: Operation not permitted"):
        act("restored", memory=True)
    assert host.commands == []


def test_what_is_there_is_not_taken_again(host, act):
    act()
    host.commands.clear()
    assert not act()["changed"]
    assert host.commands == []


def test_check_mode_touches_nothing(host, act):
    assert act(check=True)["changed"]
    assert host.commands == []
    assert not kept(host)


def test_going_back(host, act):
    act()
    (host.folder / "pgdata.img").write_text("later")
    host.commands.clear()
    act("staged")
    # What is in use is untouched; the copy is complete before anything stops.
    assert (host.folder / "pgdata.img").read_text() == "later"
    assert (host.folder / "pgdata.img.rollback").read_text() == "data"
    assert host.commands == [("pcopy snapshot restore before", "running"), ("podman stop shop", "running"), ("podman wait shop", "exited")]
    act("restored")
    assert host.state == "running"


def test_going_back_with_the_memory(host, act):
    act(memory=True)
    (host.folder / "layer" / "late").write_text("x")
    shutil.rmtree(host.static / "checkpoint")
    host.state = "exited"
    act("restored", memory=True)
    assert (host.static / "checkpoint" / "pages.img").read_text() == "memory"
    assert os.listdir(host.folder / "layer") == ["file"]
    assert host.commands[-1][0] == "podman container restore --tcp-established --file-locks shop"


@pytest.mark.parametrize(
    ("taken", "asked", "change", "sentence"),
    [
        ({}, {"name": "after"}, {}, "there is no snapshot after in .*: name one of before"),
        ({}, {"memory": True}, {}, "the snapshot before of shop has no memory: go back without it"),
        ({"memory": True}, {"memory": True}, {"identifier": "222"}, "the memory in the snapshot before is of an earlier container named shop"),
        ({}, {"volumes": []}, {}, "shop does not have the image volume .*pgdata.img any more, which the snapshot before is of"),
        ({}, {"name": "../x"}, {}, "name: '../x' is no name"),
    ],
)
def test_where_there_is_no_way_back(host, act, taken, asked, change, sentence):
    act(**taken)
    for key, value in change.items():
        setattr(host, key, value)
    host.commands.clear()
    with pytest.raises(runtime.HandoverError, match=sentence):
        act("staged", **asked)
    assert host.commands == []


@pytest.mark.parametrize(
    ("state", "params", "sentence"),
    [
        ("paused", {}, "shop is paused: start it or stop it first"),
        ("exited", {"memory": True}, "shop is exited: start it first"),
        ("running", {"volumes": []}, "shop has no image volume to take a snapshot of"),
        ("running", {"workload": "other"}, "there is no container named other on this host"),
    ],
)
def test_what_cannot_be_taken(host, act, state, params, sentence):
    host.state = state
    with pytest.raises(runtime.HandoverError, match=sentence):
        act(**params)
    assert host.commands == []


def test_too_little_room(host, act, monkeypatch):
    monkeypatch.setattr(snapshot.host, "free_space", lambda path: 0)
    with pytest.raises(runtime.HandoverError, match="the copy of shop takes .*, and 0 .* is free in .*/root: free "):
        act()
    assert host.commands == []


def test_too_little_room_beside_the_images(host, act, monkeypatch):
    act()
    host.commands.clear()
    monkeypatch.setattr(snapshot.host, "free_space", lambda path: 0 if path == str(host.folder) else 2**40)
    with pytest.raises(runtime.HandoverError, match="the copy of shop takes .* is free in {0}: free ".format(host.folder)):
        act("staged")
    assert host.commands == []


def test_removed_and_listed(host, act):
    act()
    act(name="later")
    listed = snapshots.Snapshots(str(host.folder / "root"), "shop").all()
    assert sorted(each["name"] for each in listed) == ["before", "later"]
    assert act("absent")["changed"]
    assert not act("absent")["changed"]
    assert list(kept(host)) == list(disks(host)) == ["later"]
