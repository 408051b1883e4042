# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The rows of PostgreSQL under pgbench, on an image volume of 10 GiB with 2 GiB in it: snapshots by playbooks/snapshot.yml, as an operator takes them."""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
import time
import typing as t
from pathlib import Path

import freeze
import freeze_report
from disks import OURS, Samples, Sizes, middle, spreads
from freeze import CHECKOUT, Handover
from pgbench import Pgbench
from results import Bar

# Seconds: what pgbench is watched for before a snapshot and after it. With the snapshot itself it is about a minute.
BESIDE, RATE, SCALE = 25, 200, 10
LAB_CACHE = Path("/var/cache/handover-lab")


class Postgres:
    """The container, on the host where it is now."""

    def __init__(self, fleet: freeze.Fleet, sizes: Sizes) -> None:
        self.fleet, self.sizes = fleet, sizes
        self.work = freeze.Workload("", ("-c", "shared_buffers=64MB"), sizes.image, freeze.POSTGRES, "/var/lib/postgresql", rest=sizes.used_mib << 20,
                                    environment=("HEARTBEAT=/var/lib/postgresql/beat",))  # fmt: skip
        self.mover = Handover(fleet)
        self.host = fleet.hosts[0]

    @contextlib.contextmanager
    def ready(self) -> t.Iterator[Postgres]:
        self.clean()
        try:
            self.mover.begin(self.host, self.work)
            self.fleet.run(self.host, "sh", "-ec", f"head -c {self.work.rest} /dev/urandom > /var/lib/handover/mnt/{self.mover.workload}/rest; sync")
            self.fleet.run(self.host, "podman", "start", self.mover.workload)
            yield self
        finally:
            self.clean()

    def clean(self) -> None:
        self.fleet.names(CHECKOUT / "tests" / "bench" / "remove.yml")
        for host in self.fleet.hosts:
            self.fleet.run(host, "rm", "-rf", f"/var/lib/handover/snapshots/{self.mover.workload}")

    @contextlib.contextmanager
    def load(self) -> t.Iterator[Pgbench]:
        ask = f"podman exec {self.mover.workload} pg_isready -q -h /tmp"
        for _try in range(60):
            if subprocess.run([*self.fleet.ssh[self.host], ask], check=False).returncode == 0:
                break
            time.sleep(1)
        there = "psql -qAt -h /tmp -U postgres -c \"select to_regclass('pgbench_accounts')\" postgres | grep -q ."
        tables = f"{there} || pgbench -i -q -s {SCALE} -h /tmp -U postgres postgres"
        self.fleet.run(self.host, "podman", "exec", self.mover.workload, "sh", "-c", tables)
        output = Path(tempfile.gettempdir()) / "bench-snapshot-pgbench"
        load = Pgbench(LAB_CACHE / "images/postgres/root", f"{self.fleet.network}.{self.mover.number}", output, RATE)
        load.start()
        try:
            yield load
        finally:
            load.stop()

    def snapshot(self, name: str, **more: t.Any) -> None:
        self.fleet.play(
            CHECKOUT / "playbooks" / "snapshot.yml",
            {"handover_source": self.host, "handover_workload": self.mover.workload, "handover_snapshot": name, **more},
        )


class Stall:
    """What a client sees of a snapshot of the disks."""

    title, unit, key = "The longest stall of a client, disks only", "s", "seconds"
    what = (
        "PostgreSQL under pgbench (200 transactions a second, four clients). The longest transaction while a snapshot is taken, from the playbook's start to "
        "two seconds after its end, against the longest of the rest of the same minute."
    )
    usual = "the same minute, without a snapshot"

    def begin(self, postgres: Postgres) -> None:
        with postgres.load():
            postgres.snapshot("first")

    def round(self, postgres: Postgres, number: int) -> dict[str, dict[str, float]]:
        name = f"round-{number}"
        with postgres.load() as load:
            time.sleep(5)
            since = time.time()
            time.sleep(BESIDE)
            before = time.time()
            postgres.snapshot(name)
            time.sleep(2)
            after = time.time()
            time.sleep(BESIDE)
            usual = max(load.stall(since, before), load.stall(after))
            return {OURS: {"seconds": load.stall(before, after)}, self.usual: {"seconds": usual}}

    def bars(self, found: Samples) -> list[Bar]:
        beyond = [ours["seconds"] - usual["seconds"] for ours, usual in zip(found[OURS], found[self.usual])]
        each: Samples = {OURS: [{"seconds": seconds} for seconds in beyond]}
        return [Bar("disks only: longest stall beyond the usual worst, s", middle(each, OURS), 0.05, len(beyond), spreads(found), self.usual)]


class Memory:
    """The pause of a snapshot with memory."""

    title, unit, key = "The pause of a snapshot with memory", "s", "seconds"
    what = "PostgreSQL under pgbench. The gap between two beats of a heartbeat beside it, against the freeze and the dump of a move of the same container."
    other = "freeze and dump of a move"

    def begin(self, postgres: Postgres) -> None:
        del postgres

    def round(self, postgres: Postgres, number: int) -> dict[str, dict[str, float]]:
        name = f"memory-{number}"
        with postgres.load():
            time.sleep(5)
            since = time.time()
            postgres.snapshot(name, handover_memory=True)
            time.sleep(2)
            pause, _other = freeze_report.silences(postgres.fleet.beats(postgres.host, postgres.mover.workload, postgres.work, since), None)
        postgres.snapshot(name, handover_state="absent")
        with postgres.load():
            time.sleep(5)
            source, (destination,) = postgres.host, [host for host in postgres.fleet.hosts if host != postgres.host]
            stages = postgres.mover.move(source, destination)
            postgres.host = destination
        return {OURS: {"seconds": pause}, self.other: {"seconds": (stages.get("freeze", 0) + stages["dump"]) / 1000}}

    def bars(self, found: Samples) -> list[Bar]:
        figure = middle(found, OURS) / middle(found, self.other)
        return [Bar("with memory: pause, as a part of the freeze and dump of a move", figure, 1.2, len(found[OURS]), spreads(found), self.other)]


ROWS: dict[str, t.Callable[[], Stall | Memory]] = {"stall": Stall, "memory": Memory}
