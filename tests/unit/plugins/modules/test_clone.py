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
from ansible_collections.livefleet.handover.plugins.module_utils._core import clones, pcopy, room, runtime
from ansible_collections.livefleet.handover.plugins.module_utils._podman.copies import clone_maker, clone_parts

HELP = "Options:\n" + "".join(f"      --{name} string   x\n" for name in ("name", "pull", "network", "volume", "label", "hostname", "root"))


class Host:
    """A host with a snapshot of the container shop, podman, and the helper's store; it notes what is done."""

    def __init__(self, folder):
        self.folder = folder
        self.root = folder / "root"
        self.containers = {}
        self.podman_volumes = {"pgdata": {}}
        self.mounted = []
        self.commands = []
        self.fails = ""
        self.stored = ["before"]
        self.images = [{"Id": "abc", "Names": ["localhost/shop:1"]}]
        (folder / "images").mkdir()
        (self.root / ".disks/shop").mkdir(parents=True)
        (self.root / ".disks/shop/store.json").write_text("{}")

    def take(self, name="before", memory=False, configuration=None, fstype="ext4"):
        place = self.root / "shop" / name
        place.mkdir(parents=True)
        volume = {"name": "pgdata", "image": str(self.folder / "images/pgdata.img"), "mountpoint": str(self.folder / "mnt/pgdata"), "fstype": fstype,
                  "options": "rw", "size": 4}  # fmt: skip
        (place / "snapshot.json").write_text(json.dumps({"name": name, "disks": not memory, "size": 4, "memory": memory, "volumes": [volume]}))
        if memory:
            (place / "pgdata.img").write_text("data")
            (place / "layer").mkdir()
            (place / "layer" / "file").write_text("layer")
        found = {
            "name": "shop", "network_mode": "bridge", "uts_mode": "private", "hostname": "x", "ports": [], "environment": [], "labels": {}, "devices": [],
            "image": {"id": "abc", "name": "localhost/shop:1"}, "networks": [{"name": "podman", "ip": "10.88.0.2", "ip6": "", "mac": "", "interface": "eth0"}],
            "mounts": [{"type": "volume", "name": "pgdata", "destination": "/data", "directory": volume["mountpoint"], "image_volume": volume, "volume": {}}],
            "create_command": ["podman", "run", "--name=shop", "--volume=pgdata:/data", "localhost/shop:1"],
        }  # fmt: skip
        (place / "configuration.json").write_text(json.dumps(found if configuration is None else configuration))

    def run(self, argv, accept=(0,), stdin=None, timeout=None):
        tool, *rest = [str(word) for word in argv]
        tool, out = os.path.basename(tool), ""
        if tool == "podman":
            out = self.podman(*rest)
        elif tool == "pcopy":
            out = self.pcopy(*[word for word in rest[1:] if word != "--json"])
        elif tool == "ip":
            out = "[]"
        else:
            self.note(" ".join([tool, *rest[:1]]))
            if tool == "cp":
                if os.path.isdir(rest[-2]):
                    shutil.copytree(rest[-2], rest[-1], dirs_exist_ok=True)
                else:
                    shutil.copy2(rest[-2], rest[-1])
        return runtime.Completed(tuple(argv), 0, out, "")

    def podman(self, *words):
        if words[-1] == "--help":
            return HELP
        if words[0] == "ps":
            return json.dumps([{"Id": name, "Names": [name], "State": "running"} for name in self.containers])
        if words[:2] == ("container", "inspect"):
            return json.dumps([self.containers[name] for name in words[2:]])
        if words[:2] == ("network", "ls") or words[:2] == ("network", "inspect"):
            return json.dumps([{"name": "podman", "driver": "bridge", "subnets": [{"subnet": "10.88.0.0/16"}]}])
        if words[:2] == ("volume", "ls"):
            return json.dumps([{"Name": name, "Mountpoint": str(self.folder / "volumes" / name)} for name in self.podman_volumes])
        if words[:2] == ("image", "ls"):
            return json.dumps(self.images)
        self.note("podman " + " ".join(word for word in words[:2] if "=" not in word))
        if words[0] == "create":
            name = next(word[7:] for word in words if word.startswith("--name="))
            labels = dict(word[8:].split("=", 1) for word in words if word.startswith("--label="))
            upper = self.folder / "layers" / name
            upper.mkdir(parents=True)
            self.containers[name] = {"Id": name, "Name": name, "Config": {"Labels": labels}, "GraphDriver": {"Data": {"UpperDir": str(upper)}},
                                     "NetworkSettings": {"Networks": {"podman": {"IPAddress": "10.88.0.3"}}}}  # fmt: skip
        if words[:2] == ("volume", "create"):
            self.podman_volumes[words[-1]] = {}
            (self.folder / "volumes" / words[-1]).mkdir(parents=True)
        if words[:2] == ("volume", "rm"):
            self.podman_volumes.pop(words[-1])
            shutil.rmtree(self.folder / "volumes" / words[-1])
        if words[0] == "init":  # podman takes a plain volume for a new one
            for place in (self.folder / "volumes").iterdir():
                place.chmod(0o700)
                (place / "of the image").write_text("x")
        if words[0] == "rm":
            self.containers.pop(words[-1], None)
            shutil.rmtree(self.folder / "layers" / words[-1], ignore_errors=True)
        return ""

    def pcopy(self, verb, *words):
        if verb == "list":
            return json.dumps({"snapshots": [{"name": name} for name in self.stored]})
        if verb == "show":
            return json.dumps({"data": {"pgdata": 4}})
        self.note("pcopy " + verb)
        path = next(word for word in words if word.startswith(("--volume=", "--folder="))).partition("=")[2].partition("=")[2]
        if "--folder" in " ".join(words):
            Path(path).chmod(0o2750)
            path += "/log"
        assert not os.path.exists(path), "a new file is in nobody's use"
        with open(path, "w", encoding="ascii") as out:
            out.write("data")
        return "{}"

    def note(self, verb):
        self.commands.append(verb)
        if self.fails and self.fails in verb:
            raise runtime.HandoverError(verb + " failed: as the test wants it")

    def in_turn(self, module, table, steps):
        for step in steps:
            (options,) = step.values()
            if self.fails and self.fails == options["state"]:
                return {"msg": "as the test wants it"}
            self.commands.append("image_volume " + options["state"])
            if options["state"] == "absent":
                assert options["force"]
                self.podman_volumes.pop(options["podman_volume"], None)
                if os.path.exists(options["image"]):
                    os.unlink(options["image"])
            else:
                self.podman_volumes[options["podman_volume"]] = {}
        return {}

    @property
    def left(self):
        """All that a clone could leave."""
        files = [path.name for path in (self.folder / "images").iterdir()]
        return sorted([*files, *self.containers, *(set(self.podman_volumes) - {"pgdata"}), *(path.name for path in self.root.glob(".clones/*"))])


