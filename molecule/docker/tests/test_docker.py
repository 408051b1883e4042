# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Containers of Docker's move there and back, and none runs twice: neither after a kill, nor at a boot, nor at an operator's word.

In the order of this file: each test finds the containers where the one before it left them.
"""

from __future__ import annotations

import json
import os
import sys
import typing as t
from pathlib import Path

import pytest
import yaml

SCENARIO = Path(__file__).resolve().parent.parent
CHECKOUT = SCENARIO.parent.parent
# Another fleet of such hosts may be named.
os.environ.setdefault("FAULTS_INVENTORY", str(CHECKOUT / "lab" / "docker" / "inventory.yml"))
os.environ.setdefault("FAULTS_PARAMETERS", str(CHECKOUT / "lab" / "docker" / "parameters.yml"))
sys.path.insert(0, str(CHECKOUT / "tests" / "faults"))

import fleet as hosts
from matrix import Case
from scene import Scene

VARIABLES = yaml.safe_load((SCENARIO / "vars.yml").read_text(encoding="utf-8"))
RUNNING, STOPPED = VARIABLES["scenario_running"], VARIABLES["scenario_stopped"]
DRIVER = {"handover_driver": "docker", "handover_mode": "offline", "handover_ignore_checks": ["clock"]}
LEFT = "ls -A /var/lib/handover/sessions | xargs; find /run/handover -type s -o -path '*/started/*' | xargs"
NOTES = "/note /nameless/note '/nameless too/note'"


class Docker:
    """Both hosts, and where the containers are."""

    def __init__(self, reports: Path) -> None:
        self.fleet = hosts.Fleet(reports)
        self.reports = reports

    def states(self, workload: str = RUNNING) -> dict[str, str]:
        """Host → Docker's word for how the container is there; a host that has none of it is left out."""
        words = f"docker ps --all --filter name=^{workload}$ --format '{{{{.State}}}}'"
        found = {host.name: host.run(words).strip() for host in self.fleet.hosts}
        return {name: state for name, state in found.items() if state}

    def home(self, workload: str = RUNNING) -> hosts.Host:
        """The one host that has it."""
        states = self.states(workload)
        assert len(states) == 1, states
        return next(host for host in self.fleet.hosts if host.name in states)

    def move(self, workload: str, *words: str, **variables: t.Any) -> tuple[int, str]:
        there = self.fleet.other(self.home(workload))
        asked = {"handover_workload": workload, "handover_destination": there.name, "handover_report_dir": str(self.reports), **DRIVER, **variables}
        run = hosts.Play("playbooks/migrate.yml", asked, words=words)
        return run.end(), " ".join(run.text.split())

    def is_whole(self) -> None:
        """It runs on one host, has lost nothing, and nothing of any move is left."""
        home = self.home()
        assert self.states() == {home.name: "running"}
        beats = json.loads(home.run(f"docker exec {RUNNING} heartbeat -gaps /data/heartbeat"))
        assert (beats["missed"], beats["broken"]) == (0, 0)
        assert home.run(f"docker exec {RUNNING} cat {NOTES}").split() == ["kept"] * 3
        assert home.ask(f"docker exec {RUNNING} test -e /etc/group").returncode == 1
        assert [host.ask(LEFT).stdout.split() for host in self.fleet.hosts] == [[], []]
        assert self.fleet.other(home).run("docker volume ls --quiet").strip() == ""

    def kept(self) -> dict[str, t.Any]:
        """The part of its inspect that an operator would look at."""
        inspect = json.loads(self.home().run(f"docker inspect {RUNNING}"))[0]
        config, host = inspect["Config"], inspect["HostConfig"]
        network = inspect["NetworkSettings"]["Networks"]["lan"]
        return {
            **{key: config[key] for key in ("Hostname", "Env", "Labels", "Healthcheck", "Cmd", "StopSignal")},
            **{key: host[key] for key in ("RestartPolicy", "CapAdd", "Ulimits", "Sysctls", "LogConfig", "Tmpfs")},
            "image": inspect["Image"],
            "network": (network["IPAddress"], network["MacAddress"]),
            "volumes": sorted((mount["Name"], mount["Destination"]) for mount in inspect["Mounts"]),
        }


