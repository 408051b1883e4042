# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Containers of Docker's move there and back, and none runs twice: neither after a kill, nor at a boot, nor at an operator's word.

In the order of this file: each test finds the containers where the one before it left them.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import socket
import threading
import typing as t
from pathlib import Path

import fleet as hosts
import pytest
import yaml
from matrix import Case
from scene import Scene

SCENARIO = Path(__file__).resolve().parent.parent
VARIABLES = yaml.safe_load((SCENARIO / "vars.yml").read_text(encoding="utf-8"))
RUNNING, BESIDE, STOPPED = (VARIABLES[f"scenario_{each}"] for each in ("running", "beside", "stopped"))
# Of podman's, on the same host.
OTHER = "till"
COMPOSE = f"docker compose --file {VARIABLES['scenario_compose']}"
DRIVER = {"handover_driver": "docker", "handover_bind_mounts": "carry", "handover_ignore_checks": ["clock"]}
OFFLINE, LIVE = ({**DRIVER, "handover_mode": mode} for mode in ("offline", "live"))
LEFT = """
ls -A /var/lib/handover/sessions; find /run/handover -type s -o -path '*/started/*'
for task in $(ctr --namespace moby task list --quiet); do docker inspect --type=container $task >/dev/null 2>&1 || echo $task; done
"""
TURN = "/usr/local/libexec/handover/docker/turn"
NOTES = "/note /nameless/note '/nameless too/note' /shop/note /etc/shop.conf"


class Client:
    """One TCP connection from outside, over which the ledger acknowledges what it has written."""

    def __init__(self, address: str) -> None:
        self.stopped = threading.Event()
        self.answers: list[int] = []
        self.failed = ""
        self.address = address
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            with socket.create_connection((self.address, VARIABLES["scenario_port"]), 60) as connection:
                connection.settimeout(60)
                answers = connection.makefile("r", encoding="ascii")
                while not self.stopped.is_set():
                    connection.sendall(b"next\n")
                    self.answers.append(int(answers.readline()))
        except (OSError, ValueError) as exc:
            self.failed = str(exc)

    def goes_on(self) -> None:
        """It is answered still, and was never told a number again."""
        before = len(self.answers)
        hosts.until("the connection is answered", lambda: self.failed or len(self.answers) > before + 1)
        assert not self.failed
        assert all(one < other for one, other in itertools.pairwise(self.answers))

    def end(self) -> None:
        self.stopped.set()
        self.thread.join(70)


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

    def address(self) -> str:
        return json.loads(self.home().run(f"docker inspect {RUNNING}"))[0]["NetworkSettings"]["Networks"]["lan"]["IPAddress"]

    def move(self, workload: str, *words: str, **variables: t.Any) -> tuple[int, str]:
        there = self.fleet.other(self.home(workload))
        asked = {"handover_workload": workload, "handover_destination": there.name, "handover_report_dir": str(self.reports), **OFFLINE, **variables}
        run = hosts.Play("playbooks/migrate.yml", asked, words=words)
        return run.end(), " ".join(run.text.split())

    def play(self, playbook: str, **variables: t.Any) -> tuple[int, str]:
        """Moves several at once."""
        asked = {key: value for key, value in {**LIVE, "handover_report_dir": str(self.reports), **variables}.items() if key != "handover_driver"}
        run = hosts.Play(f"playbooks/{playbook}.yml", asked)
        return run.end(), " ".join(run.text.split())

    def compose_takes_them(self, *services: str) -> None:
        """Where they are now, compose knows them, and makes none of them anew."""
        home = self.home()
        ids = "docker ps --all --quiet --no-trunc --filter label=com.docker.compose.project=shop | sort"
        before = home.run(ids).split()
        assert sorted(home.run(f"{COMPOSE} ps --quiet --no-trunc").split()) == before
        home.run(f"{COMPOSE} up --detach {' '.join(services)}")
        assert home.run(ids).split() == before
        assert self.states() == {home.name: "running"}

    def is_whole(self) -> None:
        """It runs on one host, has lost nothing, and nothing of any move is left."""
        home = self.home()
        assert self.states() == {home.name: "running"}
        # Docker looks for its processes in its own cgroup.
        assert "heartbeat" in home.run(f"docker top {RUNNING}")
        assert home.run(f"docker exec {RUNNING} cat /proc/1/cgroup").splitlines()[-1] == "0::/"
        beats = json.loads(home.run(f"docker exec {RUNNING} heartbeat -gaps /data/heartbeat"))
        assert (beats["missed"], beats["broken"]) == (0, 0)
        assert home.run(f"docker exec {RUNNING} cat {NOTES}").split() == ["kept"] * 5
        assert home.ask(f"docker exec {RUNNING} test -e /etc/group").returncode == 1
        assert [host.ask(LEFT).stdout.split() for host in self.fleet.hosts] == [[], []]
        other = self.fleet.other(home)
        assert other.run("docker volume ls --quiet").strip() == ""
        # A bind mount that has moved away was put aside. The next move would refuse to write over it.
        folder = VARIABLES["scenario_folder"]
        other.run(f"rm -rf {folder}.migrated {folder}.conf.migrated")
        assert other.ask(f"ls -d {folder}*").stdout == ""

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
            "volumes": sorted((mount.get("Name") or mount["Source"], mount["Destination"]) for mount in inspect["Mounts"]),
        }


