# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""docker_workload, workload_info and clone against a daemon that answers over a socket as Docker does, and keeps what it is told to make."""

from __future__ import annotations

import copy
import http.server
import json
import os
import pathlib
import shutil
import socketserver
import threading
import types

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._core import clones, disk_store, parts, runtime, snapshot_records
from ansible_collections.livefleet.handover.plugins.module_utils._core.move import Move
from ansible_collections.livefleet.handover.plugins.module_utils._docker import api, facts, look, networks
from ansible_collections.livefleet.handover.plugins.module_utils._drivers import docker_rows
from ansible_collections.livefleet.handover.plugins.module_utils._drivers.copies import cloner, docker_engine, docker_maker
from ansible_collections.livefleet.handover.plugins.module_utils._podman.copies import clone_parts, snapshot_disks
from ansible_collections.livefleet.handover.plugins.modules import docker_workload, workload_info

RECORDED = pathlib.Path(__file__).parents[1] / "module_utils" / "_docker" / "recorded"
LEDGER = json.loads((RECORDED / "docker-26.1-inspect.json").read_text(encoding="utf-8"))[0]
NETWORKS = json.loads((RECORDED / "docker-26.1-networks.json").read_text(encoding="utf-8"))


class Daemon(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """Docker's containers, volumes and images, by name."""

    daemon_threads = True

    def __init__(self, path):
        super().__init__(str(path), Handler)
        self.folder = path.parent / "volumes"
        self.folder.mkdir()
        self.containers = {}
        self.volumes = {}
        self.images = [{"Id": LEDGER["Image"], "RepoTags": ["localhost/handover/tools:lab"], "Size": 4096}]
        self.spoil = lambda inspect: None  # of a container that is made
        self.started = []
        self.stubborn = False
        self.refuses = ""  # to start one, and why
        self.networks = copy.deepcopy(NETWORKS)
        self.drawn = set()  # names of those whose subnet it has drawn

    def have(self, inspect):
        self.containers[inspect["Name"].lstrip("/")] = inspect

    def policies(self):
        return [each["HostConfig"]["RestartPolicy"]["Name"] for each in self.containers.values()]

    def make(self, name, body):
        inspect = copy.deepcopy(LEDGER)
        inspect.update(Id=("e" if name == "web" else "b") * 64, Name="/" + name, State={"Status": "created", "Running": False, "Pid": 0})
        inspect["Config"] = {key: value for key, value in body.items() if key not in ("HostConfig", "NetworkingConfig")}
        inspect["HostConfig"] = body["HostConfig"]
        self.endpoints = body["NetworkingConfig"]["EndpointsConfig"]
        inspect["NetworkSettings"]["Networks"] = copy.deepcopy(self.endpoints)
        for mount in inspect["Mounts"]:
            named = [bind.split(":")[0] for bind in body["HostConfig"].get("Binds") or [] if bind.split(":")[1] == mount["Destination"]]
            named += [each["Source"] for each in body["HostConfig"].get("Mounts") or [] if each["Target"] == mount["Destination"]]
            mount["Name"] = named[0] if named else ""
        inspect["Mounts"] = [mount for mount in inspect["Mounts"] if mount["Name"]]
        self.spoil(inspect)
        self.have(inspect)
        return {"Id": inspect["Id"]}


class Handler(http.server.BaseHTTPRequestHandler):
    """The paths of the API that a move uses."""

    def log_message(self, *_words):
        pass

    def address_string(self):
        return "socket"

    def _answer(self, document, status=200):
        content = b"" if document is None else json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if content:
            self.wfile.write(content)

    def _one(self, word):
        found = [each for name, each in self.server.containers.items() if word in (name, each["Id"])]
        return found[0] if found else None

    def do_GET(self):
        path = self.path.partition("?")[0].strip("/").split("/")
        if path == ["containers", "json"]:
            self._answer([{"Id": each["Id"], "Names": [each["Name"]], "State": each["State"]["Status"], "Mounts": each["Mounts"],
                           "HostConfig": {"NetworkMode": each["HostConfig"]["NetworkMode"]}, "NetworkSettings": each["NetworkSettings"]}
                          for each in self.server.containers.values()])  # fmt: skip
        elif path[0] == "containers":
            found = self._one(path[1])
            self._answer(found or {"message": "No such container"}, 200 if found else 404)
        elif path == ["images", "json"]:
            self._answer(self.server.images)
        elif path == ["volumes"]:
            self._answer({"Volumes": list(self.server.volumes.values()), "Warnings": None})
        elif path == ["networks"]:
            self._answer(self.server.networks)
        elif path[0] == "networks":
            self._answer(next(each for each in self.server.networks if each["Id"] == path[1]))
        else:
            self._answer({"message": "page not found"}, 404)

    def do_POST(self):
        path, _mark, query = self.path.partition("?")
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"null")
        drawn = self._asks_for_an_address_in_vain(body) if path == "/containers/create" else []
        if drawn:
            why = "user specified IP address is supported only when connecting to networks with user configured subnets"
            self._answer({"message": "\n".join(f"invalid config for network {name}: invalid endpoint settings:\n{why}" for name in drawn)}, 400)
        elif path == "/networks/create":
            self.server.networks.append({**body, "Id": "{0:064x}".format(len(self.server.networks)), "Containers": {}, "Scope": "local"})
            self._answer({"Id": self.server.networks[-1]["Id"]}, 201)
        elif path == "/containers/create":
            self._answer(self.server.make(query.partition("=")[2], body), 201)
        elif path == "/volumes/create":
            place = self.server.folder / body["Name"]
            place.mkdir()
            self.server.volumes[body["Name"]] = {**body, "Mountpoint": str(place)}
            self._answer(body, 201)
        elif path.endswith("/update") and self.server.stubborn:
            self._answer({"message": "it is being removed"}, 409)
        elif path.endswith("/update"):
            self._one(path.split("/")[2])["HostConfig"]["RestartPolicy"] = body["RestartPolicy"]
            self._answer({"Warnings": []})
        elif self.server.refuses:
            self._answer({"message": self.server.refuses}, 500)
        else:
            self.server.started.append(path)
            self._answer(None, 204)

    def _asks_for_an_address_in_vain(self, body):
        endpoints = body["NetworkingConfig"]["EndpointsConfig"]
        return [name for name, endpoint in endpoints.items() if name in self.server.drawn and (endpoint.get("IPAMConfig") or {}).get("IPv4Address")]

    def do_DELETE(self):
        kind, word = self.path.strip("/").split("/")
        network = next((each for each in self.server.networks if kind == "networks" and word in (each["Name"], each["Id"])), None)
        if network is not None and network.get("Containers"):
            return self._answer({"message": "network has active endpoints"}, 403)
        if network is not None:
            self.server.networks.remove(network)
            self.server.drawn.discard(network["Name"])
            return self._answer(None, 204)
        if kind == "volumes" and self.server.volumes.pop(word, None) is not None:
            shutil.rmtree(self.server.folder / word, ignore_errors=True)
            return self._answer(None, 204)
        found = self._one(word) if kind == "containers" else None
        if found is None:
            return self._answer({"message": "no such thing"}, 404)
        if found["State"]["Running"]:
            return self._answer({"message": "cannot remove container: it is running"}, 409)
        del self.server.containers[found["Name"].lstrip("/")]
        return self._answer(None, 204)


