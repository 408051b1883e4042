# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The row `docker` of tests/bench/freeze.py: a shop of three containers, which moves as one under load.

A database under pgbench, a web server with connections that are kept, and a worker with a ledger: tests/clients/shop.yml. Who moves it, in turn:

* handover, a project of Docker Compose, by playbooks/move.yml;
* handover-podman, the same three containers of podman's, as a wave, by the same playbook;
* by-hand: rsync of the volumes while it runs, ``docker checkpoint create`` of all three side by side, rsync of volumes and checkpoints, and
  ``docker start --checkpoint`` of all three side by side. CRIU is told to carry connections, which Docker has no option for.

The pause is that of the container that stood still longest.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shlex
import subprocess
import sys
import tempfile
import time
import typing as t
from dataclasses import dataclass, field
from pathlib import Path

import free_memory
import freeze_report
import hosts
import yaml
from hosts import CHECKOUT

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(CHECKOUT / "tests" / "clients"))
from events import Events
from pgbench import Pgbench

SHOP: dict[str, dict[str, t.Any]] = yaml.safe_load((CHECKOUT / "tests" / "clients" / "shop.yml").read_text(encoding="utf-8"))["shop_parts"]
NETWORK = "lan"
# Of the addresses below .128; the worker is on no network.
NUMBERS = {"db": 0, "web": 1}
CONNECTIONS, RATE = 4, 100
SETTLE_SECONDS = 5.0
# Seconds that clients have behind a move to find that they were lost.
AFTER_SECONDS = 2.0
FOLDER = "/root/bench-shop"
LAB = CHECKOUT / "lab" / "docker"
WHAT = "a Docker Compose project of PostgreSQL under pgbench, a web server with kept connections and a worker with a ledger; it moves as a wave"


@dataclass(frozen=True)
class Work:
    """What the report says of the row."""

    what: str = WHAT
    memory: int = 0


@dataclass
class Mover:
    """Three containers of an engine, and the way in which they move."""

    fleet: hosts.Fleet
    name: str
    number: int
    engine: str = "docker"
    # Whether a move that fails ends the benchmark, or is left out.
    may_fail: t.ClassVar[bool] = False
    # By container, by the wall clock: when the last move froze it.
    stopped_at: dict[str, float] = field(default_factory=dict)

    @property
    def containers(self) -> dict[str, str]:
        return {part: f"{self.name}-{part}" for part in SHOP}

    def address(self, part: str) -> str:
        network = next(iter(self.fleet.address.values())).rsplit(".", 1)[0]
        return f"{network}.{self.number + NUMBERS[part]}"

    def mac(self, part: str) -> str:
        return "02:00:" + ":".join(f"{int(byte):02x}" for byte in self.address(part).split("."))

    def begin(self, source: str, destination: str) -> None:
        """Makes the containers, which do not run yet."""
        self.create(source)

    def create(self, host: str) -> None:
        for part, what in SHOP.items():
            network = ["--network", NETWORK, "--ip", self.address(part), "--mac-address", self.mac(part)] if part in NUMBERS else ["--network", "none"]
            environment = [word for name, value in what["environment"].items() for word in ("--env", f"{name}={value}")]
            name = self.containers[part]
            self.fleet.run(
                host, self.engine, "create", "--name", name, *network, "--volume", f"{name}:{what['folder']}", *environment, what["image"], *what["command"]
            )

    def move(self, source: str, destination: str) -> dict[str, float]:
        raise NotImplementedError

    def gone(self, host: str) -> int:
        """Lines that are missing in the worker's ledger, or not whole."""
        said = self.fleet.run(host, self.engine, "exec", self.containers["worker"], "heartbeat", "-gaps", f"{SHOP['worker']['folder']}/beat")
        return sum(json.loads(said)[what] for what in ("missed", "broken"))

    def clean(self) -> None:
        for host in self.fleet.address:
            names = " ".join(self.containers.values())
            self.fleet.run(host, "sh", "-c", f"{self.engine} rm --force {names} || :; {self.engine} volume rm --force {names} || :")