@pytest.fixture
def host(monkeypatch, tmp_path):
    fake = Host(tmp_path)
    monkeypatch.setattr(runtime.Runtime, "run", lambda self, argv, accept=(0,), stdin=None, timeout=None: fake.run(argv, accept, stdin, timeout))
    monkeypatch.setattr(runtime.Runtime, "find", lambda self, tool: "/usr/bin/" + tool)
    monkeypatch.setattr(clone_parts, "in_turn", fake.in_turn)
    monkeypatch.setattr(clones, "LOCKS", str(tmp_path / "run/locks"))
    monkeypatch.setattr(pcopy.Pcopy, "check_installed", lambda self: None)
    return fake


@pytest.fixture
def act(host):
    def run(state="present", check=False, **params):
        given = {"name": "try", "workload": "shop", "snapshot": "before", "state": state, "addresses": [], "start": True, "own_name": False, "memory": False,
                 "root": str(host.root), "timeout": 60, **params}  # fmt: skip
        return clone_maker.CloneMaker(types.SimpleNamespace(params=given, check_mode=check)).run()

    return run


def refused(act, text, **params):
    with pytest.raises(runtime.HandoverError, match=text):
        act(**params)


ALL = ["try", "try-pgdata", "try-pgdata.img", "try.json"]


def test_it_is_made_started_and_removed(host, act):
    host.take()
    result = act()
    assert host.commands == ["pcopy restore", "image_volume mounted", "podman create", "podman start try"]
    assert (result["changed"], result["addresses"], result["clone"]["whole"]) == (True, ["10.88.0.3"], True)
    assert host.left == ALL
    assert not act()["changed"]
    assert act("absent")["changed"]
    assert host.left == []
    assert not act("absent")["changed"]