@pytest.fixture
def daemon(tmp_path, monkeypatch):
    path = tmp_path / "docker.sock"
    server = Daemon(path)
    monkeypatch.setattr(api.Docker.__init__, "__defaults__", (str(path),))
    monkeypatch.setattr(look, "SOCKET", str(path))
    monkeypatch.setattr(parts.Parts.__init__, "__defaults__", (str(tmp_path / "parts"),))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def ask(run_module, daemon):
    def run(check=False, **params):
        return run_module(docker_workload.main, {"name": "ledger", **params}, check=check)

    return run


def source():
    """The ledger, as workload_info tells of it on the source."""
    inspect = copy.deepcopy(LEDGER)
    found = {**facts.facts_of(inspect, NETWORKS), "essence": facts.essence(inspect), "inspect": inspect}
    for mount in found["mounts"]:
        mount.update(volume={"driver": "local", "options": {}, "labels": {"a": "b"}}, directory_volume={"name": mount["name"]})
    return found


VOLUMES = sorted(mount["Name"] for mount in LEDGER["Mounts"])
PLANNED = {"made": True, "volumes": VOLUMES}


def test_a_twin_is_made_with_its_volumes_and_is_not_started(ask, daemon):
    result = ask(state="prepared", source=source(), planned=PLANNED)
    assert result["volumes"] == VOLUMES == sorted(daemon.volumes) and daemon.volumes["ledgerdata"]["Labels"] == {"a": "b"}
    assert daemon.containers["ledger"]["HostConfig"]["RestartPolicy"]["Name"] == "no" and daemon.started == []
    assert result["workload"]["id"] == "b" * 64 and result["reasons"][-1] == "there is no container named ledger"
    assert not ask(state="prepared", source=source())["changed"]


def test_a_check_makes_nothing(ask, daemon):
    assert ask(check=True, state="prepared", source=source())["volumes"] == VOLUMES
    assert daemon.containers == daemon.volumes == {}


def test_a_twin_that_differs_goes_again_with_its_volumes(ask, daemon):
    daemon.spoil = lambda inspect: inspect["HostConfig"].update(ShmSize=1)
    with pytest.raises(Exception, match="ledger would not be the same here: HostConfig.ShmSize is 67108864 on the source and 1 on this host"):
        ask(state="prepared", source=source(), planned=PLANNED)
    assert daemon.containers == daemon.volumes == {}


def test_a_twin_asks_for_the_addresses_that_it_keeps(ask, daemon):
    ask(state="prepared", source=source(), planned={**PLANNED, "addresses": {"lan": {"IPv4Address": "192.0.2.20"}}})
    assert daemon.endpoints["lan"]["IPAMConfig"] == {"IPv4Address": "192.0.2.20"}
    with pytest.raises(Exception, match="ledger would not keep 192.0.2.21 on the network lan here: remove it here, and move it again"):
        ask(state="prepared", source=source(), planned={"made": False, "volumes": [], "addresses": {"lan": {"IPv4Address": "192.0.2.21"}}})


def test_one_that_was_made_meanwhile_is_not_taken_for_the_moves_own(ask, daemon):
    daemon.volumes["ledgerdata"] = {"Name": "ledgerdata"}
    with pytest.raises(Exception, match="of ledgerdata is not what was there when the move was planned"):
        ask(state="prepared", source=source(), planned=PLANNED)
    assert daemon.containers == {} and list(daemon.volumes) == ["ledgerdata"]


