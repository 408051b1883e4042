# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import os
import subprocess
import types

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._core import host, pcopy, runtime
from ansible_collections.livefleet.handover.plugins.module_utils._core.move import SPARE_DISK
from ansible_collections.livefleet.handover.plugins.module_utils._core.snapshot_records import Snapshots
from ansible_collections.livefleet.handover.plugins.module_utils._podman.copies import engine, memory_fit, snapshot_tree

VOLUMES = [{"name": "pgdata", "image": "/images/pgdata.img", "mountpoint": "/mnt/pgdata"}]
FACTS = {"name": "node1", "podman": {"runtime": "runc"}}


class Hosts:
    """Two hosts, each with a folder of snapshots. The second comes to the first by ssh, whose commands run here, in the folder of the first."""

    def __init__(self, folder):
        self.one, self.two = folder / "one", folder / "two"
        self.joined, self.words, self.containers, self.fails = set(), [], [], ""
        self.points = {}

    def run(self, argv, accept=(0,), stdin=None, timeout=None):
        words = [str(word) for word in argv]
        if os.path.basename(words[0]) == "podman":
            rows = [{"Id": name, "Names": [name], "State": "running"} for name in self.containers]
            return runtime.Completed((), 0, json.dumps(rows if words[1] == "ps" else [{"Id": words[-1], "Image": "1"}]), "")
        if "ssh" in words:
            at = words.index("ssh")
            assert words[at + 1 : at + 4] == ["-T", "-o", "BatchMode=yes"] and words[-3:-1] == ["--", "node1"]
            words[at:] = ["sh", "-c", words[-1].replace(str(self.two), str(self.one))]
        self.words.append(words)
        if self.fails and self.fails in " ".join(words):
            if len(accept) > 1:
                return runtime.Completed((), 255, "", "it failed")
            raise runtime.HandoverError("it failed, as the test wants it")
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            raise runtime.HandoverError(done.stderr)
        return runtime.Completed((), 0, done.stdout, done.stderr)

    def join(self, *words, **_more):
        assert words[:3] == ("snapshot", "join", "--json")
        flags = {word for word in words[3:] if word.startswith("--")}
        source, store, *points = [word for word in words[3:] if not word.startswith("--")]
        assert (source, store) == (f"node1:{self.two}/.disks/shop", f"{self.two}/.disks/shop")
        come = [{"id": name, "name": name} for name in points if name not in self.joined]
        if "--dry-run" not in flags:
            self.joined.update(points)
            self.points = flags
        return {"points": come, "bytes": 1000 * len(come)}

    def take(self, root, name, **more):
        snapshots = Snapshots(str(root), "shop")
        folder = snapshots.begin(name)
        record = {"name": name, "taken": "2026-11-26T00:00:00Z", "container": "shop", "memory": False, "disks": True, "volumes": VOLUMES, "folders": []}
        with open(os.path.join(folder, "configuration.json"), "w", encoding="utf-8") as file:
            file.write("{}")
        if more.get("memory"):
            os.makedirs(os.path.join(folder, "checkpoint"))
            with open(os.path.join(folder, "checkpoint", "pages.img"), "wb") as file:
                file.write(os.urandom(5000))
                file.truncate(1 << 20)
            os.chmod(os.path.join(folder, "checkpoint"), 0o711)
        snapshots.finish(name, {**record, **more})

    def act(self, root, state, check=False, **more):
        params = {"workload": "shop", "state": state, "source": "node1", "snapshots": [], "current": True, "beside": [], "memory_from": {}, "root": str(root),
                  "timeout": 60, **more}  # fmt: skip
        return snapshot_tree.act(types.SimpleNamespace(params=params, check_mode=check))

    def offer(self):
        return self.act(self.one, "offered")["snapshots"]

    def bring(self, check=False, **more):
        return self.act(self.two, "brought", check, snapshots=more.pop("snapshots", None) or self.offer(), **more)


@pytest.fixture
def hosts(tmp_path, monkeypatch):
    found = Hosts(tmp_path)
    monkeypatch.setattr(runtime.Runtime, "run", lambda _self, *words, **more: found.run(*words, **more))
    monkeypatch.setattr(runtime.Runtime, "tool", lambda _self, name, _package: name)
    monkeypatch.setattr(pcopy.Pcopy, "call", lambda _self, *words, **more: found.join(*words, **more))
    return found


