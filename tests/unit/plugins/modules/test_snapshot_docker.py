# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Snapshots and backups of containers of Docker's: the engine's part of them."""

from __future__ import annotations

import json
import os
import types

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._core import loop
from ansible_collections.livefleet.handover.plugins.module_utils._core.pcopy import Pcopy
from ansible_collections.livefleet.handover.plugins.module_utils._core.runtime import Completed, HandoverError, Runtime
from ansible_collections.livefleet.handover.plugins.module_utils._core.snapshot_records import Snapshots
from ansible_collections.livefleet.handover.plugins.module_utils._docker import gate, kept_policy
from ansible_collections.livefleet.handover.plugins.module_utils._docker.api import Docker
from ansible_collections.livefleet.handover.plugins.module_utils._drivers import docker_disks
from ansible_collections.livefleet.handover.plugins.module_utils._drivers.copies import docker_engine, engines, snapshots
from ansible_collections.livefleet.handover.plugins.module_utils._podman.copies import backup_adopter, backup_taker, engine as of_engine
from ansible_collections.livefleet.handover.plugins.module_utils._podman.snapshots import image_volumes

ID = "a" * 64


class Host:
    """A host with one container of Docker's; Docker's answers, and all that it and the helper were told, in order."""

    def __init__(self, folder):
        self.folder = folder
        self.state, self.policy, self.auto_remove, self.binds = "running", "always", False, None
        self.said = []
        self.fails = ""
        self.runs = True
        self.users = []
        self.volumes = [{"Name": "data", "Driver": "local", "Options": None}, {"Name": "disk", "Driver": "local", "Options": {"device": "/mnt/disk"}}]
        self.mounts = [
            {"Type": "bind", "Source": str(folder / "mnt" / "inside"), "Destination": "/db", "RW": True},
            {"Type": "volume", "Name": "data", "Source": str(folder / "_data"), "Destination": "/data", "RW": True},
        ]
        (folder / "_data").mkdir()
        (folder / "pg.img").write_text("data")

    def get(self, *path, **_query):
        if path[:2] == ("containers", "json"):
            return [{"Id": ID, "Names": ["/shop"], "State": self.state, "Labels": {}, "Mounts": self.mounts}, *self.users]
        if path[0] == "containers":
            return {
                "Id": ID, "Name": "/shop", "State": {"Status": self.state, "Running": self.state == "running"}, "Mounts": self.mounts,
                "HostConfig": {"Binds": self.binds, "AutoRemove": self.auto_remove, "RestartPolicy": {"Name": self.policy}},
            }  # fmt: skip
        return {"Volumes": self.volumes}

    def post(self, *path, body=None, **_query):
        if path[2] == "update":
            self.policy = body["RestartPolicy"]["Name"]
            self.said.append("policy " + self.policy)
        if path[2] == "start":
            self.state = "running"
            self.said.append("start with policy " + self.policy)

    def run(self, argv, stdin=None):
        tool, *rest = [str(word) for word in argv]
        tool, rest = os.path.basename(tool), [word for word in rest if word != "--json"]
        out = ""
        if tool == "docker":
            self.said.append(" ".join(rest[:1]) + " with policy " + self.policy)
            if self.fails:
                raise HandoverError(self.fails)
            self.state = "exited"
        elif rest[:2] == ["snapshot", "wave"]:
            (part,) = json.loads(stdin)["parts"]
            self.said.append((part["volumes"], part.get("folders"), part.get("cgroup")))
            os.makedirs(part["store"], exist_ok=True)
            with open(os.path.join(part["store"], "store.json"), "w", encoding="utf-8"):
                pass
            out = json.dumps({"snapshots": [{"frozen_ms": 1, "volumes": [{"stored": 4}]}]})
        elif rest[:2] == ["snapshot", "list"]:
            out = json.dumps({"snapshots": [{"name": name} for name in ("before",)]})
        elif rest[:2] == ["snapshot", "show"]:
            out = json.dumps({"data": {"pg": 4}})
        elif rest[:2] == ["snapshot", "restore"]:
            out = '{"volumes": []}'
        return Completed(tuple(argv), 0, out, "")

    @property
    def configuration(self):
        disk = {"name": "pg", "image": str(self.folder / "pg.img"), "mountpoint": str(self.folder / "mnt"), "fstype": "ext4", "options": "rw", "size": 4}
        folder = {"name": "data", "path": str(self.folder / "_data"), "shared_with": []}
        return {
            "name": "shop", "running": True, "cgroup": "/sys/fs/cgroup/docker", "engine": "Docker's",
            "mounts": [
                {"type": "bind", "name": "", "destination": "/db", "source": str(self.folder / "mnt/inside"), "read_only": False, "image_volume": disk},
                {"type": "volume", "name": "data", "destination": "/data", "source": "/v", "read_only": False, "directory_volume": folder},
                {"type": "bind", "name": "", "destination": "/etc/shop", "source": "/etc/shop", "read_only": False},
            ],
        }  # fmt: skip