@pytest.fixture(scope="module")
def docker(tmp_path_factory: pytest.TempPathFactory) -> Docker:
    return Docker(tmp_path_factory.mktemp("reports"))


@pytest.fixture
def scene(docker: Docker) -> t.Iterator[Scene]:
    home = docker.home()
    scene = Scene(docker.fleet, home, docker.fleet.other(home))
    yield scene
    scene.end()
    # A test that failed in the middle of it leaves nothing to the next one.
    if any(host.ask(f"test -d {hosts.SESSIONS}/{scene.session}").returncode == 0 for host in docker.fleet.hosts if scene.session):
        scene.go_on()
        docker.fleet.recover(scene.session)


def test_a_live_move_is_refused_in_one_sentence(docker: Docker) -> None:
    before = docker.states()
    status, text = docker.move(RUNNING, "--check", handover_mode="live")
    assert status != 0 and "whose memory stays behind: stop it here and start it there with migrate_mode=offline" in text, text[-3000:]
    assert docker.states() == before


def test_there_with_its_image_and_back(docker: Docker) -> None:
    before, home = docker.kept(), docker.home()
    docker.fleet.other(home).run(f"docker rmi {VARIABLES['scenario_image']}")
    for _way in ("there", "back"):
        status, text = docker.move(RUNNING)
        assert status == 0, text[-5000:]
        docker.is_whole()
        assert docker.kept() == before
    assert docker.home() == home


def test_a_stopped_container_moves_and_stays_stopped(docker: Docker) -> None:
    home = docker.home(STOPPED)
    status, text = docker.move(STOPPED)
    assert status == 0, text[-5000:]
    there = docker.fleet.other(home)
    assert docker.states(STOPPED) == {there.name: "created"}
    assert there.run(f"docker cp {STOPPED}:/note - | tar --extract --to-stdout") == "it ran\n"


# Struck there, it is taken back, or it has arrived.
STRUCK = [
    ("controller killed", "presync", True),
    ("sender killed", "flushed", True),
    ("receiver killed", "prepared", True),
    ("sender killed", "released", False),
    # It had not begun to start it, so it refuses, and the source goes on.
    ("receiver killed", "released", True),
    ("controller killed", "released", False),
]


def strike(scene: Scene, fault: str) -> None:
    if fault == "controller killed":
        scene.play.kill()
        return
    side, host = ("source", scene.source) if fault.startswith("sender") else ("destination", scene.destination)
    host.run(f"systemctl kill --signal=KILL --kill-whom=main handover-{scene.session}-{side}.service")


@pytest.mark.parametrize(("fault", "step", "stays"), STRUCK)
def test_a_move_that_is_struck_runs_once(docker: Docker, scene: Scene, fault: str, step: str, stays: bool) -> None:
    scene.stand_still(Case(fault, step), **DRIVER)
    strike(scene, fault)
    scene.go_on()
    if fault != "controller killed":
        scene.play.end()
    status, text = docker.fleet.recover(scene.session)
    assert status == 0, text[-5000:]
    assert docker.home() == (scene.source if stays else scene.destination)
    docker.is_whole()
    assert docker.kept()["RestartPolicy"] == {"Name": "always", "MaximumRetryCount": 0}


def test_after_the_release_nothing_starts_the_source(docker: Docker, scene: Scene) -> None:
    """An operator, a restart of Docker and a power cut try; the restart policy is put back by hand, as an operator might."""
    scene.stand_still(Case("receiver killed", "released"), **DRIVER)
    scene.play.kill()
    assert "the workload is being handed over to the other host" in scene.source.ask(f"docker start {RUNNING}").stderr
    scene.source.run(f"docker update --restart=always {RUNNING}")
    scene.source.run("systemctl restart containerd docker")
    assert docker.states()[scene.source.name] == "exited"
    docker.fleet.power_off(scene.source)
    docker.fleet.power_on(scene.source)
    hosts.until("Docker answers again", lambda: scene.source.ask("docker ps").returncode == 0)
    assert docker.states()[scene.source.name] == "exited"
    assert "may run on the other host" in scene.source.ask(f"docker start {RUNNING}").stderr
    scene.go_on()
    status, text = docker.fleet.recover(scene.session)
    assert status == 0, text[-5000:]
    assert docker.home() == scene.destination
    docker.is_whole()
