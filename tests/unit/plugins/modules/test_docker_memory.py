# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The memory of a container of Docker's in a copy. Docker, runc and the helper are the test's; files, notes and their locks are real."""

from __future__ import annotations

import fcntl
import json
import os

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._core.runtime import Completed, HandoverError, Runtime
from ansible_collections.livefleet.handover.plugins.module_utils._core.snapshot_records import Snapshots
from ansible_collections.livefleet.handover.plugins.module_utils._docker.api import Docker
from ansible_collections.livefleet.handover.plugins.module_utils._drivers.copies import docker_engine, docker_memory
from ansible_collections.livefleet.handover.plugins.module_utils._podman.copies import memory_fit, memory_halt, memory_in_place, snapshot_taker
from unit.plugins.module_utils import test_docker_live
from unit.plugins.modules import test_snapshot_docker
from unit.plugins.modules.test_snapshot_docker import ID

WITHOUT = "leave its memory out (handover_memory=false)"
host, act = test_snapshot_docker.host, test_snapshot_docker.act
looked = test_docker_live.world


@pytest.fixture
def world(host, looked, monkeypatch, tmp_path):
    """The host of the disks' tests, on which runc dumps and restores, too."""
    host.own = tmp_path / "docker/containers" / ID
    host.layer = tmp_path / "docker/overlay2/1/diff"
    host.networks, host.image, host.experimental = {}, "sha256:1", True
    host.restores, host.note, host.answer = "", {}, looked["here"]
    looked["here"]["workload"]["runtime"] = "runc"
    looked["here"]["host"]["docker"]["runtimes"] = ["runc"]
    host.own.mkdir(parents=True)
    host.layer.mkdir(parents=True)
    get, run = host.get, host.run

    def told(*path, **query):
        if path == ("info",):
            return {"ExperimentalBuild": host.experimental}
        if path == ("networks",):
            return []
        found = get(*path, **query)
        if path[0] == "containers" and path[1:] != ("json",):
            network = {"SandboxKey": "/run/docker/netns/1", "Networks": host.networks}
            found = {**found, "Image": host.image, "NetworkSettings": network, "GraphDriver": {"Data": {"UpperDir": str(host.layer)}}}
            found["State"] = {**found["State"], "Pid": 7}
        return found

    def runs(argv, stdin=None):
        words = [str(word) for word in argv]
        if words[0] == docker_memory.TURN:
            return restore(words)
        if words[0].endswith("/cp"):
            memory_halt.shutil.copytree(words[-2], words[-1])
            return Completed((), 0, "", "")
        if os.path.basename(words[0]) == "docker" and words[1] == "wait":
            host.said.append("wait")
            return Completed((), 0, "", "")
        return run(argv, stdin)

    def restore(words):
        (note,) = (tmp_path / "notes").iterdir()
        with open(note, encoding="utf-8") as other, pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)
        host.note = json.loads(note.read_text())
        host.said.append(" ".join([*words[1:3], "with policy", host.policy]))
        if host.restores:
            raise HandoverError(host.restores)
        host.state = "running"
        return Completed((), 0, "", "")

    host.get, host.run = told, runs
    monkeypatch.setattr(docker_memory, "NOTES", str(tmp_path / "notes"))
    monkeypatch.setattr(docker_engine.DockerEngine, "look", lambda self, module, word: {**host.answer, "host": {**host.answer["host"], "name": "node1"}})
    monkeypatch.setattr(memory_in_place.host, "freezable_cgroup", lambda pid, identifier, options: "/sys/fs/cgroup/docker-1.scope")
    monkeypatch.setattr(memory_halt, "look_for_move", lambda runtime, name: None)
    monkeypatch.setattr(snapshot_taker.processes, "processes_of", lambda pid: type("Found", (), {"memory": 4096}))
    monkeypatch.setattr(Runtime, "tool", lambda self, tool, package: "/usr/bin/" + tool)
    return host


def dumped(world, monkeypatch):
    """The helper takes the memory, as it is told; its file."""
    seen = {}
    run = world.run

    def runs(argv, stdin=None):
        words = [str(word) for word in argv]
        given = [word for word in words if word.startswith("--memory=")] if words[1:3] == ["snapshot", "wave"] else []
        for path in (word.partition("=")[2] for word in given):
            with open(path, encoding="utf-8") as source:
                seen.update(json.load(source))
            for name in ("checkpoint", "layer"):
                os.makedirs(os.path.join(seen["into"], name))
                with open(os.path.join(seen["into"], name, "then"), "w", encoding="utf-8"):
                    pass
        return run(argv, stdin)

    world.run = runs
    return seen