@contextlib.contextmanager
def nothing_puts_the_policy_back(host: hosts.Host) -> t.Iterator[None]:
    """The helper's command for it fails there once the workload runs: the play has to see to it."""
    refuse = "case $1 in policy | home) exit 7 ;; esac"
    host.run(f"sed -i 's/^set -e$/&\\n{refuse}/' {TURN} && grep -q '^case $1 in policy' {TURN}")
    try:
        yield
    finally:
        host.run(f"sed -i '/^{refuse}$/d' {TURN}")


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


@pytest.fixture
def client(docker: Docker) -> t.Iterator[Client]:
    client = Client(docker.address())
    yield client
    client.end()


def test_what_cannot_move_live_is_refused_before_anything_is_touched(docker: Docker) -> None:
    before = docker.states(STOPPED)
    status, text = docker.move(STOPPED, "--check", **LIVE)
    assert status != 0 and "has no memory to hand over: start it there first, or move it as it is with migrate_mode=offline" in text, text[-3000:]
    assert docker.states(STOPPED) == before


def test_there_with_its_image_and_back_with_its_memory(docker: Docker, client: Client) -> None:
    before, home = docker.kept(), docker.home()
    docker.fleet.other(home).run(f"docker rmi {VARIABLES['scenario_image']}")
    client.goes_on()
    for way in ("there", "back"):
        with nothing_puts_the_policy_back(docker.fleet.other(docker.home())) if way == "there" else contextlib.nullcontext():
            status, text = docker.move(RUNNING, **LIVE)
        assert status == 0, text[-5000:]
        docker.is_whole()
        assert docker.kept() == before
        docker.compose_takes_them("ledger")
        client.goes_on()
    assert docker.home() == home


def test_a_drained_host_has_no_container_of_either_engine(docker: Docker, client: Client) -> None:
    home = docker.home()
    there = docker.fleet.other(home)
    home.run(f"podman run --detach --name {OTHER} --network none {VARIABLES['scenario_image']} heartbeat -file /heartbeat -sync 10")
    before = docker.kept()
    try:
        status, text = docker.play("drain", handover_source=home.name)
        assert status == 0, text[-5000:]
        assert [home.run(f"{engine} ps --all --quiet").split() for engine in ("docker", "podman")] == [[], []]
        assert there.run("podman ps --format '{{.Names}}'").split() == [OTHER]
    finally:
        for host in docker.fleet.hosts:
            host.run(f"podman rm --force --time 0 --ignore {OTHER}; rm -f /var/lib/handover/maintenance*")
    docker.is_whole()
    assert docker.kept() == before
    client.goes_on()
    assert docker.states(BESIDE) == {there.name: "running"}
    docker.compose_takes_them()
    # What was stopped stays so.
    assert docker.states(STOPPED) == {there.name: "created"}
    assert there.run(f"docker cp {STOPPED}:/note - | tar --extract --to-stdout") == "it ran\n"