def test_an_image_that_is_missing_is_named(ask, daemon):
    daemon.images = []
    with pytest.raises(Exception, match="the image localhost/handover/tools:lab .* is not on this host"):
        ask(state="prepared", source=source(), planned=PLANNED)
    assert daemon.volumes == {}


def test_one_that_runs_is_not_removed(ask, daemon):
    daemon.have(copy.deepcopy(LEDGER))
    daemon.volumes["ledgerdata"] = {"Name": "ledgerdata"}
    with pytest.raises(Exception, match="ledger is running on this host, so it is not removed"):
        ask(state="absent", volumes=["ledgerdata"])
    assert "ledger" in daemon.containers and "ledgerdata" in daemon.volumes


def test_one_that_is_stopped_goes_with_the_volumes_that_are_named(ask, daemon):
    stopped = copy.deepcopy(LEDGER)
    stopped["State"].update(Status="exited", Running=False)
    daemon.have(stopped)
    daemon.volumes = {name: {"Name": name} for name in ("ledgerdata", "other")}
    assert len(ask(check=True, state="absent", volumes=["ledgerdata"])["reasons"]) == 2 and "ledger" in daemon.containers
    assert ask(state="absent", volumes=["ledgerdata", "gone"])["changed"]
    assert daemon.containers == {} and list(daemon.volumes) == ["other"]
    assert not ask(state="absent", volumes=["ledgerdata"])["changed"]


def test_one_that_a_boot_has_ended_is_started(ask, daemon):
    with pytest.raises(Exception, match="there is no container named ledger on this host"):
        ask(state="started")
    stopped = copy.deepcopy(LEDGER)
    stopped["State"].update(Status="exited", Running=False)
    daemon.have(stopped)
    assert ask(state="started")["reasons"] == ["ledger is exited"]
    assert daemon.started == ["/containers/{0}/start".format(LEDGER["Id"])]


@pytest.mark.parametrize("policy", ["always", "no", "on-failure:3", "unless-stopped"])
def test_one_that_has_lost_its_restart_policy_has_it_again(ask, daemon, policy):
    lost = copy.deepcopy(LEDGER)
    lost["HostConfig"]["RestartPolicy"] = {"Name": "no" if policy != "no" else "always", "MaximumRetryCount": 0}
    daemon.have(lost)
    was = facts.restart_policy(lost)
    assert ask(check=True, state="settled", restart_policy=policy)["reasons"] == [f"the restart policy of ledger is {was} and not {policy}"]
    assert facts.restart_policy(lost) == was
    assert ask(state="settled", restart_policy=policy)["changed"]
    assert facts.restart_policy(daemon.containers["ledger"]) == policy
    assert not ask(state="settled", restart_policy=policy)["changed"] and daemon.started == []


def test_a_restart_policy_that_does_not_come_back_is_a_failure(ask, daemon):
    with pytest.raises(Exception, match="there is no container named ledger on this host, so its restart policy cannot be always"):
        ask(state="settled", restart_policy="always")
    lost = copy.deepcopy(LEDGER)
    lost["HostConfig"]["RestartPolicy"] = {"Name": "no", "MaximumRetryCount": 0}
    daemon.have(lost)
    daemon.stubborn = True
    with pytest.raises(Exception, match="was always before its move and is no now, and Docker does not change it .Docker refused POST .*it is being removed.: "
                                        "run `docker update --restart=always ledger` on this host"):  # fmt: skip
        ask(state="settled", restart_policy="always")


BRIDGE = {
    "Name": "shop_default", "Id": "c" * 64, "Scope": "local", "Driver": "bridge", "EnableIPv6": False, "Internal": False, "Attachable": False,
    "IPAM": {"Driver": "default", "Options": None, "Config": [{"Subnet": "172.18.0.0/16", "Gateway": "172.18.0.1"}]},
    "Ingress": False, "ConfigFrom": {"Network": ""}, "ConfigOnly": False, "Containers": {}, "Options": {},
    "Labels": {"com.docker.compose.network": "default", "com.docker.compose.project": "shop", "com.docker.compose.version": "2.26.1"},
}  # fmt: skip
KEPT = {"shop_default": {"IPv4Address": "172.18.0.3"}}


def on_a_bridge(name="ledger"):
    """It is on a network of compose's alone, with an address that Docker drew."""
    inspect = copy.deepcopy(LEDGER)
    inspect["Name"] = "/" + name
    inspect["HostConfig"]["NetworkMode"] = "shop_default"
    inspect["NetworkSettings"]["Networks"] = {"shop_default": {"IPAMConfig": None, "IPAddress": "172.18.0.3", "NetworkID": "c" * 64}}
    inspect["Mounts"] = []
    inspect["HostConfig"].update(Binds=None, Mounts=None)
    return {**facts.facts_of(inspect, [BRIDGE]), "essence": facts.essence(inspect), "inspect": inspect}


def bridged(*made, **more):
    return {"made": True, "volumes": [], "networks": list(made), "addresses": KEPT, **more}


def has(daemon, name="shop_default"):
    return [each for each in daemon.networks if each["Name"] == name]