def test_runc_dumps_it_where_it_is(world, act, monkeypatch, tmp_path):
    spec = dumped(world, monkeypatch)
    done = act(memory=True)
    images = str(world.own / "handover")
    assert spec["dump"]["argv"] == [docker_memory.TURN, "dump", "shop", ID, "/run/docker/runtime-runc/moby", images, "/sys/fs/cgroup/docker-1.scope"]
    assert (spec["dump"]["gate"], spec["dump"]["log"], spec["namespace"]) == (images, str(world.own / "dump.log"), ""), "it has no network"
    assert (spec["layers"], spec["archives"]) == ([{"name": "layer", "path": str(world.layer)}], []), "its /dev/shm is in the dump"
    assert done["snapshot"]["memory"] and done["snapshot"]["driver"] == "docker"
    assert sorted(os.listdir(tmp_path / "root/shop/before")) == ["checkpoint", "configuration.json", "layer", "snapshot.json"]
    assert world.state == "running" and os.listdir(world.own) == []
    world.networks = {"lan": {"IPAMConfig": {"IPv4Address": "192.0.2.20"}}}
    act(memory=True, name="other")
    assert spec["namespace"] == "/run/docker/netns/1", "no connection comes in while it is dumped"


def test_it_runs_on_from_its_memory_and_has_its_policy_last(world, act, monkeypatch, tmp_path):
    dumped(world, monkeypatch)
    act(memory=True)
    world.said.clear()
    (world.layer / "later").touch()
    act(memory=True, state="staged")
    assert world.said == ["policy no", "kill with policy no", "wait"]
    act(memory=True, state="placed")
    images = world.own / "handover"
    assert os.listdir(images) == os.listdir(world.layer) == ["then"]
    act(memory=True, state="restored")
    assert world.note == {"images": str(images), "work": str(world.own)}
    assert world.said[3:] == ["restore shop with policy no", "policy always"]
    assert not images.exists() and os.listdir(tmp_path / "notes") == os.listdir(tmp_path / "policies") == []


def back(act):
    for state in ("staged", "placed", "restored"):
        act(memory=True, state=state)


def test_a_restore_that_fails_leaves_it_to_its_operator(world, act, monkeypatch, tmp_path):
    dumped(world, monkeypatch)
    act(memory=True)
    world.restores = "criu failed"
    with pytest.raises(HandoverError, match=r"shop is there with the disks of its copy, and does not run on from its memory: criu failed: start it anew"):
        back(act)
    assert (world.state, world.policy) == ("exited", "always")
    assert not (world.own / "handover").exists(), "nothing can be restored later that is of another moment"
    assert os.listdir(tmp_path / "notes") == os.listdir(tmp_path / "policies") == []


def test_one_that_another_hand_has_started_is_not_restored_beside_itself(world, act, monkeypatch):
    dumped(world, monkeypatch)
    act(memory=True)
    act(memory=True, state="staged")
    act(memory=True, state="placed")
    world.state = "running"
    with pytest.raises(HandoverError, match="shop was started by another hand"):
        act(memory=True, state="restored")
    assert not any(word.startswith("restore") for word in world.said if isinstance(word, str))


def test_only_one_run_takes_it_back(world, act, monkeypatch, tmp_path):
    dumped(world, monkeypatch)
    act(memory=True)
    act(memory=True, state="staged")
    act(memory=True, state="placed")
    (tmp_path / "notes").mkdir()
    note = tmp_path / "notes" / (ID + ".json")
    note.write_text("theirs")
    with open(note, encoding="utf-8") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(HandoverError, match="shop is on its way back in another run: wait until that has ended"):
            act(memory=True, state="restored")
    assert note.read_text() == "theirs"


REFUSED = [
    (test_docker_live.put("here/host/docker/experimental", False), "Docker on node1 restores no container"),
    (test_docker_live.put("here/workload/init", True), "was created with --init"),
    (test_docker_live.put("here/workload/runtime", "kata"), "runs under the runtime kata"),
    (test_docker_live.put("here/workload/namespaces/IPC", "shareable"), "for others to share (--ipc shareable)"),
    (test_docker_live.put("here/workload/networks/0/ip", ""), "has no fixed address on the network lan"),
    (test_docker_live.put("here/workload/divided", True), "has made cgroups below its own"),
    (test_docker_live.put("here/workload/own_network", ["the interface tun0"]), "has made the interface tun0 in its network namespace"),
    (test_docker_live.put("here/workload/multicast", ["239.0.0.1"]), "has joined multicast groups"),
    (test_docker_live.put("here/workload/own_mounts", ["/x (fuse)"]), "has mounted /x (fuse) by itself"),
    (test_docker_live.put("here/workload/tmpfs", [{"place": "/run", "attributes": "/run/x", "size": 1}]), "the tmpfs /run of shop has extended attributes"),
    (test_docker_live.put("here/host/criu/version", []), "CRIU is missing on node1"),
]