class Handover(Mover):
    """The project, which compose makes."""

    def asked(self, destination: str) -> dict[str, t.Any]:
        return {"handover_moves": [{"workload": self.name, "to": destination}]}

    def network(self, part: str) -> dict[str, t.Any]:
        if part not in NUMBERS:
            return {"network_mode": "none"}
        return {"networks": {NETWORK: {"ipv4_address": self.address(part), "mac_address": self.mac(part)}}}

    def project(self) -> dict[str, t.Any]:
        """As compose reads it: a dollar that is meant as one is two."""
        services = {
            part: {
                "image": what["image"], "container_name": self.containers[part], "environment": what["environment"],
                "command": [word.replace("$", "$$") for word in what["command"]], "volumes": [f"{self.containers[part]}:{what['folder']}"],
                **self.network(part),
            }
            for part, what in SHOP.items()
        }  # fmt: skip
        volumes = {name: {"name": name} for name in self.containers.values()}
        return {"name": self.name, "services": services, "volumes": volumes, "networks": {NETWORK: {"name": NETWORK, "external": True}}}

    def create(self, host: str) -> None:
        self.fleet.run(host, "sh", "-ec", f"mkdir -p {FOLDER}; cat >{FOLDER}/compose.yml", given=json.dumps(self.project()).encode())
        self.fleet.run(host, "docker", "compose", "--file", f"{FOLDER}/compose.yml", "up", "--no-start")

    def hand_over(self, destination: str) -> dict[str, dict[str, t.Any]]:
        """Moves it; the reports, by container."""
        with tempfile.TemporaryDirectory() as folder:
            asked = {**self.asked(destination), "handover_report_dir": folder, "handover_ignore_checks": ["clock"], "handover_spare_memory": "64M"}
            self.fleet.play(CHECKOUT / "playbooks" / "move.yml", asked)
            return {part: self.report(Path(folder), name) for part, name in self.containers.items()}

    def move(self, source: str, destination: str) -> dict[str, float]:
        reports = self.hand_over(destination)
        self.stopped_at = {part: freeze_report.stopped_at(report["source_events"]) for part, report in reports.items()}
        held = [freeze_report.holds(report["source_session"]["stages"], report["frozen_ms"]) for report in reports.values()]
        # All are released when the last of them is held: the others have waited for it.
        return min(held, key=lambda stages: stages.get("release", 0.0))

    @staticmethod
    def report(folder: Path, workload: str) -> dict[str, t.Any]:
        (path,) = folder.glob(f"{workload}-*.json")
        return json.loads(path.read_text(encoding="utf-8"))


class HandoverPodman(Handover):
    """The same containers of podman's."""

    def create(self, host: str) -> None:
        Mover.create(self, host)

    def asked(self, destination: str) -> dict[str, t.Any]:
        names = list(self.containers.values())
        return {"handover_moves": [{"workload": name, "to": destination} for name in names], "handover_wave": {self.name: names}}


CRIU = "/etc/criu/runc.conf"
BY_HAND = """
now() { date +%s%N; }
step() { echo "step $1 $(($(now) - began))"; began=$(now); }
root=$(docker info --format '{{.DockerRootDir}}')
volumes() {
    for name in $names; do
        # A file that has got shorter while it was read (23), or is gone (24), is what the second time is for.
        rsync -aHAX --delete --numeric-ids $root/volumes/$name/_data/ $there:$root/volumes/$name/_data/ || [ $? -eq 23 ] || [ $? -eq 24 ]
    done
}
all() { pids=; for name in $names; do "$@" & pids="$pids $!"; done; for pid in $pids; do wait $pid; done; }
checkpoint() { docker checkpoint create $name move >/dev/null; }
send() {
    from=$root/containers/$(docker inspect --format '{{.Id}}' $name)/checkpoints
    rsync -a --numeric-ids $from/ $there:$root/containers/$(ssh $there docker inspect --format '{{.Id}}' $name)/checkpoints/
}
start() { ssh $there docker start --checkpoint move $name >/dev/null; }
volumes
began=$(now)
all checkpoint; step checkpoint
volumes; all send; step rsync
all start; step start
"""