@pytest.fixture
def host(monkeypatch, tmp_path):
    fake = Host(tmp_path)
    monkeypatch.setattr(Docker, "get", lambda self, *path, **query: fake.get(*path, **query))
    monkeypatch.setattr(Docker, "post", lambda self, *path, body=None, **query: fake.post(*path, body=body, **query))
    monkeypatch.setattr(Runtime, "run", lambda self, argv, accept=(0,), stdin=None, timeout=None: fake.run(argv, stdin))
    monkeypatch.setattr(Runtime, "find", lambda self, tool: None if tool == "virsh" else "/usr/bin/" + tool)
    monkeypatch.setattr(Pcopy, "check_installed", lambda self: None)
    monkeypatch.setattr(kept_policy, "FOLDER", str(tmp_path / "policies"))
    monkeypatch.setattr(gate, "obstacle", lambda: "")
    monkeypatch.setattr(docker_engine, "look_for_move", lambda runtime, name: None)
    monkeypatch.setattr(docker_engine.docker_rows, "runs", lambda runtime: fake.runs)
    monkeypatch.setattr(snapshots, "has_libvirt", lambda runtime: False)
    return fake


@pytest.fixture
def act(host, tmp_path):
    warned = []

    def run(check=False, **given):
        params = {
            "workload": "shop", "name": "before", "driver": "docker", "state": "present", "memory": False, "configuration": host.configuration, "keep": False,
            "track": False, "mode": "auto", "with_configuration": True, "volumes": image_volumes(host.configuration), "root": str(tmp_path / "root"),
            "timeout": 60, **given,
        }  # fmt: skip
        return {**snapshots.act(types.SimpleNamespace(params=params, check_mode=check, warn=warned.append)), "warned": warned}

    return run


def test_its_disks_are_taken_while_it_runs(host, act, tmp_path):
    done = act()
    assert host.said == [([{"name": "pg", "path": str(tmp_path / "pg.img")}], [{"name": "data", "path": str(tmp_path / "_data")}], "/sys/fs/cgroup/docker")]
    assert done["snapshot"]["driver"] == "docker" and done["snapshot"]["running"] and not done["snapshot"]["memory"]
    assert done["warned"] == ["/etc/shop (/etc/shop) is no part of the snapshot of shop: put it in a volume of its own"]
    assert Snapshots(str(tmp_path / "root"), "shop").configuration("before")["name"] == "shop"


def test_on_the_way_back_its_policy_is_off_from_before_the_stop_until_it_goes_on(host, act, tmp_path):
    act()
    host.said.clear()
    act(state="staged")
    assert host.said == ["policy no", "stop with policy no"]
    # The policy is on the disk, also for a run that comes after a kill and sees it off.
    act(state="staged")
    act(state="placed")
    act(state="restored")
    assert host.said[2:] == ["policy always", "start with policy always"]
    assert os.listdir(tmp_path / "policies") == []


def test_one_that_did_not_run_gets_its_policy_and_no_start(host, act):
    host.state = "exited"
    act()
    host.said.clear()
    act(state="staged")
    assert host.said == ["policy no"], "a restart of Docker would start it"
    act(state="restored")
    assert host.said == ["policy no", "policy always"] and host.state == "exited"


def test_a_stop_that_fails_leaves_it_with_its_policy(host, act, tmp_path):
    act()
    host.said.clear()
    host.fails = "it does not end"
    with pytest.raises(HandoverError, match="it does not end"):
        act(state="staged")
    assert host.said == ["policy no", "stop with policy no", "policy always"] and os.listdir(tmp_path / "policies") == []