@pytest.mark.parametrize(("break_it", "said"), REFUSED, ids=[said for _break_it, said in REFUSED])
def test_all_that_would_not_come_back_is_refused_before_anything_is_touched(world, act, looked, tmp_path, break_it, said):
    break_it(looked)
    with pytest.raises(HandoverError) as refused:
        act(memory=True)
    sentence = str(refused.value)
    assert sentence.startswith("the memory of shop is not taken: ") and sentence.count(said) == 1
    assert WITHOUT in sentence or "--runtime runc" in sentence
    assert "migrate_mode" not in sentence and "ignore_checks" not in sentence
    assert not (tmp_path / "root/shop").exists() and not any(isinstance(word, tuple) for word in world.said)


def test_its_processes_have_to_be_seen(world, act, looked):
    del looked["here"]["workload"]["pids"]
    looked["here"]["problems"] = ["the kernel does not tell"]
    with pytest.raises(HandoverError, match="the memory of shop is not taken: the processes of shop on node1 could not be looked at: the kernel does not tell"):
        act(memory=True)


def test_another_host_of_a_move_is_no_obstacle(world, act, looked, monkeypatch):
    """Its connections over a bridge, a database and huge pages, all of which a copy on its own host can have or is told of elsewhere."""
    dumped(world, monkeypatch)
    looked["here"]["workload"].update(huge_pages=4096, connections={"192.0.2.20": 1})
    looked["here"]["workload"]["networks"][0].update(driver="bridge", shared=False)
    assert act(memory=True)["snapshot"]["memory"]


@pytest.mark.parametrize(
    ("break_it", "said"),
    [
        (lambda world, monkeypatch: setattr(world, "experimental", False), '"experimental": true in /etc/docker/daemon.json'),
        (lambda world, monkeypatch: monkeypatch.setattr(docker_memory.gate, "obstacle", lambda: "containerd starts /usr/bin/runc"), "containerd starts"),
    ],
)
def test_a_host_that_restores_nothing_is_told_before_the_end(world, act, monkeypatch, break_it, said):
    dumped(world, monkeypatch)
    act(memory=True)
    world.said.clear()
    break_it(world, monkeypatch)
    with pytest.raises(HandoverError, match="shop cannot run on from its memory") as refused:
        act(memory=True, state="staged")
    assert said in str(refused.value) and WITHOUT in str(refused.value)
    assert world.said == [] and world.state == "running"


def test_a_snapshot_of_the_disks_alone_has_none(world, act):
    act()
    with pytest.raises(HandoverError, match="the snapshot before of shop has no memory"):
        act(memory=True, state="staged")


def test_its_like_is_known_by_all_that_it_was_made_of(world, act, monkeypatch, tmp_path):
    """One that has moved, or was made again from a backup, has another ID."""
    engine = docker_engine.DockerEngine(Runtime(None, 9))
    essence = docker_engine.facts_of.essence(Docker(engine.runtime).inspect(ID))
    first, labels = "sha256:1", {memory_fit.CLONE: "shop@backup-1"}
    likes = ((first, {}, True), (first, {"Config.Labels": labels}, True), ("sha256:2", {}, False), (first, {"Config.User": "me"}, False))
    for image, change, same in likes:
        assert engine.is_alike({"image": {"id": image}, "essence": {**essence, **change}}, ID) is same
    assert not engine.is_alike({}, ID), "a snapshot without the configuration does not tell"
    dumped(world, monkeypatch)
    act(memory=True)
    record = tmp_path / "root/shop/before/snapshot.json"
    record.write_text(json.dumps({**Snapshots(str(tmp_path / "root"), "shop").read("before"), "container": "b" * 64}))
    with pytest.raises(HandoverError, match="the memory in the snapshot before is of an earlier container named shop"):
        act(memory=True, state="staged")


def test_what_a_killed_timer_has_left_is_let_run(world, monkeypatch):
    engine, called = docker_engine.DockerEngine(Runtime(None, 60)), []
    monkeypatch.setattr(memory_in_place, "let_run", lambda runtime, folder, seconds: called.append(folder))
    assert not engine.let_left_run("shop") and not engine.let_left_run("web")
    folder = world.own / memory_halt.FOLDER
    folder.mkdir()
    (folder / memory_in_place.SPEC).touch()
    assert engine.let_left_run("shop") and called == [str(folder)]