def test_a_network_is_made_as_it_is_on_the_source_and_the_address_is_asked_for(ask, daemon):
    result = ask(state="prepared", source=on_a_bridge(), planned=bridged("shop_default"))
    (made,) = has(daemon)
    assert {**BRIDGE["IPAM"], "Options": {}} == made["IPAM"] and made["Labels"] == BRIDGE["Labels"]
    assert daemon.endpoints["shop_default"]["IPAMConfig"] == KEPT["shop_default"]
    assert "Docker has no network named shop_default" in result["reasons"]
    # Taken back, it goes; and again it is made.
    assert "the network shop_default was made for it" in ask(state="absent", around={"networks": ["shop_default"]})["reasons"]
    assert has(daemon) == []


def test_a_network_stays_when_the_move_has_ended_or_something_else_is_on_it(ask, daemon):
    ask(state="prepared", source=on_a_bridge(), planned=bridged("shop_default"))
    ask(state="settled")
    ask(state="absent", around={"networks": ["shop_default"]})
    assert has(daemon)
    daemon.networks.remove(*has(daemon))
    ask(state="prepared", source=on_a_bridge(), planned=bridged("shop_default"))
    has(daemon)[0]["Containers"] = {"d" * 64: {"Name": "other"}}
    ask(state="absent", around={"networks": ["shop_default"]})
    assert has(daemon)


def test_a_network_that_two_moves_need_goes_with_the_last_however_apart_they_were_planned(ask, daemon):
    ask(state="prepared", source=on_a_bridge(), planned=bridged("shop_default"))
    # The other one was planned when it was there already, and claimed.
    there = {"docker": {"networks": [{"name": "shop_default", "claimed": parts.Parts().claimed(parts.DOCKER_NETWORK, "shop_default")}]}}
    late = networks.to_make(Move("web", "node1", "node2", "live", {"workload": on_a_bridge("web")}, {"host": there}))
    assert late == ["shop_default"]
    ask(name="web", state="prepared", source=on_a_bridge("web"), planned=bridged(*late))
    ask(state="absent", around={"networks": ["shop_default"]})
    assert has(daemon)
    ask(name="web", state="absent", around={"networks": late})
    assert has(daemon) == []


def test_a_network_that_would_be_another_takes_the_move_back(ask, daemon):
    other = copy.deepcopy(BRIDGE)
    other["IPAM"]["Config"][0]["Subnet"] = "172.19.0.0/16"
    daemon.networks.append(other)
    with pytest.raises(Exception, match="shop_default would not be the same here: its set of subnets is 172.18.0.0/16 on the source and 172.19.0.0/16 on this"):
        ask(state="prepared", source=on_a_bridge(), planned=bridged("shop_default"))
    assert daemon.containers == {} and has(daemon) == [other]


def test_a_twin_that_differs_leaves_no_network(ask, daemon):
    daemon.spoil = lambda inspect: inspect["HostConfig"].update(ShmSize=1)
    with pytest.raises(Exception, match="would not be the same here"):
        ask(state="prepared", source=on_a_bridge(), planned=bridged("shop_default"))
    assert has(daemon) == []


def test_a_network_whose_subnet_docker_has_drawn_is_made_again_with_it(ask, daemon):
    daemon.networks.append(copy.deepcopy(BRIDGE))
    daemon.drawn.add("shop_default")
    result = ask(state="prepared", source=on_a_bridge(), planned=bridged())
    assert "Docker has drawn the subnet of the network shop_default" in result["reasons"]
    (made,) = has(daemon)
    assert made["Id"] != BRIDGE["Id"] and made["IPAM"]["Config"] == BRIDGE["IPAM"]["Config"] and made["Labels"] == BRIDGE["Labels"]
    # It was there before the move.
    ask(state="absent", around={"networks": []})
    assert has(daemon) == [made]


def test_a_network_beside_a_drawn_one_stays_as_it_is(ask, daemon):
    inspect = on_a_bridge()["inspect"]
    front = {**copy.deepcopy(BRIDGE), "Name": "a_front", "Id": "f" * 64, "Containers": {"d" * 64: {"Name": "other"}}}
    inspect["NetworkSettings"]["Networks"]["a_front"] = {"IPAMConfig": {"IPv4Address": "172.18.0.9"}}
    asked = {**facts.facts_of(inspect, [BRIDGE, front]), "essence": facts.essence(inspect), "inspect": inspect}
    daemon.networks += [front, copy.deepcopy(BRIDGE)]
    daemon.drawn.add("shop_default")
    ask(state="prepared", source=asked, planned=bridged())
    assert has(daemon, "a_front") == [front] and has(daemon)[0]["Id"] != BRIDGE["Id"]


@pytest.mark.parametrize("known", ["by its endpoint", "by its first network"])
def test_a_drawn_network_that_a_stopped_container_knows_by_its_id_stays(ask, daemon, known):
    stopped = copy.deepcopy(LEDGER)
    stopped.update(Name="/cron", Id="d" * 64, Mounts=[])
    if known == "by its endpoint":
        stopped["NetworkSettings"]["Networks"] = {"shop_default": {"NetworkID": BRIDGE["Id"]}}
    else:
        stopped["HostConfig"]["NetworkMode"] = BRIDGE["Id"]
    daemon.have(stopped)
    daemon.networks.append(copy.deepcopy(BRIDGE))
    daemon.drawn.add("shop_default")
    with pytest.raises(Exception, match="cannot keep its address on the network shop_default: Docker on this host has drawn its subnet, .* and cron there "
                                        "keeps it from being made again: .* --subnet 172.18.0.0/16"):  # fmt: skip
        ask(state="prepared", source=on_a_bridge(), planned=bridged())
    assert [each["Id"] for each in has(daemon)] == [BRIDGE["Id"]]


