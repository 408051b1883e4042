# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A project of podman-compose moves live, there and back: its pod without an infra container, its network, and what its services depend on.

In the order of this file: each test finds the project where the one before it left it.
"""

from __future__ import annotations

import json
import os
import sys
import time
import typing as t
from pathlib import Path

import pytest
import yaml

CHECKOUT = Path(__file__).resolve().parents[3]
os.environ.setdefault("FAULTS_INVENTORY", str(CHECKOUT / "lab" / "docker" / "inventory.yml"))
os.environ.setdefault("FAULTS_PARAMETERS", str(CHECKOUT / "lab" / "docker" / "parameters.yml"))
sys.path.insert(0, str(CHECKOUT / "tests" / "faults"))
sys.path.append(str(CHECKOUT / "tests" / "operator"))

import fleet as hosts
from turns import in_turn

PROJECT, POD, NETWORK = "pawn", "pod_pawn", "pawn_default"
DB, WEB, WORKER = (f"{PROJECT}_{service}_1" for service in ("db", "web", "worker"))
FOLDER = f"/root/{PROJECT}"
COMPOSE = f"cd {FOLDER} && podman-compose"
IMAGE, PORT = "localhost/handover/tools:lab", 5432
CRIU = "/etc/criu/runc.conf"
# Docker lets nothing through between interfaces that are not its own.
THROUGH = "DOCKER-USER --in-interface podman+ --out-interface podman+ --jump ACCEPT"
# The web server holds one connection to the database, over which it sends numbers and notes what comes back.
SERVICES: dict[str, dict[str, t.Any]] = {
    "db": {"command": ["sh", "-c", f"nc -ll -p {PORT} -e cat & exec heartbeat -file /data/beats -every 5ms"], "volumes": ["dbdata:/data"]},
    "web": {
        "command": ["sh", "-c", f"sleep 1; i=0; (while :; do i=$$((i+1)); echo $$i; sleep 0.1; done) | nc db {PORT} >/srv/echo"],
        "volumes": ["webdata:/srv"], "depends_on": ["db"], "labels": {"of": 'a "pawn"shop'},
    },
    "worker": {"command": ["heartbeat", "-file", "/beats", "-every", "5ms"], "depends_on": ["db", "web"]},
}  # fmt: skip
TEXT = {
    "services": {name: {"image": IMAGE, "stop_signal": "SIGKILL", **service} for name, service in SERVICES.items()},
    "volumes": {"dbdata": {}, "webdata": {}},
}


class Pawn:
    """The project on the first two hosts."""

    def __init__(self, reports: Path) -> None:
        self.hosts = sorted(hosts.Fleet(reports).hosts, key=lambda host: host.name)[:2]
        self.reports = reports

    def write(self) -> None:
        for host in self.hosts:
            # A lab host has none, and podman's name server asks for one.
            host.run(f"[ -e /etc/resolv.conf ] || {{ touch /etc/{PROJECT}.made; echo nameserver 127.0.0.1 >/etc/resolv.conf; }}")
            host.run(f"iptables --insert {THROUGH}")
            host.run(f"mkdir -p {FOLDER}; cat >{FOLDER}/compose.yml <<'END'\n{yaml.safe_dump(TEXT)}END\n")

    def remove(self) -> None:
        for host in self.hosts:
            host.ask(f"podman rm --force --time=0 --ignore {DB} {WEB} {WORKER}; podman pod rm --force --ignore {POD}; podman network rm --force {NETWORK}")
            host.ask(f"podman volume rm --force {PROJECT}_dbdata {PROJECT}_webdata; rm -rf {FOLDER}")
            host.ask(f"while iptables --delete {THROUGH}; do :; done")
            host.ask(f"[ ! -e /etc/{PROJECT}.made ] || rm -f /etc/resolv.conf /etc/{PROJECT}.made")

    def other(self, host: hosts.Host) -> hosts.Host:
        return next(each for each in self.hosts if each is not host)

    def play(self, playbook: str, *words: str, **variables: t.Any) -> tuple[int, str]:
        # The machine under the lab has one clock, and is busy.
        asked = {"handover_report_dir": str(self.reports), "handover_ignore_checks": ["clock"], **variables}
        run = hosts.Play(f"playbooks/{playbook}.yml", asked, words=words)
        return run.end(), " ".join(run.text.split())

    def move(self, there: hosts.Host, *words: str, **variables: t.Any) -> tuple[int, str]:
        return self.play("move", *words, handover_moves=[{"workload": PROJECT, "to": there.name}], handover_spare_memory="64M", **variables)

    def containers(self, host: hosts.Host) -> dict[str, dict[str, t.Any]]:
        listed = json.loads(host.run(f"podman ps --all --pod --filter label=io.podman.compose.project={PROJECT} --format json"))
        return {each["Names"][0]: each for each in listed}

    def runs_only_on(self, home: hosts.Host) -> None:
        """All of it is there as podman-compose has made it, and nothing of it on the other host."""
        found = self.containers(home)
        assert {name: each["State"] for name, each in found.items()} == dict.fromkeys((DB, WEB, WORKER), "running")
        assert {each["PodName"] for each in found.values()} == {POD}
        shown = json.loads(home.run(f"podman pod inspect {POD}"))[0]
        assert (shown.get("InfraContainerID") or "", shown["NumContainers"]) == ("", 3)
        requires = {name: set(json.loads(home.run(f"podman inspect {name}"))[0]["Dependencies"] or []) for name in found}
        ids = {name: each["Id"] for name, each in found.items()}
        assert requires == {DB: set(), WEB: {ids[DB]}, WORKER: {ids[DB], ids[WEB]}}
        (network,) = json.loads(home.run(f"podman network inspect {NETWORK}"))
        assert network["labels"]["io.podman.compose.project"] == PROJECT
        other = self.other(home)
        assert self.containers(other) == {}
        assert other.ask(f"podman pod exists {POD}").returncode == 1
        assert PROJECT not in other.run("podman volume ls --quiet")
        left = f"ls -d /var/lib/handover/sessions/{PROJECT}-* /var/lib/handover/parts/*/*{PROJECT}* 2>/dev/null || :"
        assert [host.run(left) for host in (home, other)] == ["", ""]

    def goes_on(self, home: hosts.Host) -> None:
        """No beat is lost, and the connection within the project is the one that was opened at first."""
        for name, path in ((DB, "/data/beats"), (WORKER, "/beats")):
            beats = json.loads(home.run(f"podman exec {name} heartbeat -gaps {path}"))
            assert (beats["missed"], beats["broken"]) == (0, 0)
        before = self.echoed(home)
        time.sleep(1)
        assert self.echoed(home) > before

    def echoed(self, home: hosts.Host) -> int:
        numbers = home.run(f"podman exec {WEB} cat /srv/echo").split()
        assert numbers == [str(number) for number in range(1, len(numbers) + 1)]
        return len(numbers)

    def up_changes_nothing(self, home: hosts.Host) -> None:
        before = {name: (each["Id"], each["StartedAt"], each["Pid"]) for name, each in self.containers(home).items()}
        assert {DB, WEB, WORKER} <= set(home.run(f"{COMPOSE} ps").split())
        home.run(f"{COMPOSE} up -d", 120)
        assert {name: (each["Id"], each["StartedAt"], each["Pid"]) for name, each in self.containers(home).items()} == before


@pytest.fixture(scope="module")
def pawn(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[Pawn]:
    made = Pawn(tmp_path_factory.mktemp("reports"))
    try:
        made.remove()  # what a run has left that was killed
        made.write()
        made.hosts[0].run(f"{COMPOSE} up -d", 180)
        time.sleep(3)
        yield made
    finally:
        made.remove()


@in_turn(0)
def test_one_of_it_alone_is_refused(pawn: Pawn) -> None:
    first, second = pawn.hosts
    for workload, sentence in (
        (WEB, f"{WEB} is a container of the project {PROJECT} on {first.name} ({DB}, {WEB}, {WORKER}), which moves as one: move all of it live"),
        (PROJECT, f"{PROJECT} is a project of compose ({DB}, {WEB}, {WORKER}), whose containers move live as a wave: move all of it live"),
    ):
        status, text = pawn.play("migrate", handover_workload=workload, handover_source=first.name, handover_destination=second.name)
        assert status != 0 and sentence in text, text[-3000:]
    pawn.runs_only_on(first)


@in_turn(0)
def test_a_move_that_fails_leaves_nothing_on_the_destination(pawn: Pawn) -> None:
    first, second = pawn.hosts
    # CRIU is told something that it does not understand.
    second.run(f"echo planted-by-a-test >> {CRIU}")
    try:
        status, text = pawn.move(second)
    finally:
        second.run(f"sed -i /^planted-by-a-test$/d {CRIU}")
    assert status != 0
    assert f"{WEB} was not moved and runs on {first.name} as before" in text, text[-3000:]
    pawn.runs_only_on(first)
    pawn.goes_on(first)
    assert second.ask(f"podman network exists {NETWORK}").returncode == 1


@in_turn(0)
def test_a_network_of_that_name_that_is_another_is_refused(pawn: Pawn) -> None:
    first, second = pawn.hosts
    (network,) = json.loads(first.run(f"podman network inspect {NETWORK}"))
    subnet = network["subnets"][0]["subnet"]
    second.run(f"podman network create --subnet {subnet} --disable-dns {NETWORK}")
    try:
        status, text = pawn.move(second)
    finally:
        second.run(f"podman network rm {NETWORK}")
    assert status != 0
    assert f"the network {NETWORK} is not the same on both hosts: its name server is on on {first.name} and off on {second.name}" in text, text[-3000:]
    pawn.runs_only_on(first)


@in_turn(1)
def test_it_moves_live_there_and_back(pawn: Pawn) -> None:
    first, second = pawn.hosts
    ids = {name: each["Id"] for name, each in pawn.containers(first).items()}
    for there in (second, first):
        status, text = pawn.move(there)
        assert status == 0, text[-3000:]
        pawn.runs_only_on(there)
        pawn.goes_on(there)
        pawn.up_changes_nothing(there)
    assert ids != {name: each["Id"] for name, each in pawn.containers(first).items()}


@in_turn(1)
def test_it_is_a_project_as_before(pawn: Pawn) -> None:
    """On a host to which it has come: `stop` and `start` find all of it, `down` removes all."""
    _first, second = pawn.hosts
    status, text = pawn.move(second)
    assert status == 0, text[-3000:]
    pawn.runs_only_on(second)
    pawn.goes_on(second)
    second.run(f"{COMPOSE} stop --timeout 0 && {COMPOSE} start", 180)
    pawn.runs_only_on(second)
    second.run(f"{COMPOSE} down --volumes --timeout 0", 180)
    assert pawn.containers(second) == {}
    assert second.ask(f"podman pod exists {POD}").returncode == 1