class ByHand(Mover):
    """Docker's own commands; the containers are made on both hosts."""

    may_fail = True

    def begin(self, source: str, destination: str) -> None:
        for host in (source, destination):
            self.create(host)
            # Handover says the same to CRIU for the time of a move.
            self.fleet.run(host, "sh", "-c", f"grep -qx tcp-established {CRIU} || echo tcp-established >>{CRIU}")

    def move(self, source: str, destination: str) -> dict[str, float]:
        head = f"names={shlex.quote(' '.join(self.containers.values()))} there=root@{self.fleet.address[destination]}\n"
        said = self.fleet.run(source, "bash", "-ec", head + BY_HAND)
        for name in self.containers.values():
            for host in self.fleet.address:
                self.fleet.run(host, "docker", "checkpoint", "rm", name, "move")
        steps = (line.split() for line in said.splitlines() if line.startswith("step "))
        return {words[1]: int(words[2]) / 1e6 for words in steps}

    def clean(self) -> None:
        super().clean()
        for host in self.fleet.address:
            self.fleet.run(host, "sh", "-c", f"sed -i '/^tcp-established$/d' {CRIU}")


# Engine, class, and the number of its first address.
CONTENDERS: dict[str, tuple[str, type[Mover], int]] = {
    "handover": ("docker", Handover, 60),
    "handover-podman": ("podman", HandoverPodman, 64),
    "by-hand": ("docker", ByHand, 68),
}


class Load:
    """Everybody who uses a shop while it moves."""

    def __init__(self, fleet: hosts.Fleet, mover: Mover, host: str, root: Path) -> None:
        inside = [mover.engine, "exec", mover.containers["db"]]
        for _try in range(60):
            if subprocess.run(fleet.argv(host, *inside, "pg_isready", "-q", "-h", "/tmp"), check=False, capture_output=True).returncode == 0:
                break
            time.sleep(1)
        there = "psql -qAt -h /tmp -U postgres -c \"select to_regclass('pgbench_accounts')\" postgres | grep -q ."
        fleet.run(host, *inside, "sh", "-c", f"{there} || pgbench -i -q -s 10 -h /tmp -U postgres postgres")
        self.database = Pgbench(root, mover.address("db"), Path(tempfile.gettempdir()) / "bench-freeze-docker", RATE)
        self.database.start()
        self.readers = [Events(mover.address("web"), "/cgi-bin/events") for _reader in range(CONNECTIONS)]

    def stop(self, since: float) -> dict[str, t.Any]:
        """What went wrong since it began, and how long a client waited since a moment."""
        # Those that are answered no more say so within some seconds.
        alive = [reader.goes_on() for reader in self.readers]
        for reader in self.readers:
            reader.stopped.set()
        said = self.database.stop(since)
        return {"failed": said["failed"] + len(said["errors"]) + (not said["ran_until_stopped"]), "stall": said["longest_stall"], "lost": alive.count(False)}