def files(root):
    found = {}
    for folder, _folders, names in os.walk(root):
        found.update({os.path.relpath(os.path.join(folder, name), root): (root / folder / name).read_bytes() for name in names})
        found[os.path.relpath(folder, root) + "/"] = os.stat(folder).st_mode
    return found


def test_all_that_lacks_comes_and_the_second_time_nothing(hosts):
    hosts.containers = ["shop"]
    hosts.take(hosts.one, "before")
    hosts.take(hosts.one, "warm", memory=True, taken="2026-11-27T00:00:00Z")
    hosts.take(hosts.one, "alone", memory=True, disks=False, taken="2026-11-28T00:00:00Z")
    hosts.take(hosts.one, "backup-1", store="/srv/backups/shop")
    assert [row["name"] for row in hosts.offer()] == ["before", "warm", "alone"], "a backup has its data elsewhere"
    told = hosts.bring(check=True)
    assert told["changed"] and not hosts.two.exists() and not hosts.joined
    done = hosts.bring()
    assert [row["name"] for row in done["snapshots"]] == ["before", "warm", "alone"] and done["bytes"] == told["bytes"]
    assert hosts.joined == {"before", "warm"} and hosts.points == {"--current"}
    there = files(hosts.one / "shop")
    assert files(hosts.two / "shop") == {path: content for path, content in there.items() if not path.startswith("backup-1")}
    assert not hosts.bring()["changed"]
    assert not any("--create" in word for words in hosts.words[-1:] for word in words)
    hosts.take(hosts.one, "later", taken="2026-11-29T00:00:00Z")
    assert hosts.bring(current=False)["reasons"] == ["later is not here"] and hosts.points == set()


def test_a_run_that_fails_leaves_whole_snapshots_alone(hosts):
    hosts.take(hosts.one, "before")
    hosts.take(hosts.one, "warm", memory=True, taken="2026-11-27T00:00:00Z")
    hosts.fails = "/warm"
    with pytest.raises(runtime.HandoverError, match="as the test wants it"):
        hosts.bring()
    assert sorted(os.listdir(hosts.two / "shop")) == ["before"]
    (hosts.two / "shop/.warm").mkdir()  # of a run that was killed
    (hosts.two / "shop/.warm/half").touch()
    (hosts.two / "shop" / snapshot_tree.ARCHIVE).write_text("half")
    hosts.fails = ""
    assert hosts.bring()["reasons"] == ["warm is not here"]
    assert files(hosts.two / "shop") == files(hosts.one / "shop")


def test_snapshots_of_another_container_are_no_part_of_the_tree(hosts):
    hosts.take(hosts.one, "before")
    hosts.take(hosts.two, "other", volumes=[{"name": "web"}])
    with pytest.raises(runtime.HandoverError, match=r"snapshots of another container named shop \(other\), with other volumes: remove them there"):
        hosts.bring(check=True)
    hosts.take(hosts.two, "own")
    hosts.take(hosts.two, "before", taken="2026-10-01T00:00:00Z")
    with pytest.raises(runtime.HandoverError, match="another snapshot before of shop, of 2026-10-01T00:00:00Z, and the one that would come is of 2026-11-26"):
        hosts.bring(check=True)
    Snapshots(str(hosts.two), "shop").forget("before")
    assert hosts.bring()["changed"], "of its own tree is one"
    hosts.take(hosts.two, "guest", kind="KVM guest")
    with pytest.raises(runtime.HandoverError, match="snapshots of a KVM guest named shop"):
        hosts.bring(check=True)


def test_all_has_to_have_room(hosts, monkeypatch):
    hosts.take(hosts.one, "before")
    hosts.take(hosts.one, "warm", memory=True, taken="2026-11-27T00:00:00Z")
    need = 2000 + sum(row["beside"] for row in hosts.offer()) + max(row["beside"] for row in hosts.offer())
    volumes = [{"image": str(hosts.two / "volumes/pgdata.img"), "allocated": 5 << 20}, {"image": "/proc/1/pgdata.img", "allocated": 5 << 20}]
    monkeypatch.setattr(host, "free_space", lambda path: SPARE_DISK + need + (5 << 20) - 1)
    hosts.bring(check=True)
    with pytest.raises(runtime.HandoverError, match="the copy of the snapshots of shop, and its volumes, takes .* free .* there"):
        hosts.bring(check=True, beside=volumes)
    monkeypatch.setattr(host, "free_space", lambda path: SPARE_DISK + need + (5 << 20))
    hosts.bring(check=True, beside=volumes)