def test_a_twin_that_would_not_keep_its_address_is_removed(ask, daemon):
    daemon.networks.append(copy.deepcopy(BRIDGE))
    daemon.spoil = lambda inspect: inspect["NetworkSettings"]["Networks"]["shop_default"].pop("IPAMConfig")
    with pytest.raises(Exception, match="ledger would not keep 172.18.0.3 on the network shop_default here"):
        ask(state="prepared", source=on_a_bridge(), planned=bridged())
    assert daemon.containers == {}


def test_the_places_of_bind_mounts_are_made_and_go_again(ask, daemon, tmp_path):
    folder, file = tmp_path / "srv" / "files", tmp_path / "srv" / "conf"
    folders = [str(file), str(folder), str(folder.parent)]
    asked = source()
    asked["mounts"] += [
        {"type": "bind", "name": "", "source": str(path), "kind": kind, "directory_volume": None} for path, kind in ((folder, "directory"), (file, "file"))
    ]
    planned = {**PLANNED, "folders": folders}
    ask(check=True, state="prepared", source=asked, planned=planned)
    assert not folder.parent.exists()
    ask(state="prepared", source=asked, planned=planned)
    assert folder.is_dir() and file.read_bytes() == b""
    # Undone: what is not empty belongs to somebody.
    (folder / "note").write_text("foreign")
    ask(state="absent", volumes=VOLUMES, folders=folders)
    assert (folder / "note").exists() and not file.exists()


def test_a_twin_that_differs_leaves_no_place_of_a_bind_mount(ask, daemon, tmp_path):
    daemon.spoil = lambda inspect: inspect["HostConfig"].update(ShmSize=1)
    with pytest.raises(Exception, match="would not be the same here"):
        ask(state="prepared", source=source(), planned={**PLANNED, "folders": [str(tmp_path / "files")]})
    assert not (tmp_path / "files").exists()


def test_a_folder_that_has_moved_away_is_put_aside(ask, daemon, tmp_path):
    (tmp_path / "files").mkdir()
    assert ask(check=True, state="absent", aside=[str(tmp_path / "files")])["changed"] and (tmp_path / "files").exists()
    assert ask(state="absent", aside=[str(tmp_path / "files")])["reasons"] == ["{0} is there".format(tmp_path / "files")]
    assert not (tmp_path / "files").exists() and (tmp_path / "files.migrated").is_dir()
    assert not ask(state="absent", aside=[str(tmp_path / "files")])["changed"]


def test_a_daemon_that_does_not_answer_is_told(ask, daemon, monkeypatch):
    monkeypatch.setattr(api.Docker.__init__, "__defaults__", ("/nowhere.sock",))
    with pytest.raises(Exception, match="Docker does not answer at /nowhere.sock .*: see `systemctl status docker`"):
        ask(state="absent")


def test_the_facts_of_a_container_and_its_host(run_module, daemon, tmp_path):
    daemon.have(copy.deepcopy(LEDGER))
    daemon.volumes = {name: {"Name": name, "Driver": "local", "Labels": None, "Options": None} for name in VOLUMES[1:]}
    asked = {"workload": LEDGER["Id"][:12], "driver": "docker", "images": str(tmp_path), "sessions": str(tmp_path)}
    answer = run_module(workload_info.main, asked)
    workload = answer["workload"]
    assert (workload["name"], workload["running"], workload["unaccounted"]) == ("ledger", True, [])
    assert [bool(mount["directory_volume"]) for mount in sorted(workload["mounts"], key=lambda each: each["name"])] == [False, True, True]
    assert answer["host"]["docker"]["installed"] and {"name": "lan", "driver": "macvlan"}.items() <= answer["host"]["docker"]["networks"][3].items()
    brief = run_module(workload_info.main, {**asked, "brief": True})["workload"]
    assert (brief["exists"], brief["running"], brief["name"]) == (True, True, "ledger")
    assert not run_module(workload_info.main, {**asked, "workload": "gone", "brief": True})["workload"]["exists"]


def test_a_host_without_docker_has_no_container(run_module, daemon, monkeypatch, tmp_path):
    monkeypatch.setattr(look, "SOCKET", str(tmp_path / "none"))
    asked = {"workload": "ledger", "driver": "docker", "images": str(tmp_path), "sessions": str(tmp_path)}
    answer = run_module(workload_info.main, asked)
    assert not answer["workload"]["exists"] and not answer["host"]["docker"]["installed"]


DISK = {"name": "disk", "mountpoint": "/mnt/disk", "fstype": "ext4", "options": "rw"}
BOUND = {"type": "volume", "name": "bound", "source": "/mnt/disk", "destination": "/data", "driver": "local", "read_only": False}


