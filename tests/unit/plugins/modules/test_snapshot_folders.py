# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Snapshots of a container whose volume is a plain folder."""

from __future__ import annotations

import json
import os
import shutil
import types

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._core import loop, runtime
from ansible_collections.livefleet.handover.plugins.module_utils._podman.copies import one_snapshot, snapshot_group


class Host:
    """A host with one container; the helper's answers, and what it was asked."""

    def __init__(self, folder):
        self.folder = folder
        self.state = "running"
        self.users = "shop\n"
        self.options = {}
        self.asked = []
        self.warned = []
        self.bound = []
        for name, text in (("_data/file", "plain"), ("static/checkpoint/pages.img", "memory"), ("layer/file", "layer")):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)

    def run(self, argv, accept=(0,), stdin=None, timeout=None):
        tool, *rest = [str(word) for word in argv]
        tool, out = os.path.basename(tool), ""
        if "--filter" in rest:
            out = self.users
        elif rest[:2] == ["ps", "--all"]:
            out = json.dumps([{"Id": "111", "Names": ["shop"], "State": self.state}])
        elif rest[:2] == ["container", "inspect"]:
            out = json.dumps([{
                "Id": "111", "Name": "shop", "State": {"Status": self.state, "Running": self.state == "running"}, "NetworkSettings": {},
                "StaticDir": str(self.folder / "static"), "GraphDriver": {"Data": {"UpperDir": str(self.folder / "layer")}},
                "Mounts": [{"Type": "volume", "Name": "data", "Source": str(self.folder / "_data"), "Destination": "/data"}],
            }])  # fmt: skip
        elif rest[:2] == ["volume", "ls"]:
            out = json.dumps([{"Name": "data", "Options": self.options}])
        elif rest[:1] == ["info"]:
            out = json.dumps({"host": {"networkBackend": "cni", "networkBackendInfo": {"path": "/usr/lib/podman/cni"}}})
        elif tool == "pcopy" and rest[0] == "snapshot":
            out = self.pcopy(*[word for word in rest[1:] if word != "--json"], stdin=stdin)
        elif tool == "cp":
            (shutil.copytree if os.path.isdir(rest[-2]) else shutil.copy2)(rest[-2], rest[-1])
        elif tool == "mount":
            self.bound.append(loop.Mount("0:1", rest[-1], "ext4", rest[-2]))
        for word, state in (("checkpoint", "exited"), ("restore", "running"), ("start", "running"), ("stop", "exited"), ("kill", "exited")):
            if tool in ("podman", "env") and word in rest:
                self.state = state
        return runtime.Completed(tuple(argv), 0, out, "")

    def pcopy(self, verb, *words, stdin=None):
        if verb == "wave":
            (part,) = json.loads(stdin)["parts"]
            os.makedirs(part["store"], exist_ok=True)
            with open(os.path.join(part["store"], "store.json"), "w", encoding="utf-8"):
                pass
            self.asked.append((part["volumes"], part["folders"], part["cgroup"]))
            for word in words:
                if word.startswith("--halt="):  # the dump, and what is beside it
                    shutil.copytree(self.folder / "static" / "checkpoint", self.folder / "static" / "handover-backup" / "memory" / "checkpoint")
            return json.dumps({"snapshots": [{"frozen_ms": 12.3, "volumes": [{"name": "data", "stored": 4}]}]})
        if verb == "list":
            return json.dumps({"snapshots": [{"name": "before"}]})
        if verb == "show":
            return json.dumps({"data": {"data": 4}})
        self.asked.append((verb, *words))
        return json.dumps({"volumes": []})


@pytest.fixture
def host(monkeypatch, tmp_path):
    fake = Host(tmp_path)
    monkeypatch.setattr(runtime.Runtime, "run", lambda self, argv, accept=(0,), stdin=None, timeout=None: fake.run(argv, accept, stdin, timeout))
    monkeypatch.setattr(runtime.Runtime, "find", lambda self, tool: "/usr/bin/" + tool)
    monkeypatch.setattr(loop, "read_mounts", lambda proc="/proc", pid="self": list(fake.bound))
    monkeypatch.setattr(one_snapshot.Pcopy, "check_installed", lambda self: None)
    return fake


