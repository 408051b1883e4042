#!/usr/bin/env python
# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How long a workload stands still when it moves: handover against what people script today, in turn, in one run.

The workload is the old test of ploop's authors, ``od -x /dev/urandom > file``, and beside it in the same container a heartbeat that
appends the wall clock to a file each millisecond. The longest gap between two beats around a move is the frozen time: seen from
inside, whatever a tool says of itself.

The contender is ``podman container checkpoint --export``, ``scp``, ``podman container restore --import``. It carries the volume in
its archive, and so inside its pause; that is what it does. Its archive is not compressed: on two cores and a local bridge that is
its faster way (its default, zstd, is run with --contender-compress zstd).

Both move the same image between the same two lab hosts, turn about, there and back. Prints a table, and writes
docs/benchmarks/freeze.json and freeze.md.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
import typing as t
from pathlib import Path

import hosts
from hosts import CHECKOUT
from results import Bar, save, spread, table

HERE = Path(__file__).resolve().parent
HOSTS = ("node1", "node2")
IMAGE = "localhost/handover/tools:lab"
NAMES = {
    "bench_workload": "bench",
    "bench_volume": "bench",
    "bench_volume_size": "1G",
    "bench_plain_workload": "bench-plain",
    "bench_archive": "/var/lib/handover/bench.tar",
}
# The file is begun again at this size, so that the volume never fills.
FILE_BYTES = 256 << 20
WRITER = f"heartbeat -file /data/beat & while :; do od -x /dev/urandom | head -c {FILE_BYTES} > /data/file; done"
# What is behind a move before the next one begins: the writer has to have written something again.
SETTLE_SECONDS = 5.0


class Fleet(hosts.Fleet):
    """The two hosts of the default fleet, and the workloads on them."""

    def __init__(self) -> None:
        super().__init__(HOSTS)

    def names(self, playbook: Path, **variables: str) -> None:
        """A play that knows what our things are called."""
        self.play(playbook, {**NAMES, **variables})

    def create(self, host: str, name: str, address: str, mac: str) -> None:
        """A container and its volume have the same name."""
        self.run(
            host, "podman", "create", "--name", name, "--network", "lan", "--ip", address, "--mac-address", mac,
            "--volume", f"{name}:/data", IMAGE, "sh", "-c", WRITER,
        )  # fmt: skip

    def longest_gap(self, host: str, name: str, since: float) -> float:
        """Seconds: the longest time without a beat, of the beats since a moment of the wall clock."""
        lines = self.run(host, "podman", "exec", name, "tail", "-n", "200000", "/data/beat").splitlines()
        beats = [int(line.split()[1]) / 1e9 for line in lines[1:]]
        beats = [b for b in beats if b >= since]
        return max(b - a for a, b in zip(beats, beats[1:]))


class Handover:
    """Moves by playbooks/migrate.yml."""

    name = "handover"
    workload = NAMES["bench_workload"]

    def __init__(self, fleet: Fleet, reports: Path) -> None:
        self.fleet, self.reports = fleet, reports

    def begin(self, host: str) -> None:
        self.fleet.create(host, self.workload, "10.213.0.90", "02:00:0a:d5:00:5a")

    def move(self, source: str, destination: str) -> None:
        self.fleet.names(
            CHECKOUT / "playbooks" / "migrate.yml",
            handover_workload=self.workload, handover_source=source, handover_destination=destination,
            handover_report_dir=str(self.reports),
        )  # fmt: skip