def test_check_mode_makes_nothing(host, act):
    host.take()
    result = act(check=True)
    assert result["changed"] and "--volume=try-pgdata:/data" in result["command"]
    assert (host.commands, host.left) == ([], [])
    act()
    assert act("absent", check=True)["changed"]
    assert host.left == ALL


def test_the_layer_of_a_snapshot_with_memory_is_the_clones(host, act):
    host.take(memory=True)
    act(start=False)
    assert (host.folder / "layers/try/file").read_text() == "layer"
    assert (host.folder / "images/try-pgdata.img").read_text() == "data"
    assert "podman start try" not in host.commands


def test_a_plain_volume_is_filled_before_podman_sees_it_and_stays_so(host, act):
    host.take()
    place = host.root / "shop" / "before"
    record, configuration = (json.loads((place / name).read_text()) for name in ("snapshot.json", "configuration.json"))
    record["folders"] = [{"name": "logs", "path": "/somewhere/else"}]
    plain = {"name": "logs", "path": "/somewhere/else", "anonymous": False, "shared_with": []}
    mount = {"type": "volume", "name": "logs", "destination": "/logs", "image_volume": None, "volume": {}, "directory": "", "directory_volume": plain}
    configuration["mounts"].append(mount)
    configuration["create_command"].insert(-1, "--volume=logs:/logs")
    (place / "snapshot.json").write_text(json.dumps(record))
    (place / "configuration.json").write_text(json.dumps(configuration))
    result = act()
    assert "--volume=try-logs:/logs" in result["command"]
    folder = host.folder / "volumes" / "try-logs"
    assert (os.listdir(folder), folder.stat().st_mode & 0o7777) == (["log"], 0o2750)
    done = [each for each in host.commands if "pcopy" in each or each.split()[1] in ("create", "init", "container", "start")]
    assert done[-5:] == ["pcopy restore", "podman create", "podman init try", "podman container cleanup", "podman start try"]
    act("absent")
    assert host.left == [] and not folder.exists()


def test_xfs_gets_another_identity(host, act):
    host.take(fstype="xfs")
    act()
    assert host.commands[:5] == ["pcopy restore", "mount -t", f"umount {host.commands[2][7:]}", "xfs_admin -U", "image_volume mounted"]


def test_the_container_itself_made_again_is_no_clone(host, act):
    """Its data would go with the clone. Its file system keeps its identity: nothing else has it."""
    host.take(fstype="xfs")
    host.podman_volumes.clear()
    refused(act, "shop is the name of the container itself, which may run on another host: .* backup_restore", name="shop")
    assert host.commands == []
    assert act(name="shop", own_name=True)["clone"]["volumes"][0]["image"] == str(host.folder / "images/pgdata.img")
    assert not [verb for verb in host.commands if "xfs_admin" in verb]
    refused(act, "shop is no clone of a snapshot below", name="shop", state="absent")
    assert "pgdata.img" in host.left


def test_no_later_run_clears_up_the_volumes_of_the_container_itself(host, act, monkeypatch):
    """It may have been killed when the container had begun to write."""
    host.take()
    host.podman_volumes.clear()
    real = host.podman

    def podman(*words):
        if words[0] in ("create", "start") and words[-1] != "--help":
            seen.append(clones.Clones(str(host.root)).read("shop"))
        return real(*words)

    seen = []
    monkeypatch.setattr(host, "podman", podman)
    act(name="shop", own_name=True)
    assert seen == [None, None]
    host.containers.clear()
    refused(act, "podman has a volume named pgdata on this host: make the container on it by what made it first", name="shop", own_name=True)
    assert "pgdata.img" in host.left


def test_the_container_itself_stays_if_it_does_not_start(host, act):
    host.take()
    host.podman_volumes.clear()
    host.fails = "podman start"
    refused(act, "as the test wants it", name="shop", own_name=True)
    assert host.left == ["pgdata.img", "shop"]


def test_nothing_is_left_of_the_container_itself_if_it_cannot_be_made(host, act):
    host.take()
    host.podman_volumes.clear()
    host.fails = "podman create"
    refused(act, "as the test wants it", name="shop", own_name=True)
    assert host.left == []


@pytest.mark.parametrize("step", ["pcopy restore", "mounted", "podman create", "podman start"])
def test_nothing_is_left_of_one_that_failed(host, act, step):
    host.take()
    host.fails = step
    refused(act, "as the test wants it")
    assert host.left == []


