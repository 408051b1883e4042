# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""host_info: the containers, the guests and the unfinished moves of a host, and no empty answer for one that cannot be asked."""

from __future__ import annotations

import json
import os

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._core import host as core_host, loop, maintenance
from ansible_collections.livefleet.handover.plugins.module_utils._core.runtime import Completed, HandoverError, Runtime
from ansible_collections.livefleet.handover.plugins.module_utils._docker import recorded
from ansible_collections.livefleet.handover.plugins.module_utils._drivers import docker_rows, openvz_rows
from ansible_collections.livefleet.handover.plugins.module_utils._kvm import guests
from ansible_collections.livefleet.handover.plugins.module_utils._openvz.driver import look
from ansible_collections.livefleet.handover.plugins.modules import host_info

GUEST = "<domain type='kvm'><name>web1</name><memory unit='MiB'>256</memory><devices/></domain>"


class Host:
    """A host with the tools named, whose podman has these containers and whose libvirt has these guests."""

    def __init__(self, folder):
        self.folder = folder
        self.tools = {"podman"}
        self.containers = {}  # name → (state, inspect)
        self.volumes = []
        self.guests = {}
        self.silent = set()  # commands that fail

    def find(self, tool):
        return "/usr/bin/" + tool if tool in self.tools else None

    def run(self, argv, accept=(0,), stdin=None, timeout=None):
        words = " ".join(str(word) for word in argv)
        if any(each in words for each in self.silent):
            raise HandoverError(f"{words} failed: as the test wants it")
        if "virsh" in argv[0]:
            verb, name = argv[4], argv[-1]
            return Completed(tuple(argv), 0, {"list": "\n".join(self.guests), "dumpxml": GUEST, "domstate": self.guests.get(name, "") + "\n"}[verb], "")
        if "ps" in argv:
            out = [{"Id": "id-" + name, "Names": [name], "State": state, "Labels": None} for name, (state, _inspect) in self.containers.items()]
            out.append({"Id": "pause", "Names": ["pod-infra"], "State": "running", "IsInfra": True})
        elif "volume" in argv:
            out = self.volumes
        else:
            out = [self.containers[argv[-1][3:]][1]]
        return Completed(tuple(argv), 0, json.dumps(out), "")


@pytest.fixture(name="host")
def the_host(monkeypatch, tmp_path):
    fake = Host(tmp_path)
    monkeypatch.setattr(Runtime, "run", lambda self, argv, accept=(0,), stdin=None, timeout=None: fake.run(argv, accept, stdin, timeout))
    monkeypatch.setattr(Runtime, "find", lambda self, tool: fake.find(tool))
    monkeypatch.setattr(maintenance, "read", lambda: None)
    monkeypatch.setattr(loop, "read_mounts", lambda *args, **more: [])
    monkeypatch.setattr(host_info, "HELPER", str(tmp_path / "pcopy"))
    monkeypatch.setattr(docker_rows, "SOCKET", str(tmp_path / "docker.sock"))
    monkeypatch.setattr(guests, "unfinished", lambda names, made=guests.unfinished: made(names, str(tmp_path / "moves")))
    return fake


@pytest.fixture(name="ask")
def the_module(run_module, host):
    def ask(check=False):
        answer = run_module(host_info.main, {"images": str(host.folder), "sessions": str(host.folder / "sessions")}, check=check)
        assert not answer["changed"]
        return answer

    return ask


@pytest.mark.parametrize("check", [False, True])
def test_containers_with_their_disk_and_without_those_of_a_pod_itself(ask, host, check):
    for name in ("layer", "data"):
        (host.folder / name).mkdir()
        (host.folder / name / "file").write_bytes(b"x" * 8192)
    mount = {"Type": "volume", "Name": "data", "Source": "/elsewhere"}
    layer = {"GraphDriver": {"Data": {"UpperDir": str(host.folder / "layer")}}}
    host.volumes = [{"Name": "data", "Options": {"device": str(host.folder / "data")}}]
    host.containers = {"shop": ("exited", {**layer, "Mounts": [mount]}), "till": ("created", layer)}
    shop, till = ask(check)["workloads"]
    assert (shop["name"], shop["kind"], shop["running"], shop["state"], shop["memory"], shop["labels"]) == ("shop", "container", False, "exited", 0, {})
    assert shop["disk"] == 2 * till["disk"] > 0