class Scripted:
    """Moves as people script it with podman and scp."""

    name = "podman checkpoint, scp, restore"
    workload = NAMES["bench_plain_workload"]

    def __init__(self, fleet: Fleet, compress: str) -> None:
        self.fleet, self.compress = fleet, compress

    def begin(self, host: str) -> None:
        self.fleet.run(host, "podman", "volume", "create", self.workload)
        self.fleet.create(host, self.workload, "10.213.0.91", "02:00:0a:d5:00:5b")

    def move(self, source: str, destination: str) -> None:
        name, archive = self.workload, NAMES["bench_archive"]
        # One script on the source, as one would write it: nothing of ours between the steps.
        there = f"root@{self.fleet.address[destination]}"
        self.fleet.run(
            source, "sh", "-ec",
            f"podman container checkpoint --tcp-established --compress {self.compress} --export {archive} {name};"
            f" scp -q {archive} {there}:{archive};"
            f" ssh {there} podman container restore --tcp-established --import {archive}",
        )  # fmt: skip
        for host in HOSTS:
            self.fleet.run(host, "rm", "-f", archive)
        self.fleet.run(source, "podman", "rm", "--force", name)
        self.fleet.run(source, "podman", "volume", "rm", "--force", name)


def measure(fleet: Fleet, contender: Handover | Scripted, source: str, destination: str) -> float:
    """One move. The other contender's workload stands still meanwhile."""
    fleet.run(source, "podman", "start", contender.workload)
    time.sleep(SETTLE_SECONDS)
    since = time.time()
    contender.move(source, destination)
    time.sleep(1)
    gap = fleet.longest_gap(destination, contender.workload, since)
    fleet.run(destination, "podman", "stop", "--time", "0", contender.workload)
    return gap


def write(results: dict[str, list[float]], runs: int) -> bool:
    ours, theirs = (statistics.median(results[name]) for name in (Handover.name, Scripted.name))
    spreads = {name: spread(values) for name, values in results.items()}
    bar = Bar("od: frozen time, median, as a part of the scripted way's", ours / theirs, 0.5, runs, spreads, Scripted.name)
    folder = CHECKOUT / "docs" / "benchmarks"
    save([bar], folder / "freeze.json")
    rows = table(
        ["who moves", "moves", "shortest", "median", "longest"],
        [[name, runs, *(f"{s[k]:.3f}" for k in ("min", "median", "max"))] for name, s in spreads.items()],
    )
    (folder / "freeze.md").write_text(
        f"""# Frozen time

Written by `make bench-freeze` on {bar.date}, {runs} moves each, turn about, on two lab hosts of one machine with {os.cpu_count()} cores.
Seconds without a beat, seen from inside the container; the workload is `od -x /dev/urandom > file` (the file is begun again at
{FILE_BYTES >> 20} MiB). Compare the rows with each other, not with another machine's.

{rows}

Handover's median is {bar.figure:.3f} of the scripted way's; the bar is {bar.limit}: {"met" if bar.met else "missed"}. The scripted way
carries the volume inside its pause, handover carries it before.
""",
        encoding="utf-8",
    )
    return bar.met


def main() -> int:
    parser = argparse.ArgumentParser(description=t.cast(str, __doc__).splitlines()[0])
    parser.add_argument("--runs", type=int, default=10, help="moves of each contender (10)")
    parser.add_argument("--contender-compress", choices=("none", "gzip", "zstd"), default="none", help="how podman packs its archive (none)")
    arguments = parser.parse_args()
    fleet = Fleet()
    contenders = (Handover(fleet, CHECKOUT / "handover-reports"), Scripted(fleet, arguments.contender_compress))
    results: dict[str, list[float]] = {c.name: [] for c in contenders}
    fleet.names(HERE / "remove.yml")
    try:
        fleet.names(HERE / "prepare.yml")
        where = {c.name: HOSTS[0] for c in contenders}
        for c in contenders:
            c.begin(HOSTS[0])
        for run in range(arguments.runs):
            for c in contenders:
                source = where[c.name]
                destination = HOSTS[1 - HOSTS.index(source)]
                seconds = measure(fleet, c, source, destination)
                results[c.name].append(seconds)
                where[c.name] = destination
                print(f"{run + 1:3} of {arguments.runs}  {c.name:34} {source} -> {destination}  {seconds:7.3f} s", flush=True)
    finally:
        fleet.names(HERE / "remove.yml")
    for name, values in results.items():
        print("{:34} shortest {min:.3f}  median {median:.3f}  longest {max:.3f} s".format(name, **spread(values)))
    return 0 if write(results, arguments.runs) else 1


if __name__ == "__main__":
    sys.exit(main())
