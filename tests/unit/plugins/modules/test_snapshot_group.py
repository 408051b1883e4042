# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Snapshots of several containers: of one moment, and all or none."""

from __future__ import annotations

import json
import os
import types

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._core import runtime
from ansible_collections.livefleet.handover.plugins.module_utils._core.snapshot_records import Snapshots
from ansible_collections.livefleet.handover.plugins.module_utils._podman.copies import one_snapshot, snapshot_group


class Host:
    """A pod of two containers with a volume each, one container without any, and the infra container."""

    def __init__(self, folder):
        self.folder = folder
        self.commands = []
        self.wave = {}
        self.fails = ""
        self.warned = []
        self.states = {"db": "running", "web": "running", "mail": "running", "infra": "running"}

    def run(self, argv, accept=(0,), stdin=None, timeout=None):
        tool, *rest = [str(word) for word in argv]
        out = ""
        if rest[:2] == ["ps", "--all"]:
            out = json.dumps(
                [{"Id": name * 3, "Names": [name], "State": state, "PodName": "office", "IsInfra": name == "infra"} for name, state in self.states.items()]
            )
        elif rest[:2] == ["container", "inspect"]:
            name = rest[-1][: len(rest[-1]) // 3]
            state = self.states[name]
            out = json.dumps([{"Id": name * 3, "Name": name, "State": {"Status": state, "Running": state == "running"}, "NetworkSettings": {}, "Mounts": []}])
        elif rest[:1] in (["stop"], ["start"], ["wait"]):
            self.commands.append(" ".join(rest))
            self.states[rest[-1]] = {"stop": "exited", "start": "running"}.get(rest[0], self.states[rest[-1]])
        elif rest[:2] == ["volume", "ls"]:
            out = "[]"
        else:
            assert os.path.basename(tool) == "pcopy" and rest[0] == "snapshot"
            words = [word for word in rest[1:] if word != "--json"]
            if words[0] == "show":
                return runtime.Completed(tuple(argv), 0, json.dumps({"data": {"dbdata": 4, "webdata": 4}}), "")
            if words[0] == "restore":
                out = '{"volumes": []}'
            self.commands.append(" ".join([words[0], *(word for word in words[1:] if words[0] == "restore" and word.startswith("--volume"))]))
            if rest[1] == "wave":
                if self.fails:
                    raise runtime.HandoverError(self.fails)
                self.wave = json.loads(stdin)
                out = json.dumps({"snapshots": [{"frozen_ms": 12.3, "volumes": [{"stored": 4}]} for _part in self.wave["parts"]]})
        return runtime.Completed(tuple(argv), 0, out, "")

    @property
    def group(self):
        def member(name, *volumes):
            mounts = [{"type": "volume", "image_volume": {"name": each, "image": str(self.folder / each), "mountpoint": "/mnt/" + each}} for each in volumes]
            bind = {"type": "bind", "destination": "/srv", "source": "/srv/" + name}
            return {"name": name, "infra": name == "infra", "mounts": [*mounts, *mounts, bind]}

        for name in ("dbdata", "webdata"):
            (self.folder / name).write_text("data")
        return {"name": "office", "members": [member("infra"), member("db", "dbdata"), member("web", "webdata"), member("mail")]}


@pytest.fixture
def host(monkeypatch, tmp_path):
    fake = Host(tmp_path)
    monkeypatch.setattr(runtime.Runtime, "run", lambda self, argv, accept=(0,), stdin=None, timeout=None: fake.run(argv, accept, stdin, timeout))
    monkeypatch.setattr(runtime.Runtime, "find", lambda self, tool: "/usr/bin/" + tool)
    monkeypatch.setattr(one_snapshot.Pcopy, "check_installed", lambda self: None)
    return fake


@pytest.fixture
def act(host):
    def run(state="present", check=False, **params):
        given = {"workload": "office", "name": "before", "state": state, "memory": False, "volumes": [], "root": str(host.folder / "root"),
                 "timeout": 60, "keep": False, "track": True, "configuration": host.group, **params}  # fmt: skip
        return snapshot_group.act(types.SimpleNamespace(params=given, check_mode=check, warn=host.warned.append))

    return run


def records(host, name="before"):
    each = {workload: Snapshots(str(host.folder / "root"), workload) for workload in ("db", "web", "mail")}
    return {workload: kept.read(name) for workload, kept in each.items() if kept.has(name)}


def test_all_are_taken_by_one_command(host, act):
    result = act()
    assert result["changed"] and result["left_out"] == ["mail"]
    assert host.commands == ["wave"]
    stores = [os.path.relpath(part["store"], host.folder / "root") for part in host.wave["parts"]]
    assert stores == [".disks/db", ".disks/web"]
    assert [part["volumes"] for part in host.wave["parts"]] == [[{"name": each, "path": str(host.folder / each)}] for each in ("dbdata", "webdata")]
    kept = records(host)
    assert sorted(kept) == ["db", "web"]
    assert {(record["taken"], record["paused_ms"], tuple(record["together"])) for record in kept.values()} == {(kept["db"]["taken"], 12, ("db", "web"))}
    configuration = host.folder / "root" / "web" / "before" / "configuration.json"
    assert json.loads(configuration.read_text())["name"] == "web"
    assert not act()["changed"]


def test_check_mode_takes_none(host, act):
    assert act(check=True)["changed"]
    assert (host.commands, records(host)) == ([], {})


def test_all_or_none(host, act):
    host.fails = "pcopy: no room"
    with pytest.raises(runtime.HandoverError, match="no room"):
        act()
    assert records(host) == {}
    host.fails = ""
    act()
    Snapshots(str(host.folder / "root"), "web").forget("before")
    with pytest.raises(runtime.HandoverError, match="^db has a snapshot before and others of the containers have none: they would be of two moments"):
        act()
    gone = act("absent")
    assert (gone["changed"], gone["left_out"]) == (True, [])
    assert records(host) == {}
    assert act()["changed"]


def test_a_record_that_cannot_be_written_leaves_none(host, act, monkeypatch):
    finish = Snapshots.finish

    def full(self, name, record):
        if self.folder.endswith("web"):
            raise OSError(28, "No space left on device")
        finish(self, name, record)

    monkeypatch.setattr(Snapshots, "finish", full)
    with pytest.raises(OSError, match="No space left"):
        act()
    assert records(host) == {}


def test_all_are_stopped_before_the_first_goes_back(host, act):
    act()
    host.commands.clear()
    result = act("staged", keep=True)
    assert [volume["name"] for volume in result["volumes"]] == ["dbdata", "webdata"]
    assert host.commands == ["wave", "stop db", "wait db", "stop web", "wait web"], "what is there is kept as it is at one moment"
    assert len(host.wave["parts"]) == 2 and {part["name"][:5] for part in host.wave["parts"]} == {"undo-"}
    act("placed")
    assert host.commands[5:] == ["restore --volume={0}={1}".format(each, host.folder / each) for each in ("dbdata", "webdata")]
    act("restored")
    assert host.commands[7:] == ["start db", "start web"]
    assert host.states == {"db": "running", "web": "running", "mail": "running", "infra": "running"}


def test_nothing_is_stopped_where_one_cannot_go_back(host, act):
    act()
    host.commands.clear()
    path = host.folder / "root" / "web" / "before" / "snapshot.json"
    record = json.loads(path.read_text())
    record["volumes"][0]["size"] = 3  # it has been grown since
    path.write_text(json.dumps(record))
    with pytest.raises(runtime.HandoverError, match="the volume webdata has"):
        act("staged", keep=True)
    assert host.commands == []
    Snapshots(str(host.folder / "root"), "web").forget("before")
    act(name="other")
    assert [volume["name"] for volume in act("staged", name="other")["volumes"]] == ["dbdata", "webdata"]


def test_snapshots_of_two_moments_are_not_gone_back_to_together(host, act):
    act()
    path = host.folder / "root" / "web" / "before" / "snapshot.json"
    record = json.loads(path.read_text())
    del record["together"]
    path.write_text(json.dumps(record))
    host.commands.clear()
    with pytest.raises(runtime.HandoverError, match="^the snapshots before of db and web are not of one moment, or of more containers"):
        act("staged")
    assert host.commands == []


@pytest.mark.parametrize(
    ("asked", "states", "sentence"),
    [
        ({"memory": True}, {}, "^db and mail and web are 3 containers: memory is taken of one at a time"),
        ({"state": "staged", "memory": True}, {}, "^db and mail and web are 3 containers: memory is taken of one at a time"),
        ({"state": "staged"}, {}, "^none of db, mail, web has a snapshot before"),
        ({"configuration": {"members": [{"name": "mail"}]}}, {}, "^none of db, mail, web has a volume"),
        ({}, {"web": "paused"}, "^web is paused: start it or stop it first"),
    ],
)
def test_what_cannot_be_done(host, act, asked, states, sentence):
    host.states.update(states)
    with pytest.raises(runtime.HandoverError, match=sentence):
        act(**asked)
    assert (host.commands, records(host)) == ([], {})


def test_too_little_room_for_all_of_them(host, act, monkeypatch):
    monkeypatch.setattr(one_snapshot.host, "free_space", lambda path: 0)
    with pytest.raises(runtime.HandoverError, match="the copy of db and web takes"):
        act()
    assert (host.commands, records(host)) == ([], {})