def test_ssh_that_does_not_come_there_is_told_before_anything_is_touched(hosts):
    hosts.take(hosts.one, "before")
    hosts.fails = "tar --version"
    with pytest.raises(runtime.HandoverError, match="does not come to node1 by ssh, .*: it failed: see .* or name node1 by another address"):
        hosts.bring(check=True)


def test_memory_that_does_not_fit_is_told_before_anything_is_touched(hosts, monkeypatch):
    hosts.take(hosts.one, "warm", memory=True)
    asked = []
    here = {"name": "node2", "podman": {"runtime": "crun"}}
    monkeypatch.setattr(engine, "in_turn", lambda *words: {"last": {"workload_info": {"host": here}}})
    monkeypatch.setattr(memory_fit, "misfits", lambda *words: asked.append(words) or ["the kernel of node2 is older"])
    with pytest.raises(runtime.HandoverError, match=r"the memory of shop cannot be restored on .*: the kernel of node2 is older: restore the disks alone"):
        hosts.bring(check=True, memory_from=FACTS)
    assert asked == [("shop", "runc", "crun", FACTS, here, "node1")]
    hosts.bring(check=True)
    monkeypatch.setattr(engine, "in_turn", lambda *words: {"msg": "podman does not answer"})
    with pytest.raises(runtime.HandoverError, match="podman does not answer"):
        hosts.bring(check=True, memory_from=FACTS)


def test_a_host_that_restores_nothing_is_told_before_anything_is_touched(hosts, monkeypatch):
    def refuse(_engine, name):
        raise runtime.HandoverError(name + " cannot run on from its memory")

    hosts.take(hosts.one, "warm", memory=True)
    monkeypatch.setattr(engine, "in_turn", lambda *words: {"last": {"workload_info": {"host": FACTS}}})
    monkeypatch.setattr(memory_fit, "misfits", lambda *words: [])
    monkeypatch.setattr(engine.PodmanEngine, "look_for_restore", refuse)
    with pytest.raises(runtime.HandoverError, match="shop cannot run on from its memory"):
        hosts.bring(check=True, memory_from=FACTS)
    assert not (hosts.two / "shop").exists()


def test_another_engines_snapshots_stay_where_they_are(hosts):
    hosts.take(hosts.one, "before", driver="docker")
    with pytest.raises(runtime.HandoverError, match=r"are of a container of the driver docker: name it \(handover_driver=docker\)"):
        hosts.offer()


def test_memory_is_known_to_be_the_containers(hosts, monkeypatch):
    hosts.take(hosts.one, "warm", memory=True)
    assert not hosts.offer()[0]["fits"], "the container is not here"
    hosts.containers = ["shop"]
    assert not hosts.offer()[0]["fits"], "the configuration is empty"
    monkeypatch.setattr(memory_fit, "alike", lambda configuration, inspect: (configuration, inspect["Id"]) == ({}, "shop"))
    assert hosts.offer()[0]["fits"]


def test_several_containers_are_refused(hosts, monkeypatch):
    monkeypatch.setattr(snapshot_tree.groups, "members", lambda _containers, word: word.split("+"))
    with pytest.raises(runtime.HandoverError, match="db and web are 2 containers: go back on another host with one at a time"):
        hosts.act(hosts.one, "offered", workload="db+web")


def test_an_ipv6_address_has_brackets_for_the_helper_alone():
    found = []
    tree = snapshot_tree.SnapshotTree.__new__(snapshot_tree.SnapshotTree)
    tree.source, tree.workload, tree.params = "fd00::1", "shop", {"root": "/r", "current": False}
    tree.runtime = types.SimpleNamespace(tool=lambda name, package: name)
    tree.disks = types.SimpleNamespace(folder="/r/.disks/shop", pcopy=types.SimpleNamespace(call=lambda *words: found.extend(words)))
    tree._join(["before"])
    assert "[fd00::1]:/r/.disks/shop" in found and tree._words("true")[-2] == "fd00::1"