def test_containers_that_cannot_be_parted_are_one_workload(ask, host):
    host.containers = {
        "web": ("exited", {"Dependencies": ["id-db"]}),
        "db": ("exited", {"Dependencies": []}),
        "other": ("exited", {}),
    }
    assert sorted((each["name"], each.get("members")) for each in ask()["workloads"]) == [("db+web", ["db", "web"]), ("other", None)]


def test_a_container_that_podman_does_not_answer_about_has_no_disk(ask, host):
    host.containers = {"shop": ("exited", {})}
    host.silent = {"container inspect"}
    assert [each["disk"] for each in ask()["workloads"]] == [0]


@pytest.mark.parametrize(
    ("tools", "kinds"),
    [({"podman"}, ["container"]), ({"virsh", "libvirtd"}, ["guest"]), ({"podman", "virsh", "virtqemud"}, ["container", "guest"])],
)
def test_a_host_offers_the_kinds_that_it_has_the_programs_for(ask, host, tools, kinds):
    host.tools = tools
    host.guests = {"web1": "running"}
    answer = ask()
    assert answer["kinds"] == kinds
    assert [(each["name"], each["memory"]) for each in answer["workloads"]] == ([("web1", 256 << 20)] if "guest" in kinds else [])


def test_a_host_with_neither_is_told_what_is_missing(ask, host):
    host.tools = set()
    with pytest.raises(Exception, match="podman is missing on this host: install the package podman"):
        ask()


class Dockers:
    """A daemon with one container, that runs by the test's own process."""

    def __init__(self, folder):
        self.folder = folder

    def get(self, kind):
        assert kind == "networks"
        return [{"Name": "bridge", "Driver": "bridge"}, {"Name": "shop_default", "Driver": "bridge"}, {"Name": "lan", "Driver": "macvlan"}]

    def containers(self):
        return [{"Id": "1", "Names": ["/web"], "Labels": {"tier": "front"}}, {"Id": "2", "Names": ["/gone"]}]

    def inspect(self, identifier):
        if identifier == "2":
            return None
        mounts = [{"Type": "volume", "Source": str(self.folder / "data")}, {"Type": "bind", "Source": str(self.folder)}]
        layer = {"Data": {"UpperDir": str(self.folder / "layer")}}
        networks = {"Networks": dict.fromkeys(("bridge", "lan", "shop_default"), {})}
        return {"State": {"Status": "running", "Pid": os.getpid()}, "GraphDriver": layer, "Mounts": mounts, "NetworkSettings": networks}


VZCTL = {
    "101": "CTID 101 exist mounted running\n", "102": "CTID 102 exist unmounted down\n", "103": "CTID 103 deleted unmounted down\n",
}  # fmt: skip


@pytest.fixture(name="openvz")
def a_host_of_openvzs(host, monkeypatch, tmp_path):
    """Three configurations, one of them of a container that is gone, and those that are none of a container's."""
    folder = tmp_path / "conf"
    folder.mkdir()
    for name in (*VZCTL, "0", "ve-basic.conf-sample", "ve-light"):
        (folder / f"{name}.conf").write_text('PRIVVMPAGES="1"\n', encoding="utf-8")
    (tmp_path / "101").write_text("          kmemsize  1 2 3 4 0\n        physpages  2048  4096  0  131072  0\n", encoding="utf-8")
    monkeypatch.setattr(look, "FOLDER", str(folder))
    monkeypatch.setattr(openvz_rows.look, "ACCOUNT", str(tmp_path / "{0}"))
    asked = host.run
    host.tools = {"vzctl"}
    host.run = lambda argv, *more: Completed(tuple(argv), 0, VZCTL[argv[-1]], "") if argv[1] == "status" else asked(argv, *more)
    return host


def test_containers_of_openvzs_are_told_by_their_ids(ask, openvz):
    answer = ask()
    assert answer["kinds"] == ["openvz"]
    assert [(each["name"], each["running"], each["state"], each["memory"]) for each in answer["workloads"]] == [
        ("101", True, "running", 2048 * os.sysconf("SC_PAGE_SIZE")), ("102", False, "stopped", 0)
    ]  # fmt: skip
    openvz.tools.add("podman")
    openvz.containers = {"shop": ("exited", {})}
    answer = ask()
    assert answer["kinds"] == ["container", "openvz"]
    assert sorted(each["name"] for each in answer["workloads"]) == ["101", "102", "shop"]