def test_the_next_run_clears_up(host, act):
    host.take()
    act()
    record = json.loads((host.root / ".clones/try.json").read_text())
    (host.root / ".clones/try.json").write_text(json.dumps({**record, "whole": False}))
    host.commands.clear()
    assert act(check=True)["reasons"][0] == "a run that was cut off has left a part of try"
    assert host.commands == []
    act()
    assert host.commands[:3] == ["podman stop --ignore", "podman rm --ignore", "image_volume absent"]
    assert host.left == ALL


def test_clearing_up_leaves_another_container_of_the_name(host, act):
    host.take()
    act()
    path = host.root / ".clones/try.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "whole": False}))
    host.containers["try"]["Config"]["Labels"] = {}
    host.commands.clear()
    refused(act, "there is a container named try on this host")
    assert "podman rm --ignore" not in host.commands and host.left == ["try"]


def test_two_runs_at_once(host, act):
    host.take()
    with clones.Clones(str(host.root)).held("try"):
        refused(act, "another run makes or removes try on this host: wait until it has ended")
        refused(act, "another run makes or removes try on this host", state="absent")
    assert host.left == []


def test_locks_are_in_a_folder_of_roots(host, act):
    """In one that all may write to, a file of the name can be another user's, or a link."""
    host.take()
    act(check=True)
    assert os.stat(clones.LOCKS).st_mode & 0o777 == 0o700


def test_volumes_without_a_name_go_with_the_clone(host, act, monkeypatch):
    host.take()
    act()
    real, words = host.podman, []
    monkeypatch.setattr(host, "podman", lambda *given: words.append(given) or real(*given))
    act("absent")
    assert ("rm", "--ignore", "--volumes", "try") in words


def test_another_container_of_the_name_is_not_touched(host, act):
    host.take()
    host.containers["try"] = {"Id": "try", "Name": "try", "Config": {}}
    refused(act, "there is a container named try on this host")
    refused(act, "try is no clone of a snapshot below", state="absent")
    host.containers.clear()
    act()
    host.containers["try"]["Config"]["Labels"] = {}
    refused(act, "the container try is another than the clone of shop@before", state="absent")
    refused(act, "the container try is gone, and the volumes of the clone are there")
    assert "try" in host.containers


def test_a_clone_of_another_snapshot_is_not_this_one(host, act):
    host.take()
    host.take("later")
    act()
    refused(act, "try is a clone of shop@before: give this one another name", snapshot="later")
    host.containers.clear()
    refused(act, "the container try is gone, and the volumes of the clone are there")
    assert "try-pgdata.img" in host.left


@pytest.mark.parametrize(
    ("prepare", "text"),
    [
        (lambda host: host.stored.clear(), "the disks of the snapshot before of shop are gone"),
        (lambda host: host.images.clear(), r"the image localhost/shop:1 \(abc\) is not on this host any more"),
        (lambda host: (host.folder / "images/try-pgdata.img").write_text("x"), "try-pgdata.img is there, where a volume of try is to be"),
        (lambda host: (host.root / "shop/before/configuration.json").write_text("{}"), "was taken without the container's configuration"),
        (lambda host: (host.root / "shop/before/configuration.json").unlink(), "was taken without the container's configuration"),
        (lambda host: (host.root / "shop/before/configuration.json").write_text("{"), "configuration.json cannot be read"),
        (lambda host: (host.root / "shop/before/snapshot.json").unlink(), "there is no snapshot before"),
    ],
)
def test_a_refusal_touches_nothing(host, act, prepare, text):
    host.take()
    prepare(host)
    before = host.left
    refused(act, text)
    assert (host.commands, host.left) == ([], before)


def test_a_disk_of_two_is_refused(host, act, monkeypatch):
    host.take()
    path = host.root / "shop/before/configuration.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "devices": ["/dev/fuse", "/dev/none", "/dev/sdx"]}))
    real = os.stat
    monkeypatch.setattr(clone_parts.os, "stat", lambda name, **given: types.SimpleNamespace(st_mode=0o060600) if name == "/dev/sdx" else real(name, **given))
    refused(act, "shop has the disk /dev/sdx .--device., and the clone would write to it, too")


def test_no_room(host, act, monkeypatch):
    host.take()
    monkeypatch.setattr(room.host, "free_space", lambda path: 3)
    refused(act, "the copy of shop takes")
    assert host.left == []


@pytest.mark.parametrize("name", ["-x", "a/b", ""])
def test_a_name_that_is_none(act, name):
    refused(act, "name: '.*' is no name", name=name)