def test_the_policy_of_a_container_that_is_gone_is_not_given_to_another(host, act, tmp_path):
    kept_policy.KeptPolicy(Docker(Runtime(types.SimpleNamespace(), 9)), "b" * 64).keep("always")
    host.policy = "no"
    act()
    act(state="staged")
    act(state="restored")
    assert host.policy == "no" and os.listdir(tmp_path / "policies") == ["b" * 64]


@pytest.mark.parametrize(
    "setting, said",
    [
        ({"auto_remove": True}, "shop was created with --rm, and Docker removes it when it ends: create it without, and go back then"),
        ({"users": [{"Id": "b", "Names": ["/till"], "Mounts": [{"Name": "data"}]}]}, "the volume data of shop is till's, too, by now"),
        ({"volumes": [{"Name": "data", "Driver": "local", "Options": {"device": "/x"}}]}, "the volume data of shop is an image volume by now"),
        ({"binds": ["data:/data", "MNT/inside/:/db:ro"]}, "shop mounts .*/mnt/inside by --volume, and Docker would make that folder anew and start it there"),
        ({"mounts": []}, "shop does not have the volume data any more, which the snapshot before is of"),
    ],
)
def test_a_way_back_that_cannot_be_gone_is_refused_before_the_stop(host, act, setting, said):
    act()
    host.said.clear()
    for key, value in setting.items():
        setattr(host, key, [word.replace("MNT", str(host.folder / "mnt")) for word in value] if key == "binds" else value)
    with pytest.raises(HandoverError, match=said):
        act(state="staged")
    assert host.said == []


def test_without_the_gate_it_is_refused(host, act, monkeypatch):
    act()
    host.said.clear()
    monkeypatch.setattr(gate, "obstacle", lambda: "containerd starts /usr/bin/runc")
    with pytest.raises(HandoverError, match="Docker could start shop on half of a rollback, since containerd starts /usr/bin/runc: apply the role"):
        act(state="staged")
    assert host.said == []


def test_with_a_unit_that_starts_it_it_is_refused(host, act, monkeypatch):
    act()
    host.said.clear()
    monkeypatch.setattr(docker_engine.units, "units_of", lambda engine, name, _identifier: [f"{engine}-{name}.service", "other.service"])
    monkeypatch.setattr(docker_engine.units, "acting", lambda _runtime, names: names[:1])
    with pytest.raises(HandoverError, match="the systemd unit docker-shop.service starts shop, and could make another on half of a rollback"):
        act(state="staged")
    assert host.said == []


def test_an_image_volume_that_a_killed_rollback_has_unmounted_is_known_by_the_path_that_is_mounted(host, act):
    act()
    act(state="staged")
    bare = {**host.configuration, "mounts": []}
    act(state="staged", volumes=[], configuration=bare)
    host.mounts[0]["Source"] = "/elsewhere"
    with pytest.raises(HandoverError, match="does not have the image volume .*pg.img any more"):
        act(state="staged", volumes=[], configuration=bare)


@pytest.mark.parametrize(
    "record, driver, said",
    [
        ({}, "docker", r"the snapshots of shop in .* are of a container of the driver podman: name it \(handover_driver=podman\)"),
        ({"driver": "docker"}, "podman", r"are of a container of the driver docker: name it \(handover_driver=docker\)"),
        ({"kind": "KVM guest"}, "docker", "are of a KVM guest: leave handover_driver away"),
    ],
)
def test_the_copies_of_a_name_are_of_one_engine(host, tmp_path, record, driver, said):
    kept = Snapshots(str(tmp_path / "root"), "shop")
    kept.begin("one")
    kept.finish("one", {"name": "one", "taken": "2026", **record})
    engine = engines.ENGINES[driver](Runtime(types.SimpleNamespace(), 9))
    with pytest.raises(HandoverError, match=said):
        of_engine.demand_own(str(tmp_path / "root"), ["shop"], engine)


def test_a_snapshot_is_refused_where_those_of_podmans_container_are(host, act, tmp_path):
    kept = Snapshots(str(tmp_path / "root"), "shop")
    kept.begin("one")
    kept.finish("one", {"name": "one", "taken": "2026"})
    for state in ("present", "staged", "absent"):
        with pytest.raises(HandoverError, match="are of a container of the driver podman"):
            act(name="one", state=state)
    assert host.said == [] and kept.has("one")