def test_containers_of_dockers_are_told_beside_podmans(ask, host, monkeypatch):
    for name in ("layer", "data"):
        (host.folder / name).mkdir()
        (host.folder / name / "file").write_bytes(b"x" * 8192)
    host.containers = {"shop": ("exited", {})}
    monkeypatch.setattr(docker_rows, "runs", lambda runtime: True)
    monkeypatch.setattr(docker_rows, "Docker", lambda runtime: Dockers(host.folder))
    answer = ask()
    assert answer["kinds"] == ["container", "docker"]
    web = next(each for each in answer["workloads"] if each["kind"] == "docker")
    assert (web["name"], web["running"], web["state"], web["labels"]) == ("web", True, "running", {"tier": "front"})
    assert web["memory"] > 0 and web["bridges"] == ["shop_default"]
    assert web["disk"] == sum(core_host.allocated(str(host.folder / name)) for name in ("layer", "data"))
    assert len(answer["workloads"]) == 2


def test_a_docker_that_is_down_is_not_asked(ask, host, monkeypatch):
    """It would be started, and each container of a restart policy with it."""
    monkeypatch.setattr(recorded, "containers", lambda runtime: [{"Name": "web", "Mounts": []}])
    monkeypatch.setattr(docker_rows, "Docker", lambda runtime: pytest.fail("it was asked"))
    # The socket is there, as systemd keeps it, and the unit is not active.
    monkeypatch.setattr(docker_rows, "SOCKET", str(host.folder))
    monkeypatch.setattr(Runtime, "run", lambda self, argv, **more: Completed(tuple(argv), 3, "", "") if argv[0] == "systemctl" else host.run(argv, **more))
    answer = ask()
    assert answer["kinds"] == ["container"]
    assert [(each["name"], each["untold"]) for each in answer["workloads"]] == [("web", docker_rows.DOWN)]


@pytest.mark.parametrize("silent", ["ps --all", "volume ls", "virsh"])
def test_a_program_that_does_not_answer_makes_no_empty_host(ask, host, silent):
    host.tools = {"podman", "virsh", "libvirtd"}
    host.silent = {silent}
    with pytest.raises(Exception, match=f"{silent}.* failed: as the test wants it"):
        ask()


def test_moves_of_guests_that_were_begun_are_told(ask, host):
    host.tools = {"virsh", "libvirtd"}
    (host.folder / "moves").mkdir()
    (host.folder / "moves" / "web1").write_text(json.dumps({"guest": "web1", "destination": "node2"}))
    (session,) = ask()["sessions"]
    assert (session["id"], session["state"], session["destination"]) == ("web1", "in_doubt", "node2")
    host.guests = {"web1": "running"}
    assert [each["state"] for each in ask()["sessions"]] == ["presync"]


def test_sessions_of_the_helper_are_told_with_the_destination_of_their_plan(ask, host, helper, monkeypatch):
    monkeypatch.setattr(Runtime, "run", lambda self, argv, accept=(0,), stdin=None, timeout=None: host.run(argv, accept, stdin, timeout))
    monkeypatch.setattr(Runtime, "find", lambda self, tool: host.find(tool))
    helper.root = host.folder / "sessions"
    helper.root.mkdir()
    helper.place("shop-1", state="presync", running=True)
    (helper.root / "shop-1" / "plan.json").write_text(json.dumps({"boot_id": "", "plan": {"destination": "node2"}}))
    assert ask()["sessions"] == [], "a host without the helper has none"
    (host.folder / "pcopy").touch(mode=0o755)
    told = {"id": "shop-1", "role": "source", "workload": "shop", "state": "presync", "ended": False, "running": True, "destination": "node2"}
    assert ask()["sessions"] == [{**told, "kind": "container"}]
    (helper.root / "shop-1" / "plan.json").write_text(json.dumps({"boot_id": "", "plan": {"destination": "node2", "driver": "docker"}}))
    assert ask()["sessions"] == [{**told, "kind": "docker"}]
