# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The steps of a move that concern a unit: on a host whose systemd is made up."""

from __future__ import annotations

import base64
import json
import os
import socket
import threading
import types

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._core.runtime import HandoverError
from ansible_collections.livefleet.handover.plugins.module_utils._podman import (
    service_files as files_of,
    service_guard as guard_of,
    service_move,
    service_notify,
    service_pod,
)

ID, TWIN = "3" * 64, "f" * 64


class Systemd:
    """systemctl: it reads the drop-ins that are there, and remembers what it was told."""

    def __init__(self, root):
        self.root = root
        self.said = []
        self.state = {"LoadState": "loaded", "ActiveState": "active", "MainPID": "7", "ControlGroup": "/system.slice/shop.service"}
        self.takes_drop_ins = True

    def tool(self, name, _package):
        return name

    def wait_for(self, condition, _seconds):
        return condition()

    def run(self, argv, accept=(0,), timeout=None):
        words = list(argv)[1:]
        if words[0] == "show":
            there = guard_of.added("shop.service") if self.takes_drop_ins else []
            return types.SimpleNamespace(stdout="".join("{0}={1}\n".format(*row) for row in {**self.state, "DropInPaths": " ".join(there)}.items()), rc=0)
        self.said.append(" ".join(words))
        return types.SimpleNamespace(stdout="", rc=0)


@pytest.fixture
def host(tmp_path, monkeypatch):
    monkeypatch.setattr(guard_of, "LASTING", str(tmp_path / "etc"))
    monkeypatch.setattr(guard_of, "PASSING", str(tmp_path / "run"))
    monkeypatch.setattr(files_of, "place_until_settled", lambda path, kind: str(tmp_path / "run" / os.path.basename(path)))
    systemd = Systemd(tmp_path)
    kept = []

    def unit(**other):
        service = {
            "unit": "shop.service", "kind": "unit", "adoption": "inside", "active": True, "enabled": "enabled", "slice": "system.slice", "id": ID,
            "auto_remove": False, "made_by_unit": True, "split": True, "cidfile": "", "companions": [],
            "files": [{"path": str(tmp_path / "etc/shop.service"), "role": "unit", "mode": "0644", "content": base64.b64encode(b"[Service]\n").decode()}],
            **other,
        }  # fmt: skip
        made = service_move.Unit(systemd, service)
        made.keep = kept.append
        made._stands_in = lambda: 0
        return made

    return types.SimpleNamespace(systemd=systemd, unit=unit, kept=kept, root=tmp_path, guard=tmp_path / "etc/shop.service.d" / guard_of.GUARD)