class Row:
    """The shop of each contender, moved in turn, there and back."""

    def __init__(self, name: str, contenders: list[str], lab_cache: Path, fleet: hosts.Fleet) -> None:
        self.name, self.fleet, self.work = name, fleet, Work()
        self.conditions: list[str] = []
        self.names = list(fleet.address)
        self.movers = {}
        for who in contenders:
            engine, kind, number = CONTENDERS[who]
            self.movers[who] = kind(fleet, f"bench-{who}", number, engine)
        self.where = dict.fromkeys(contenders, self.names[0])
        self.root = lab_cache / "images/postgres/root"
        self.found: dict[str, list[dict[str, t.Any]]] = {who: [] for who in contenders}

    def beats(self, host: str, mover: Mover, part: str, since: float) -> list[float]:
        """The beats of a container since a moment, by the wall clock; the first line may be half a one, and so may the last."""
        lines = int((time.time() - since) * 1000) + 10000
        said = self.fleet.run(host, mover.engine, "exec", mover.containers[part], "tail", "-n", str(lines), f"{SHOP[part]['folder']}/beat")
        return [beat for beat in (int(line.split()[1]) / 1e9 for line in said.splitlines()[1:-1]) if beat >= since]

    def measure(self, who: str) -> dict[str, t.Any]:
        """One move. All others' shops stand still meanwhile."""
        mover, source = self.movers[who], self.where[who]
        destination = next(name for name in self.names if name != source)
        names = list(mover.containers.values())
        self.fleet.run(source, mover.engine, "start", *names)
        since = time.time()
        load = Load(self.fleet, mover, source, self.root)
        try:
            time.sleep(SETTLE_SECONDS)
            since = time.time()
            stages = mover.move(source, destination)
            self.where[who] = destination
            time.sleep(AFTER_SECONDS)
        finally:
            said = load.stop(since)
        silences = [freeze_report.silences(self.beats(destination, mover, part, since), mover.stopped_at.get(part)) for part in SHOP]
        sample = {"seconds": max(pause for pause, _other in silences), "other": max(other for _pause, other in silences), "stages": stages}
        sample |= {**said, "gone": mover.gone(destination)}
        self.fleet.run(destination, mover.engine, "stop", "--time", "0", *names)
        return sample

    def begin(self, who: str) -> None:
        self.movers[who].clean()
        self.movers[who].begin(*self.names)
        self.where[who] = self.names[0]

    def run(self, runs: int) -> None:
        try:
            for who in self.movers:
                self.begin(who)
            for run in range(runs):
                for who in self.movers:
                    told = f"{self.name:20} {who:16} {run + 1:3} of {runs}"
                    try:
                        sample = self.measure(who)
                    except SystemExit as failed:
                        if not self.movers[who].may_fail:
                            raise
                        print(f"{told}  did not move: {failed}", flush=True)
                        self.begin(who)
                        continue
                    self.found[who].append(sample)
                    bad = f"{sample['failed']} failed, {sample['lost']} connections lost, {sample['gone']} lines gone"
                    print(f"{told}  {sample['seconds']:8.3f} s  {bad}", flush=True)
        finally:
            for mover in self.movers.values():
                mover.clean()


@contextlib.contextmanager
def prepared(arguments: argparse.Namespace, name: str, contenders: list[str]) -> t.Iterator[Row]:
    """The row, on the hosts that are named or on the lab's own of Docker's containers. These are brought up if they are not, and then taken down again."""
    inventory, parameters = arguments.inventory or LAB / "inventory.yml", arguments.parameters or LAB / "parameters.yml"
    fleet = hosts.Fleet(tuple((arguments.hosts or "dock1,dock2").split(",")), inventory, parameters)
    ours = not Path(yaml.safe_load(parameters.read_text(encoding="utf-8"))["lab_state"]).exists()
    images = sorted({what["image"] for what in SHOP.values()})
    try:
        if ours:
            fleet.play(CHECKOUT / "lab" / "create.yml", {})
        fleet.play(CHECKOUT / "lab" / "images.yml", {"lab_images": [image.rsplit("/", 1)[1].partition(":")[0] for image in images]})
        fleet.play(HERE / "docker_ready.yml", {"bench_images": images, "bench_lan": NETWORK})
        with free_memory.kept():
            yield Row(name, contenders, arguments.lab_cache, fleet)
    finally:
        if ours:
            fleet.play(CHECKOUT / "lab" / "destroy.yml", {})