class Copy:
    """The ledger in a backup, and the host on which it is no more. The copy has all of its files."""

    def __init__(self, folder, daemon):
        self.folder, self.daemon = folder, daemon
        self.disk = {**DISK, "image": str(folder / "disk.img"), "mountpoint": str(folder / "mnt")}
        self.configuration = source()
        bound = {"driver": "local", "options": {"device": self.disk["mountpoint"], "type": "none", "o": "bind"}, "labels": {}}
        (ledger, *_anonymous) = [mount for mount in self.configuration["mounts"] if mount["name"] == "ledgerdata"]
        ledger.update(volume=bound, directory_volume=None, directory=self.disk["mountpoint"])
        for mount in self.configuration["mounts"]:
            mount["image_volume"] = self.disk if mount is ledger else None
        self.plain = [name for name in VOLUMES if name != "ledgerdata"]
        self.fails = ""
        self.memory = []
        self.mounted = []
        self.addresses_in_use = []

    def write(self):
        kept = snapshot_records.Snapshots(str(self.folder), "ledger")
        kept.forget("backup-1")
        place = pathlib.Path(kept.begin("backup-1"))
        (place / disk_store.CONFIGURATION).write_text(json.dumps(self.configuration))
        folders = [{"name": name} for name in self.plain]
        disks = {"volumes": [self.disk], "folders": folders, "disks": True, "store": "/s", "point": "1", "memory": bool(self.memory)}
        for name in self.memory:
            (place / name).mkdir()
            (place / name / "then").touch()
        kept.finish("backup-1", {"name": "backup-1", "taken": "2026", "driver": "docker", **disks})

    def make(self, check=False, **given):
        self.write()
        self.name = given.get("name", "ledger")
        params = {
            "name": self.name, "workload": "ledger", "snapshot": "backup-1", "state": "present", "root": str(self.folder), "repository": "", "macs": [],
            "addresses": [], "own_name": True, "memory": False, "start": None, "timeout": 30, **given,
        }  # fmt: skip
        return cloner.clone(types.SimpleNamespace(params=params, check_mode=check))

    def lay(self, _record, volume, path):
        pathlib.Path(path).write_text(volume)

    def fill(self, _record, volume, path):
        if self.fails:
            raise runtime.HandoverError(self.fails)
        assert self.name not in self.daemon.containers, "a container that could be started before its files are there"
        (pathlib.Path(path) / "said").write_text(volume)

    def in_turn(self, _module, _table, steps):
        for step in (step["image_volume"] for step in steps):
            assert step["state"] == "absent" or pathlib.Path(step["image"]).exists()
            self.mounted.append((step["name"], step["state"]))
            if step["state"] == "absent":
                pathlib.Path(step["image"]).unlink(missing_ok=True)
        return {}


@pytest.fixture
def lost(tmp_path, daemon, monkeypatch):
    copy_of = Copy(tmp_path, daemon)
    monkeypatch.setattr(clones, "LOCKS", str(tmp_path / "locks"))
    monkeypatch.setattr(docker_rows, "runs", lambda _runtime: True)
    monkeypatch.setattr(runtime.Runtime, "find", lambda self, tool: "/usr/bin/" + tool)
    monkeypatch.setattr(disk_store.DiskStore, "has", lambda self, word: True)
    for name in ("lay", "fill"):
        monkeypatch.setattr(snapshot_disks.SnapshotDisks, name, lambda self, *words, which=name: getattr(copy_of, which)(*words))
    monkeypatch.setattr(snapshot_disks.SnapshotDisks, "need", lambda self, record: 4096)
    monkeypatch.setattr(clone_parts, "in_turn", copy_of.in_turn)
    monkeypatch.setattr(clone_parts, "copy", lambda _runtime, source, target: shutil.copytree(source, target, dirs_exist_ok=True))
    monkeypatch.setattr(api.Docker, "networks", lambda self: [{**network, "Containers": {}} for network in NETWORKS])
    monkeypatch.setattr(docker_maker, "in_use", lambda _interface, address: str(address) in copy_of.addresses_in_use)
    return copy_of


def test_a_lost_container_is_made_again_from_a_copy(lost, daemon, tmp_path):
    # Docker copies what the image has there into a volume that it finds empty.
    daemon.spoil = lambda inspect: (daemon.folder / lost.plain[0] / "of-the-image").touch()
    made = lost.make()
    assert not (daemon.folder / lost.plain[0] / "of-the-image").exists()
    assert made["clone"]["whole"] and made["left_out"] == [] and lost.mounted == [("disk", "mounted")]
    assert {name: (daemon.folder / name / "said").read_text() for name in lost.plain} == {name: name for name in lost.plain}
    assert daemon.volumes["ledgerdata"]["DriverOpts"]["device"] == lost.disk["mountpoint"]
    assert daemon.containers["ledger"]["HostConfig"]["RestartPolicy"]["Name"] == "always"
    assert daemon.started == ["/containers/" + "b" * 64 + "/start"]
    assert clones.Clones(str(tmp_path)).read("ledger") is None, "a later run would remove its volumes"