def put(path, text="[Service]\n"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


class TestSource:
    def test_it_is_held_before_the_container_is_frozen_and_free_again(self, host):
        unit = host.unit()
        unit.hold("/sessions/shop-1", live=True)
        assert "unit-may-start source /sessions/shop-1" in host.guard.read_text(encoding="utf-8")
        assert host.systemd.said == ["daemon-reload"] and host.kept == [False]
        unit.free(start=True)
        assert not host.guard.exists() and host.systemd.said == ["daemon-reload"] * 2 and host.kept == [False, True]

    def test_a_guard_that_systemd_does_not_take_stops_the_move(self, host):
        host.systemd.takes_drop_ins = False
        with pytest.raises(HandoverError, match="systemd does not take .* for a part of shop.service"):
            host.unit().hold("/sessions/shop-1", live=True)

    def test_a_unit_whose_container_has_ended_is_started_when_the_move_is_undone(self, host):
        host.systemd.state["ActiveState"] = "failed"
        host.unit().free(start=True)
        assert host.systemd.said == ["reset-failed shop.service", "start shop.service"]

    def test_and_not_one_that_was_not_active(self, host):
        host.systemd.state["ActiveState"] = "inactive"
        host.unit(active=False).free(start=True)
        assert host.systemd.said == []

    def test_its_files_go_before_the_guard_does(self, host, monkeypatch):
        host.systemd.state["ActiveState"] = "failed"
        put(host.root / "etc/shop.service")
        unit = host.unit()
        unit.hold("/sessions/shop-1", live=True)
        seen, before = [], guard_of.remove
        monkeypatch.setattr(guard_of, "remove", lambda paths: seen.append((sorted(os.listdir(str(host.root / "etc"))), host.guard.exists())) or before(paths))
        unit.put_aside()
        assert seen == [(["shop.service.d", "shop.service.migrated"], True)]
        assert host.systemd.said == ["daemon-reload", "disable --quiet shop.service", "daemon-reload", "daemon-reload", "reset-failed shop.service"]
        assert sorted(os.listdir(str(host.root / "etc"))) == ["shop.service.migrated"]

    def test_one_that_is_active_is_not_put_aside(self, host):
        put(host.root / "etc/shop.service")
        with pytest.raises(HandoverError, match="shop.service is active, and its container has moved"):
            host.unit().put_aside()
        assert (host.root / "etc/shop.service").exists()


class TestDestination:
    def test_a_unit_that_is_there_is_never_written_over(self, host):
        with pytest.raises(HandoverError, match="there is a unit shop.service on this host already"):
            host.unit().prepare("/s", True, True, {"id": TWIN})

    def test_nor_is_a_file(self, host):
        host.systemd.state["LoadState"] = "not-found"
        put(host.root / "etc/shop.service", "[Service]\nUser=other\n")
        with pytest.raises(HandoverError, match="etc/shop.service is on this host with other contents"):
            host.unit().prepare("/s", True, True, {"id": TWIN})

    def test_offline_it_is_there_until_the_next_boot_and_asks_the_session(self, host, monkeypatch):
        states = iter(["not-found", "loaded"])
        monkeypatch.setattr(service_move.Unit, "shown", lambda unit: {"LoadState": next(states)})
        unit = host.unit()
        assert unit.prepare("/s", False, True, {"id": TWIN}) == ""
        assert "unit-may-start destination /s" in (host.root / "run/shop.service.d" / guard_of.GUARD).read_text(encoding="utf-8")
        assert (host.root / "run/shop.service").exists() and not (host.root / "etc").exists()
        unit.withdraw()
        assert not os.listdir(str(host.root / "run"))

    def test_settled_it_is_there_for_good(self, host):
        put(host.root / "run/shop.service")
        put(host.root / "run/shop.service.d" / guard_of.GUARD)
        host.unit(companions=[]).settle({"Id": TWIN, "State": {"Running": True}}, start=False)
        assert (host.root / "etc/shop.service").read_text(encoding="utf-8") == "[Service]\n" and not os.listdir(str(host.root / "run"))
        assert host.systemd.said == ["daemon-reload", "enable --quiet shop.service"]

    def test_the_container_is_taken_over_before_the_stand_in_is_the_unit(self, host, monkeypatch):
        """The unit's own limit for a start would end it else, if the controller died in between."""
        stand_in = host.root / "run/shop.service"
        put(stand_in, guard_of.stand_in("shop.service", "system.slice", "/usr/bin/sleep"))
        host.systemd.state["ActiveState"] = "activating"
        unit, seen = host.unit(cidfile=str(host.root / "shop.cid")), []
        unit._stands_in = lambda: 99
        monkeypatch.setattr(unit, "_end", seen.append)

        def heard(cgroup, pid):
            seen.append((cgroup, pid, stand_in.exists()))
            host.systemd.state.update(MainPID=str(pid), ActiveState="active")

        monkeypatch.setattr(service_notify, "main_process", heard)
        unit.settle({"Id": TWIN, "State": {"Running": True, "ConmonPid": 55}}, start=False)
        assert seen == [("/sys/fs/cgroup/system.slice/shop.service", 55, True), 99]
        assert (host.root / "shop.cid").read_text(encoding="ascii") == TWIN and not stand_in.exists()
        assert host.systemd.said == ["daemon-reload", "enable --quiet shop.service"]

    def test_after_a_boot_the_unit_starts_its_container(self, host):
        host.systemd.state["ActiveState"] = "inactive"
        host.unit().settle({"Id": TWIN, "State": {"Running": False}}, start=True)
        assert host.systemd.said[-1] == "start shop.service"

    def test_a_container_that_has_ended_is_not_started_again(self, host):
        host.systemd.state["ActiveState"] = "inactive"
        host.unit().settle({"Id": TWIN, "State": {"Running": False}}, start=False)
        assert "start shop.service" not in host.systemd.said

    def test_a_container_that_runs_beside_its_unit_is_told(self, host):
        host.systemd.state["ActiveState"] = "failed"
        with pytest.raises(HandoverError, match="`systemctl restart shop.service` starts it anew under the unit"):
            host.unit().settle({"Id": TWIN, "State": {"Running": True}}, start=False)

    def test_a_unit_that_starts_a_container_takes_over_one_that_runs(self, host):
        host.systemd.state["ActiveState"] = "inactive"
        host.unit(adoption="start").settle({"Id": TWIN, "State": {"Running": True}}, start=False)
        assert host.systemd.said[-1] == "start shop.service"


class TestPod:
    """The unit of a pod that has come, and those of its members."""

    INFRA = {"Id": TWIN, "Pod": "9" * 64, "State": {"Running": True, "ConmonPid": 55}}

    @pytest.fixture
    def pod(self, host, monkeypatch):
        monkeypatch.setattr(service_pod.service_of, "own_folder", lambda group: str(host.root / "cgroup"))
        put(host.root / "cgroup/cgroup.procs", "")
        host.systemd.state.update(ActiveState="inactive", MainPID="55")
        files = {"pod_id_file": str(host.root / "front.pod-id"), "pid_file": str(host.root / "front.pid")}
        unit = service_pod.PodUnit(host.systemd, {**host.unit(adoption="pod", kind="quadlet", enabled="generated").service, **files})
        unit.begun = []

        def heard(*words, accept=(0,)):
            host.systemd.said.append(" ".join(words))
            if words[0] == "start":
                drop_in = host.root / "run/shop.service.d" / guard_of.HOLD
                unit.begun.append((drop_in.read_text(encoding="utf-8"), (host.root / "run/shop.service").exists(), (host.root / "etc/shop.service").exists()))
                host.systemd.state["ActiveState"] = "active"

        monkeypatch.setattr(unit, "systemctl", heard)
        return unit

    def test_the_unit_finds_the_pod_and_starts_none(self, host, pod):
        pod.settle(self.INFRA, start=False)
        ((drop_in, passing, lasting),) = pod.begun
        assert drop_in.endswith("[Service]\nExecStartPre=\nExecStart=\nExecStart=true\n")
        assert passing and not lasting, "a boot in between would make the pod anew under a unit that is not its"
        assert ((host.root / "front.pod-id").read_text(encoding="ascii"), (host.root / "front.pid").read_text(encoding="ascii")) == ("9" * 64, "55\n")
        # What was for the time of the move is gone, and systemd knows it.
        assert not os.listdir(str(host.root / "run")) and host.systemd.said[-1] == "daemon-reload"
        assert (host.root / "etc/shop.service").exists()

    def test_its_main_process_is_in_its_cgroup(self, host, pod):
        pod.settle(self.INFRA, start=False)
        assert (host.root / "cgroup/cgroup.procs").read_text(encoding="ascii") == "55"

    def test_a_main_process_that_stays_elsewhere_is_an_error(self, host, pod):
        (host.root / "cgroup/cgroup.procs").unlink()
        (host.root / "cgroup").rmdir()
        with pytest.raises(HandoverError, match="could end with the login that it was started in .*: `systemctl restart shop.service` starts the pod anew"):
            pod.settle(self.INFRA, start=False)

    def test_done_again_it_starts_nothing(self, host, pod):
        host.systemd.state["ActiveState"] = "active"
        pod.settle(self.INFRA, start=False)
        assert pod.begun == []

    def test_a_pod_that_has_ended_is_not_taken_over(self, host, pod):
        pod.settle({**self.INFRA, "State": {"Running": False}}, start=False)
        pod.settle(None, start=False)
        assert pod.begun == [] and not (host.root / "front.pid").exists()

    def test_another_main_process_is_an_error(self, host, pod):
        host.systemd.state["MainPID"] = "7"
        with pytest.raises(HandoverError, match="systemd has not taken process 55 for the main one of shop.service"):
            pod.settle(self.INFRA, start=False)

    def test_members_that_run_have_a_cgroup_to_come_into(self, host, monkeypatch):
        seen = {}
        monkeypatch.setattr(service_pod.PodUnit, "prepare", lambda unit, *words: "")
        monkeypatch.setattr(service_move.Unit, "prepare", lambda unit, *words: seen.setdefault(unit.name, words[1:3]) and ("/" + unit.name) * words[1])
        monkeypatch.setattr(service_pod.PodUnits, "twin_of", lambda units, unit: {"id": TWIN, "oci_config": ""})
        service = host.unit().service
        parts = [{**service, "unit": name + ".service", "container": name, "active": name == "db"} for name in ("db", "web")]
        units = service_pod.PodUnits(host.systemd, {**service, "parts": parts})
        assert units.prepare("/s", True, True, {}) == {"db": "/db.service"}
        assert seen == {"db.service": (True, True), "web.service": (False, False)}
        seen.clear()
        assert units.prepare("/s", False, True, {}) == {}
        assert seen == {"db.service": (False, True), "web.service": (False, True)}

    def test_the_pods_unit_is_up_before_its_members_are_bound_to_it(self, host, monkeypatch):
        order = []
        monkeypatch.setattr(service_pod.PodUnit, "settle", lambda unit, twin, start: order.append((unit.name, twin)))
        monkeypatch.setattr(service_move.Unit, "settle", lambda unit, twin, start: order.append((unit.name, twin)))
        service = host.unit().service
        units = service_pod.PodUnits(host.systemd, {**service, "pod": "front", "parts": [{**service, "unit": "db.service", "container": "db"}]})
        listed = [{"Names": ["db"], "Id": "d", "PodName": "front"}, {"Names": ["f-infra"], "Id": "e", "PodName": "front", "IsInfra": True}]
        for unit in (units.pod, *units.members):
            unit.podman = types.SimpleNamespace(containers=lambda: listed, inspect=lambda identifier: identifier)
        units.settle(None, False)
        assert order == [("shop.service", "e"), ("db.service", "d")]


def test_the_restored_processes_come_into_the_units_cgroup(tmp_path):
    path = tmp_path / "config.json"
    put(path, json.dumps({"linux": {"cgroupsPath": "/user.slice/libpod-payload-x", "namespaces": []}, "root": {}}))
    service_move.place_inside(str(path), "/system.slice/shop.service", TWIN)
    assert json.loads(path.read_text(encoding="utf-8")) == {
        "linux": {"cgroupsPath": "/system.slice/shop.service/libpod-payload-" + TWIN, "namespaces": []}, "root": {},
    }  # fmt: skip


class TestNotify:
    @pytest.fixture
    def cgroup(self, tmp_path):
        put(tmp_path / "cgroup/cgroup.procs", "")
        return tmp_path / "cgroup"

    def test_systemd_hears_it_from_within_the_unit(self, tmp_path, cgroup):
        address, heard = str(tmp_path / "notify"), []
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
            server.bind(address)

            def serve():
                heard.append(server.recv(1000))
                said, ancillary, _flags, _from = server.recvmsg(1000, socket.CMSG_SPACE(4))
                heard.append(said)
                for _level, _kind, data in ancillary:
                    os.close(int.from_bytes(data[:4], "little"))

            thread = threading.Thread(target=serve)
            thread.start()
            service_notify.main_process(str(cgroup), 4711, address)
            thread.join()
        assert heard == [b"MAINPID=4711\nREADY=1\n", b"BARRIER=1"]
        assert int((cgroup / "cgroup.procs").read_text(encoding="ascii")) not in (0, os.getpid())

    def test_a_unit_that_is_gone_is_an_error(self, tmp_path):
        with pytest.raises(HandoverError, match="could not be told that process 4711 is the main one .*: its cgroup takes no process"):
            service_notify.main_process(str(tmp_path / "gone"), 4711, str(tmp_path / "notify"))