def test_the_choices_are_the_engines_that_there_are():
    assert engines.ARGUMENT["choices"] == sorted(engines.ENGINES)


def test_an_image_volume_is_found_below_a_path_and_below_a_bound_volume(monkeypatch):
    monkeypatch.setattr(loop, "read_mounts", lambda: "mounts")
    monkeypatch.setattr(docker_disks, "image_volume_below", lambda directory, mounts: {"image": directory + "@" + mounts})
    found = docker_disks.with_disks({
        "name": "shop",
        "mounts": [
            {"type": "bind", "source": "/mnt/a"},
            {"type": "volume", "source": "/v/_data", "volume": {"options": {"device": "/mnt/b"}}},
            {"type": "volume", "source": "/v/_data", "volume": {"options": {}}},
        ],
    })  # fmt: skip
    assert [(mount["image_volume"] or {}).get("image") for mount in found["mounts"]] == ["/mnt/a@mounts", "/mnt/b@mounts", None]


def test_a_daemon_that_is_down_is_not_asked(host, act, monkeypatch):
    host.runs = False
    monkeypatch.setattr(Docker, "get", lambda self, *path, **query: pytest.fail("it was asked, and is started for that"))
    module = types.SimpleNamespace(params={"workload": "shop", "timeout": 9, "driver": "docker"}, check_mode=False)
    for question in (act, lambda: docker_engine.DockerEngine(Runtime(module, 9)).look(module, "shop")):
        with pytest.raises(HandoverError, match="Docker does not run on this host, and a question would start it"):
            question()


def test_a_record_that_cannot_be_read_keeps_nobody_from_the_others(host, act, tmp_path):
    (tmp_path / "root" / "shop" / "old").mkdir(parents=True)
    (tmp_path / "root" / "shop" / "old" / "snapshot.json").write_text("{")
    assert act()["snapshot"]["name"] == "before"


def test_of_a_container_in_a_move_the_host_alone_is_told(host, monkeypatch):
    def moved(_runtime, name):
        raise HandoverError(name + " is being moved")

    answer = {"workload": {"exists": True, "name": "shop"}, "host": {"name": "node2"}, "problems": []}
    monkeypatch.setattr(docker_engine, "in_turn", lambda module, table, steps: {"last": {"workload_info": answer}})
    monkeypatch.setattr(docker_engine, "look_for_move", moved)
    engine = docker_engine.DockerEngine(Runtime(None, 9))
    assert engine.host(None, "shop") == {"name": "node2"}, "a rollback that was cut off in a move goes on"
    with pytest.raises(HandoverError, match="shop is being moved"):
        engine.look(None, "shop")


def test_a_daemon_that_does_not_answer_has_not_said_that_it_is_gone(host, monkeypatch):
    answer = {"workload": {"exists": False, "name": "shop"}, "problems": ["Docker does not answer"]}
    monkeypatch.setattr(docker_engine, "in_turn", lambda module, table, steps: {"last": {"workload_info": answer}})
    module = types.SimpleNamespace(params={"workload": "shop", "timeout": 9, "driver": "docker"}, check_mode=False)
    with pytest.raises(HandoverError, match="Docker does not answer") as refused:
        docker_engine.DockerEngine(Runtime(module, 9)).look(module, "shop")
    assert not isinstance(refused.value, backup_taker.NotHere), "a timer would take it for no failure"


def test_a_backup_has_its_driver_and_runs_commands_by_docker(host):
    engine = docker_engine.DockerEngine(Runtime(types.SimpleNamespace(), 9))
    container = {"name": "shop", "id": ID, "running": True, "labels": {"livefleet.handover.backup.before": "sync"}, "mounts": []}
    assert backup_taker.inside(engine, container, "before") == "docker exec shop sh -c sync"
    assert backup_taker._record(container, [], None, engine)["driver"] == "docker"
    record = {"container": ID, "running": True, "volumes": [], "driver": "docker"}
    assert backup_adopter.as_snapshot("backup-1", {"taken": "", "id": "1", "frozen_ms": 1, "stored": 1}, record, "", False)["driver"] == "docker"