def test_a_project_of_compose_moves_by_its_name(docker: Docker, client: Client) -> None:
    there = docker.fleet.other(docker.home())
    status, text = docker.play("move", handover_moves=[{"workload": "shop", "to": there.name}])
    assert status == 0, text[-5000:]
    assert docker.states(BESIDE) == docker.states() == {there.name: "running"}
    docker.is_whole()
    docker.compose_takes_them()
    client.goes_on()


def test_there_by_a_stop_and_a_start(docker: Docker) -> None:
    before = docker.kept()
    status, text = docker.move(RUNNING)
    assert status == 0, text[-5000:]
    docker.is_whole()
    assert docker.kept() == before


# Struck there, it is taken back, or it has arrived.
STRUCK = [
    (OFFLINE, "controller killed", "presync", True),
    (OFFLINE, "sender killed", "flushed", True),
    # It had not begun to start it, so it refuses, and the source goes on.
    (OFFLINE, "receiver killed", "released", True),
    (OFFLINE, "controller killed", "released", False),
    (LIVE, "sender killed", "frozen", True),
    (LIVE, "sender killed", "flushed", True),
    # The run token had not left.
    (LIVE, "sender killed", "released", True),
    (LIVE, "receiver killed", "frozen", True),
    (LIVE, "receiver killed", "flushed", True),
    (LIVE, "receiver killed", "prepared", True),
    # CRIU holds what it has restored, and lets it go by the journal.
    (LIVE, "receiver killed", "released", False),
]


def strike(scene: Scene, fault: str) -> None:
    if fault == "controller killed":
        scene.play.kill()
        return
    side, host = ("source", scene.source) if fault.startswith("sender") else ("destination", scene.destination)
    host.run(f"systemctl kill --signal=KILL --kill-whom=main handover-{scene.session}-{side}.service")


@pytest.mark.parametrize(("how", "fault", "step", "stays"), STRUCK, ids=lambda each: each.get("handover_mode") if isinstance(each, dict) else None)
def test_a_move_that_is_struck_runs_once(docker: Docker, scene: Scene, how: dict[str, t.Any], fault: str, step: str, stays: bool) -> None:
    scene.stand_still(Case(fault, step), **how)
    with nothing_puts_the_policy_back(scene.source) if step == "frozen" else contextlib.nullcontext():
        strike(scene, fault)
        scene.go_on()
        if fault != "controller killed":
            scene.play.end()
        status, text = docker.fleet.recover(scene.session)
    assert status == 0, text[-5000:]
    assert docker.home() == (scene.source if stays else scene.destination)
    docker.is_whole()
    assert docker.kept()["RestartPolicy"] == {"Name": "always", "MaximumRetryCount": 0}


@pytest.mark.parametrize("how", [OFFLINE, LIVE], ids=["offline", "live"])
def test_after_the_release_nothing_starts_the_source(docker: Docker, scene: Scene, how: dict[str, t.Any]) -> None:
    """An operator, a restart of Docker and a power cut try; the restart policy is put back by hand, as an operator might."""
    scene.stand_still(Case("receiver killed", "released"), **how)
    scene.play.kill()
    if how is LIVE:
        # It stands there still, so to Docker it runs, and a start does nothing.
        scene.source.run(f"docker start {RUNNING}")
        stands = f"cat /sys/fs/cgroup/system.slice/docker-$(docker inspect --format '{{{{.Id}}}}' {RUNNING}).scope/cgroup.events"
        assert "frozen 1" in scene.source.run(stands)
    else:
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