@pytest.fixture
def act(host):
    plain = {"name": "data", "path": str(host.folder / "_data"), "shared_with": []}
    mount = {"read_only": False, "image_volume": None}
    mounts = [
        {"type": "volume", "name": "data", "destination": "/data", "source": plain["path"], "directory_volume": plain, **mount},
        {"type": "bind", "name": "", "destination": "/srv", "source": "/srv/shop", "directory_volume": None, **mount},
    ]

    def run(state="present", **params):
        configuration = {"name": "shop", "running": True, "cgroup": "/sys/fs/cgroup/shop", "mounts": mounts}
        given = {"workload": "shop", "name": "before", "state": state, "memory": False, "volumes": [], "root": str(host.folder / "root"),
                 "timeout": 60, "keep": False, "track": False, "configuration": configuration, **params}  # fmt: skip
        return snapshot_group.act(types.SimpleNamespace(params=given, check_mode=False, warn=host.warned.append))

    return run


def folder(host):
    return [{"name": "data", "path": str(host.folder / "_data")}]


def test_it_is_taken_while_the_container_stands_still_for_a_moment(host, act):
    found = act()["snapshot"]
    assert host.asked == [([], folder(host), "/sys/fs/cgroup/shop")]
    assert (found["folders"], found["volumes"], found["disks"]) == (folder(host), [], True)
    assert host.warned == ["/srv (/srv/shop) is no part of the snapshot of shop: put it in a volume of its own"]


def test_going_back(host, act):
    act()
    host.asked.clear()
    act("staged", keep=True)
    assert host.asked == [([], folder(host), "/sys/fs/cgroup/shop")], "what is there is kept"
    assert host.state == "exited"
    act("placed")
    (words,) = host.asked[1:]
    assert words[:3] == ("restore", "--current", "--folder=data={0}".format(host.folder / "_data"))
    act("restored")
    assert host.state == "running"


def test_a_half_is_not_kept(host, act):
    act()
    host.asked.clear()
    os.rename(host.folder / "_data", host.folder / "_data.handover-rollback")
    act("staged", keep=True)
    assert host.asked == []


def test_a_volume_that_is_another_containers_too_by_now(host, act):
    act()
    host.users = "shop\nweb\n"
    with pytest.raises(runtime.HandoverError, match="^the volume data of shop is web's, too, by now, which would find other files in it"):
        act("staged")
    assert host.state == "running"


def test_a_volume_that_is_an_image_volume_by_now(host, act):
    act()
    host.options = {"type": "none", "o": "bind", "device": "/var/lib/handover/mnt/data"}
    with pytest.raises(runtime.HandoverError, match="^the volume data of shop is an image volume by now, and a plain one in the snapshot before: make a new"):
        act("staged")
    assert host.state == "running"


def test_with_the_memory_the_halt_is_the_moment(host, act):
    act(memory=True)
    assert host.asked == [([], folder(host), "")], "its cgroup is gone by then"


def test_a_snapshot_of_whole_copies(host, act):
    """As one with memory was before its disks were in a store."""
    act(memory=True)
    place = host.folder / "root" / "shop" / "before"
    record = json.loads((place / "snapshot.json").read_text())
    (place / "snapshot.json").write_text(json.dumps({**record, "disks": False}))
    shutil.copytree(host.folder / "_data", place / "data.tree")
    (host.folder / "_data" / "late").write_text("x")
    act("staged", memory=True)
    act("placed", memory=True)
    assert os.listdir(host.folder / "_data") == ["file"]
    assert not [path for path in host.folder.rglob("*") if "rollback" in path.name]
    place = host.folder / "root" / ".mounted" / "shop" / "before" / "data"
    assert act("mounted")["mountpoints"] == {"data": str(place)}
    assert [(each.mountpoint, each.fstype) for each in host.bound] == [(str(place), "ext4")]
    assert os.listdir(str(place) + ".img") == ["file"]