@pytest.mark.parametrize("fails", [False, True])
def test_a_lost_container_runs_on_from_its_memory_before_it_has_its_policy(lost, daemon, monkeypatch, tmp_path, fails):
    lost.memory = ["checkpoint", "layer"]
    places = {"id": "b" * 64, "upper_dir": str(tmp_path / "diff"), "checkpoint_dir": str(tmp_path / "images"), "static_dir": str(tmp_path)}
    (tmp_path / "diff").mkdir()
    seen = []

    def run_on(_runtime, _docker, name, facts):
        seen.append((name, facts["id"], [os.listdir(facts[place]) for place in ("upper_dir", "checkpoint_dir")], daemon.policies()))
        if fails:
            raise runtime.HandoverError("criu failed")
        daemon.containers[name]["State"]["Running"] = True

    monkeypatch.setattr(docker_engine.DockerEngine, "container", lambda self, name: places)
    monkeypatch.setattr(docker_engine.DockerEngine, "look_for_restore", lambda self, name: seen.append(name))
    monkeypatch.setattr(docker_engine.docker_memory, "run_on", run_on)
    if fails:
        with pytest.raises(runtime.HandoverError, match="criu failed"):
            lost.make(memory=True)
    else:
        assert lost.make(memory=True)["clone"]["whole"]
    assert seen == ["ledger", ("ledger", "b" * 64, [["then"], ["then"]], ["no"])]
    assert daemon.policies() == ["always"] and daemon.started == [], "it runs on, or its operator starts it"


def test_the_layer_comes_back_with_the_disks(lost, monkeypatch, tmp_path):
    lost.memory = ["checkpoint", "layer"]
    places = {"id": "b" * 64, "upper_dir": str(tmp_path / "diff"), "checkpoint_dir": str(tmp_path / "images"), "static_dir": str(tmp_path)}
    monkeypatch.setattr(docker_engine.DockerEngine, "container", lambda self, name: places)
    lost.make()
    assert os.listdir(tmp_path / "diff") == ["then"] and not (tmp_path / "images").exists()


def test_a_check_makes_no_container_of_a_copy(lost, daemon):
    assert lost.make(check=True)["changed"]
    assert daemon.containers == daemon.volumes == {} and lost.mounted == []


@pytest.mark.parametrize("way", ["a failure", "a kill"])
def test_half_of_it_is_removed_and_then_it_is_made(lost, daemon, tmp_path, monkeypatch, way):
    lost.fails = "the repository is damaged"
    with monkeypatch.context() as killed:
        if way == "a kill":
            killed.setattr(docker_maker.DockerMaker, "_undo", lambda self, record: None)
        with pytest.raises(runtime.HandoverError, match="the repository is damaged"):
            lost.make()
    left = clones.Clones(str(tmp_path)).read("ledger")
    assert (left is None, daemon.volumes == {}, (tmp_path / "disk.img").exists()) == (way == "a failure", way == "a failure", way == "a kill")
    lost.fails = ""
    assert lost.make()["clone"]["whole"] and len(daemon.started) == 1


def test_another_container_of_the_name_is_not_removed_with_a_killed_runs_half(lost, daemon, tmp_path):
    left = {"origin": "ledger@backup-1", "driver": "docker", "whole": False, "volumes": [], "docker_volumes": []}
    clones.Clones(str(tmp_path)).write("ledger", left)
    daemon.have({**copy.deepcopy(LEDGER), "State": {"Status": "exited", "Running": False}})
    for state in ("present", "absent"):
        with pytest.raises(runtime.HandoverError, match="the container ledger is another than the clone of ledger@backup-1"):
            lost.make(state=state)
    assert "ledger" in daemon.containers
    daemon.containers["ledger"]["State"]["Status"] = "created"
    assert lost.make(state="absent")["changed"] and daemon.containers == {}


@pytest.mark.parametrize("spoil, said", [
    (lambda lost: lost.daemon.have({**copy.deepcopy(LEDGER), "State": {"Status": "exited", "Running": False}}), "there is a container named ledger"),
    (lambda lost: lost.daemon.images.clear(), "is not on this host: bring it here with docker save and docker load"),
    (lambda lost: lost.daemon.volumes.update({lost.plain[0]: {"Name": lost.plain[0], "Driver": "local"}}), "Docker has a volume .* go back to the backup"),
    (lambda lost: lost.daemon.volumes.update(ledgerdata={"Name": "ledgerdata", "Driver": "local"}), "the volume ledgerdata of Docker's is another than"),
    (lambda lost: lost.plain.pop(), "and the copy has none of its files: make it"),
    (lambda lost: pathlib.Path(lost.disk["image"]).write_text("newer"), "disk.img is there, where a volume of ledger is to be"),
    (lambda lost: lost.configuration["networks"][0].update(subnets=["10.9.0.0/16"]), "the network lan of Docker's is another than ledger was on"),
    (lambda lost: lost.configuration["networks"][0].update(name="gone"), "Docker has no network named gone on this host"),
    (lambda lost: lost.configuration["networks"][0].update(ip="", ip6=""), "ledger had no fixed address on the network lan"),
    (lambda lost: lost.addresses_in_use.append(lost.configuration["networks"][0]["ip"]), "is in use on the network lan"),
    (lambda lost: lost.configuration.update(unaccounted=["HostConfig.New"]), "ledger has HostConfig.New, which is not known here"),
    (lambda lost: lost.configuration["mounts"].append({**BOUND, "type": "bind", "source": "/no/such", "image_volume": None}), "ledger mounts /no/such"),
])  # fmt: skip
def test_nothing_is_made_of_a_copy_where_something_is_in_the_way(lost, daemon, spoil, said):
    spoil(lost)
    before = copy.deepcopy(daemon.volumes)
    with pytest.raises(runtime.HandoverError, match=said):
        lost.make()
    assert daemon.volumes == before and daemon.started == [] and lost.mounted == []


@pytest.mark.parametrize("given, said", [
    ({"own_name": False}, "is the name of the container itself, which may run on another host"),
    ({"addresses": ["10.213.0.9"]}, "comes back with the addresses that it had"),
    ({"memory": True}, "ledger cannot run on from the memory of ledger@backup-1"),
])  # fmt: skip
def test_what_is_not_made_of_a_copy_of_dockers(lost, given, said):
    with pytest.raises(runtime.HandoverError, match=said):
        lost.make(**given)


FREE = "192.0.2.77"


@pytest.fixture
def origin(lost, daemon):
    """It is there and runs, and publishes a port; a project of docker compose has it."""
    lost.configuration["inspect"]["Config"]["Labels"].update({"com.docker.compose.project": "books", "kept": "1"})
    lost.configuration["ports"] = ["80/tcp"]
    lost.configuration["inspect"]["HostConfig"]["PortBindings"] = {"80/tcp": [{"HostIp": "", "HostPort": "80"}]}
    daemon.have(copy.deepcopy(LEDGER))
    for name in VOLUMES:
        daemon.volumes[name] = {"Name": name, "Driver": "local", "Mountpoint": str(daemon.folder)}
    return lost


def test_another_container_is_made_of_a_copy_and_removed(origin, daemon, tmp_path):
    first = copy.deepcopy((daemon.containers["ledger"], {name: daemon.volumes[name] for name in VOLUMES}))
    made = origin.make(name="try", addresses=[FREE])
    assert made["clone"]["whole"] and made["addresses"] == [FREE] and made["left_out"] == ["port 80/tcp of the host, which is ledger's"]
    assert daemon.started == ["/containers/" + "b" * 64 + "/start"] and origin.mounted == [("try-disk", "mounted")]
    found = daemon.containers["try"]
    assert found["Config"]["Labels"]["livefleet.handover.clone"] == "ledger@backup-1" and found["Config"]["Labels"]["kept"] == "1"
    assert "com.docker.compose.project" not in found["Config"]["Labels"] and found["HostConfig"]["PortBindings"] == {}
    assert found["Config"]["Hostname"] == "try" and LEDGER["Config"]["Hostname"] == LEDGER["Id"][:12]
    assert daemon.endpoints["lan"] == {"IPAMConfig": {"IPv4Address": FREE}}
    assert {(daemon.folder / ("try-" + name) / "said").read_text() for name in origin.plain} == set(origin.plain)
    assert daemon.volumes["try-ledgerdata"]["DriverOpts"]["device"] == str(tmp_path / "try-mnt")
    assert not {bind.partition(":")[0] for bind in found["HostConfig"]["Binds"]} & set(VOLUMES), "a volume that both would write to"
    again = origin.make(name="try", addresses=[FREE])
    assert not again["changed"]
    daemon.containers["try"]["State"].update(Status="exited", Running=False)
    assert origin.make(name="try", state="absent")["changed"]
    assert (daemon.containers["ledger"], daemon.volumes) == first and list(daemon.containers) == ["ledger"]
    assert not (tmp_path / "try-disk.img").exists()


def test_nothing_of_a_clone_stays_where_it_does_not_start(origin, daemon, monkeypatch, tmp_path):
    daemon.refuses = "port is already allocated"
    with pytest.raises(runtime.HandoverError, match="port is already allocated"):
        origin.make(name="try", addresses=[FREE])
    assert list(daemon.containers) == ["ledger"] and sorted(daemon.volumes) == VOLUMES and clones.Clones(str(tmp_path)).read("try") is None


def test_a_container_that_took_a_clones_name_stays(origin, daemon):
    origin.make(name="try", addresses=[FREE])
    daemon.containers["try"]["Config"]["Labels"] = {}
    for state, said in (("present", "the container try is gone, and"), ("absent", "the container try is another than the clone of ledger@backup-1")):
        with pytest.raises(runtime.HandoverError, match=said):
            origin.make(name="try", state=state)
    assert "try" in daemon.containers and "try-ledgerdata" in daemon.volumes


@pytest.mark.parametrize("spoil, given, said", [
    (lambda lost: None, {}, "the network lan leads out of this host, where Docker does not know which addresses are free"),
    (lambda lost: None, {"addresses": [FREE, "10.9.9.9"]}, "10.9.9.9 is in no network of ledger"),
    (lambda lost: None, {"addresses": ["nowhere"]}, "nowhere is no address"),
    (lambda lost: lost.addresses_in_use.append(FREE), {"addresses": [FREE]}, "is in use on the network lan"),
    (lambda lost: lost.plain.pop(), {"addresses": [FREE]}, "is no part of the snapshot, and the clone would write to it, too"),
    (lambda lost: lost.configuration["inspect"]["HostConfig"].update(NetworkMode="host"), {"addresses": [FREE]}, "the clone would have the same address"),
    (lambda lost: lost.configuration["networks"][0].update(name="gone"), {"addresses": [FREE]}, "Docker has no network named gone"),
    (lambda lost: lost.daemon.have({**copy.deepcopy(LEDGER), "Name": "/try"}), {"addresses": [FREE]}, "there is a container named try on this host"),
])  # fmt: skip
def test_no_other_is_made_where_something_is_in_the_way(origin, daemon, spoil, given, said):
    spoil(origin)
    with pytest.raises(runtime.HandoverError, match=said):
        origin.make(name="try", **given)
    assert sorted(daemon.volumes) == VOLUMES and daemon.started == [] and origin.mounted == []
