#!/usr/bin/env python
# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How long a workload stands still when it moves: handover against what people script today, in turn, in one run.

Beside each workload, in the same container, a heartbeat appends the wall clock to a file each millisecond. The gap between two beats in which
it was frozen is the frozen time: seen from inside, whatever a tool says of itself. Where a script does not say when that was, it is the longest
gap. Another one may be longer than the frozen time of a short move, when the disk of a workload that writes a lot is slow to answer; the longest
of these is kept, too. Who moves it, in turn, between the same two lab hosts, there and back:

* handover, by playbooks/migrate.yml;
* podman: ``podman container checkpoint --export``, scp, ``podman container restore --import``. Its archive carries the volume, and so the
  pause does; that is what it does. It is not compressed: on two cores and a local bridge that is its faster way;
* rsync twice: the volume while the workload runs and again in the pause, the state as podman does it;
* vzmigrate's order: the disk by ``pcopy`` while the workload runs; then one after the other suspend, its last blocks, dump, copy dump,
  undump and resume, each over an ssh of its own, or over one that is shared (``vz-shared``), or without a barrier, as before ploop 1.11
  (``vz-no-barrier``): the homework of the source texts, how much barriers gain under load;
* floor: CRIU's own times for a dump and a restore of the same workload on one host, with nothing copied.

A row is a workload and a condition: ``od``, ``od+link`` (each uplink limited to 1 Gbit/s), ``od+disk`` (200 reads a second from the disk with
its image), ``od+disk+link``. The row ``docker`` has hosts and contenders of its own: freeze_docker.py. What was measured is kept by row in
docs/benchmarks/freeze-runs.json; a row that is run again replaces its own part, or with --add is added to. Contenders that
are left out stay, with the day of their last run.
docs/benchmarks/freeze.md, freeze.json and freeze.svg are written from all of it.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import typing as t
from pathlib import Path

import free_memory
import freeze_docker
import freeze_report
import hosts
from freeze_workloads import POSTGRES, WORKLOADS, Workload
from hosts import CHECKOUT

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(CHECKOUT / "tests" / "clients"))
from pgbench import Pgbench

PCOPY = "/usr/local/libexec/handover/pcopy"
OURS, ARCHIVE = "bench", "/var/lib/handover/bench.tar"
# The disk of a host that is slow has this file, and all images are on it.
DISK = "/var/lib/bench-disk.img"
NAMES = {"bench_workload": OURS}
# What is behind a move before the next one begins: the writer has to have written something again.
SETTLE_SECONDS = 5.0
READS = 200
RATE = "1gbit"
CONDITIONS = {"disk": f"{READS} reads a second from the disk with the images", "link": f"each uplink limited to {RATE}"}


class Fleet(hosts.Fleet):
    """The two hosts, and the workloads on them."""

    def __init__(self, names: tuple[str, ...], inventory: Path | None, parameters: Path | None) -> None:
        super().__init__(names, inventory, parameters)
        self.hosts = list(names)
        self.network = self.address[names[0]].rsplit(".", 1)[0]

    def names(self, playbook: Path, **variables: t.Any) -> None:
        """A play that knows what our things are called."""
        self.play(playbook, {**NAMES, **variables})

    @contextlib.contextmanager
    def disk(self, wanted: bool) -> t.Iterator[None]:
        """All that is handed over is on a disk of its own, if that is wanted."""
        if not wanted:
            yield
            return
        play = HERE / "slow_disk.yml"
        try:
            self.names(play, bench_disk=DISK)
            self.names(HERE / "ready.yml")  # the folders on it
            yield
        finally:
            self.names(play, bench_disk=DISK, bench_disk_state="absent")

    def create(self, host: str, name: str, volume: str, number: int, work: Workload) -> None:
        environment = [word for pair in work.environment for word in ("--env", pair)]
        self.run(
            host, "podman", "create", "--name", name, "--network", "lan", "--ip", f"{self.network}.{number}",
            "--mac-address", f"02:00:0a:{int(self.network.split('.')[1]):02x}:00:{number:02x}",
            "--volume", f"{volume}:{work.folder}", *environment, work.image, *work.command,
        )  # fmt: skip

    def beats(self, host: str, name: str, work: Workload, since: float) -> list[float]:
        """The beats since a moment, all by the wall clock."""
        lines = self.run(host, "podman", "exec", name, "tail", "-n", "600000", work.beat).splitlines()
        beats = [int(line.split()[1]) / 1e9 for line in lines[1:]]
        return [b for b in beats if b >= since]


class Handover:
    """Moves by playbooks/migrate.yml."""

    workload = OURS
    number = 90
    asked: t.Mapping[str, t.Any] = {}
    stopped_at: float | None = None  # by the wall clock: when the last move froze it
    at_risk: float = 0.0  # seconds after the last pause in which both hosts were needed

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet

    def begin(self, host: str, work: Workload) -> None:
        self.fleet.names(HERE / "prepare.yml", bench_workload=self.workload, bench_host=host, bench_volume_size=work.volume)
        self.fleet.create(host, self.workload, self.workload, self.number, work)

    def move(self, source: str, destination: str) -> dict[str, float]:
        with tempfile.TemporaryDirectory() as reports:
            self.fleet.names(
                CHECKOUT / "playbooks" / "migrate.yml", handover_workload=self.workload, handover_source=source,
                handover_destination=destination, handover_report_dir=reports, **self.asked,
            )  # fmt: skip
            (path,) = Path(reports).glob("*.json")
            report = json.loads(path.read_text(encoding="utf-8"))
        self.stopped_at = freeze_report.stopped_at(report["source_events"])
        self.at_risk = report["at_risk_ms"] / 1000
        return freeze_report.holds(report["source_session"]["stages"], report["frozen_ms"])


class HandoverLazy(Handover):
    """The same, but its memory follows when it runs."""

    workload = "bench-97"
    number = 97
    asked: t.Mapping[str, t.Any] = {"handover_lazy_pages": True}


class HandoverCRIU(Handover):
    """The same, but CRIU reads and writes its memory in the pause."""

    workload = "bench-98"
    number = 98
    asked: t.Mapping[str, t.Any] = {"migrate_place_memory": False}


class Scripted:
    """Moves by one script on the source, as one would write it: nothing of ours between the steps."""

    number = 91
    shared = False
    stopped_at: float | None = None

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.workload = f"bench-{self.number}"

    def begin(self, host: str, work: Workload) -> None:
        self.fleet.run(host, "podman", "volume", "create", self.workload)
        self.fleet.create(host, self.workload, self.workload, self.number, work)

    def move(self, source: str, destination: str) -> dict[str, float]:
        there = f"root@{self.fleet.address[destination]}"
        words = "-o ControlMaster=auto -o ControlPath=/run/bench-%C -o ControlPersist=60" if self.shared else "-o ControlPath=none"
        head = (
            f"ssh() {{ command ssh {words} {there} \"$@\"; }}\n"
            f"send() {{ scp -q {words} {ARCHIVE} {there}:{ARCHIVE}; }}\n"
            "now() { date +%s%N; }; began=$(now)\n"
            'step() { echo "step $1 $(($(now) - began))"; began=$(now); }\n'
        )
        said = self.fleet.run(source, "bash", "-ec", head + self.script(there, words))
        self.clean(source)
        steps = (line.split() for line in said.splitlines() if line.startswith("step "))
        return {words[1]: int(words[2]) / 1e6 for words in steps}

    def script(self, there: str, words: str) -> str:
        raise NotImplementedError

    def clean(self, host: str) -> None:
        """Takes everything of this one off a host."""
        self.fleet.run(host, "podman", "rm", "--force", "--time", "0", "--ignore", self.workload)
        self.fleet.run(host, "podman", "volume", "rm", "--force", self.workload)
        self.fleet.run(host, "rm", "-f", ARCHIVE)

    def checkpoint(self, *more: str) -> str:
        return shlex.join(
            ["podman", "container", "checkpoint", "--tcp-established", "--file-locks", "--compress", "none", *more, "--export", ARCHIVE, self.workload]
        )

    def restore(self, *more: str) -> str:
        return shlex.join(["podman", "container", "restore", "--tcp-established", "--file-locks", *more, "--import", ARCHIVE])


class Podman(Scripted):
    """Everything in podman's archive."""

    def script(self, there: str, words: str) -> str:
        return f"{self.checkpoint()}; step checkpoint\nsend; step copy\nssh {self.restore()}; step restore\n"


class RsyncTwice(Scripted):
    """The volume by rsync, before and in the pause."""

    number = 92

    def script(self, there: str, words: str) -> str:
        sync = f"rsync -aHAX --delete --numeric-ids -e 'ssh {words}' $from/ {there}:$to/"
        find = f"podman volume inspect --format '{{{{.Mountpoint}}}}' {self.workload}"
        return (
            f"from=$({find}); ssh podman volume create {self.workload} >/dev/null; to=$(ssh \"{find}\")\n"
            # A file that has got shorter while it was read (23), or is gone (24), is what the second time is for.
            f"{sync} || [ $? -eq 23 ] || [ $? -eq 24 ]; began=$(now)\n"
            f"{self.checkpoint('--ignore-volumes')}; step dump\n{sync}; step 'rsync'\nsend; step copy\n"
            f"ssh {self.restore('--ignore-volumes')}; step restore\n"
        )


class Vz(Scripted):
    """vzmigrate's order, with the image as the disk."""

    number = 93
    dialect = "ploop-1.12"

    def __init__(self, fleet: Fleet) -> None:
        super().__init__(fleet)
        self.image, self.mount = f"/var/lib/handover/{self.workload}.img", f"/srv/{self.workload}"

    def begin(self, host: str, work: Workload) -> None:
        self.fleet.run(
            host, "sh", "-ec",
            f"mkdir -p {self.mount}; truncate -s {work.volume} {self.image}; mkfs.ext4 -q {self.image}; mount -o loop {self.image} {self.mount};"
            f" rmdir {self.mount}/lost+found; podman volume create -o type=none -o o=bind -o device={self.mount} {self.workload} >/dev/null",
        )  # fmt: skip
        self.fleet.create(host, self.workload, self.workload, self.number, work)

    def script(self, there: str, words: str) -> str:
        suspend = "/run/bench-suspend"
        ready = (
            f"mkdir -p {self.mount}; rm -f {self.image};"
            f" podman volume create -o type=none -o o=bind -o device={self.mount} {self.workload} >/dev/null"
        )
        return (
            f"device=$(losetup -nO NAME -j {self.image} | head -n 1)\n"
            f"pid=$(podman inspect --format '{{{{.State.Pid}}}}' {self.workload}); group=/sys/fs/cgroup$(sed -n s/^0:://p /proc/$pid/cgroup)\n"
            f"printf '#!/bin/sh\\ndate +%%s%%N >{suspend}.at\\necho 1 >%s/cgroup.freeze\\nsync -f {self.mount}\\n' $group >{suspend}; chmod +x {suspend}\n"
            f"ssh {shlex.quote(ready)}\n"
            f"{PCOPY} send --dialect {self.dialect} --device $device -F {suspend} --thaw-command \"sh -c 'echo 0 >$group/cgroup.freeze'\""
            f" --to {self.image} -- ssh {words} {there} {PCOPY}\n"
            f"began=$(cat {suspend}.at); step disk\n"
            f"{self.checkpoint('--ignore-volumes')}; step dump\nsend; step copy\n"
            f"ssh mount -o loop {self.image} {self.mount}; step mount\nssh {self.restore('--ignore-volumes')}; step restore\n"
        )

    def clean(self, host: str) -> None:
        super().clean(host)
        self.fleet.run(host, "sh", "-c", f"while umount {self.mount}; do :; done 2>/dev/null; rm -rf {self.image} {self.mount} /run/bench-suspend*")


class VzShared(Vz):
    """The same over one connection."""

    number = 94
    shared = True


class VzNoBarrier(Vz):
    """The same without a barrier."""

    number = 96
    dialect = "ploop-1.10"


class Floor(Scripted):
    """CRIU's own times, on one host."""

    number = 95

    def floor(self, host: str) -> float:
        """Seconds: freeze, dump and restore, as CRIU counts them."""
        words = ("--keep", "--print-stats", "--tcp-established", "--file-locks", self.workload)
        total = 0
        for verb, parts in (("checkpoint", ("freezing_time", "frozen_time")), ("restore", ("forking_time", "restore_time"))):
            said = json.loads(self.fleet.run(host, "podman", "container", verb, *words))
            counted = said["container_statistics"][0]["criu_statistics"]
            total += sum(int(counted[part]) for part in parts)
        return total / 1e6


CONTENDERS: dict[str, t.Callable[[Fleet], Handover | Scripted]] = {
    "handover": Handover, "handover-lazy": HandoverLazy, "handover-criu": HandoverCRIU, "podman": Podman, "rsync-twice": RsyncTwice,
    "vz": Vz, "vz-shared": VzShared, "vz-no-barrier": VzNoBarrier, "floor": Floor,
}  # fmt: skip


class Row:
    """One workload under one set of conditions, with everybody who moves it."""

    def __init__(self, fleet: Fleet, name: str, contenders: list[str], lab_cache: Path) -> None:
        self.fleet, self.name = fleet, name
        workload, *self.conditions = name.split("+")
        self.work = WORKLOADS[workload]
        self.movers = {c: CONTENDERS[c](fleet) for c in contenders}
        self.where = {c: fleet.hosts[0] for c in contenders}
        self.root = lab_cache / "images/postgres/root"
        self.found: dict[str, list[dict[str, t.Any]]] = {c: [] for c in contenders}

    def fill(self, mover: Handover | Scripted) -> None:
        line = f"head -c {self.work.rest} /dev/urandom > {self.work.folder}/rest; sync"
        volume = f"{mover.workload}:{self.work.folder}"
        self.fleet.run(self.fleet.hosts[0], "podman", "run", "--rm", "--network", "none", "--volume", volume, self.work.image, "sh", "-ec", line)

    def limit(self, on: bool) -> None:
        if "link" in self.conditions:
            self.fleet.names(CHECKOUT / "lab" / "shape.yml", lab_limits={"rate": RATE} if on else {})
        if "disk" in self.conditions:
            # Not the workload's own loop device, but the disk that its image is on: what is in memory of a file is not read from a disk.
            self.fleet.names(CHECKOUT / "lab" / "slow.yml", lab_slow_file=DISK, lab_read_iops=READS if on else 0)

    def measure(self, name: str) -> dict[str, t.Any]:
        """One move. All others' workloads stand still meanwhile."""
        mover = self.movers[name]
        source = self.where[name]
        destination = self.fleet.hosts[1 - self.fleet.hosts.index(source)]
        self.fleet.run(source, "podman", "start", mover.workload)
        load = None
        if self.work.image == POSTGRES:
            load = self.begin_load(source, mover)
        time.sleep(SETTLE_SECONDS)
        sample: dict[str, t.Any] = {}
        since = time.time()
        if isinstance(mover, Floor):
            sample["seconds"] = mover.floor(source)
            self.fleet.run(source, "podman", "stop", "--time", "0", mover.workload)
        else:
            self.limit(True)
            since = time.time()
            try:
                sample["stages"] = mover.move(source, destination)
            finally:
                self.limit(False)
            time.sleep(1)
            beats = self.fleet.beats(destination, mover.workload, self.work, since)
            sample["seconds"], sample["other"] = freeze_report.silences(beats, mover.stopped_at)
            self.where[name] = destination
            if isinstance(mover, HandoverLazy):
                sample["at_risk"] = mover.at_risk
        if load is not None:
            said = load.stop(since)
            sample["failed"] = said["failed"] + len(said["errors"])
            sample["stall"] = said["longest_stall"]
        if not isinstance(mover, Floor):
            self.fleet.run(destination, "podman", "stop", "--time", "0", mover.workload)
        return sample

    def begin_load(self, host: str, mover: Handover | Scripted) -> Pgbench:
        for _try in range(60):
            if subprocess.run([*self.fleet.ssh[host], f"podman exec {mover.workload} pg_isready -q -h /tmp"], check=False).returncode == 0:
                break
            time.sleep(1)
        there = "psql -qAt -h /tmp -U postgres -c \"select to_regclass('pgbench_accounts')\" postgres | grep -q ."
        tables = f"{there} || pgbench -i -q -s 10 -h /tmp -U postgres postgres"
        self.fleet.run(host, "podman", "exec", mover.workload, "sh", "-c", tables)
        load = Pgbench(self.root, f"{self.fleet.network}.{mover.number}", Path(tempfile.gettempdir()) / "bench-freeze-pgbench", 200)
        load.start()
        return load

    def run(self, runs: int) -> None:
        """Turn about, there and back."""
        try:
            for mover in self.movers.values():
                self.clean(mover)
                mover.begin(self.fleet.hosts[0], self.work)
                if self.work.rest:
                    self.fill(mover)
            for run in range(runs):
                for name in self.movers:
                    sample = self.measure(name)
                    self.found[name].append(sample)
                    print(f"{self.name:20} {name:12} {run + 1:3} of {runs}  {sample['seconds']:8.3f} s", flush=True)
        finally:
            for mover in self.movers.values():
                self.clean(mover)

    def clean(self, mover: Handover | Scripted) -> None:
        if isinstance(mover, Handover):
            self.fleet.names(HERE / "remove.yml", bench_workload=mover.workload)
            return
        for host in self.fleet.hosts:
            mover.clean(host)


def contenders_of(parser: argparse.ArgumentParser, row: str, asked: str | None) -> list[str]:
    """Who moves a row; one that there is not, or whom the row does not know, ends the benchmark before it begins."""
    workload, *conditions = row.split("+")
    known = freeze_docker.CONTENDERS if row in OTHERS else CONTENDERS
    found = asked.split(",") if asked else list(known)
    if row not in OTHERS and (workload not in WORKLOADS or set(conditions) - set(CONDITIONS)) or set(found) - set(known):
        rows = f"{', '.join(WORKLOADS)} with +disk or +link, and {', '.join(OTHERS)}"
        parser.error(f"{row} by {', '.join(found)}: rows are {rows}; the contenders of this one {', '.join(known)}")
    return found


@contextlib.contextmanager
def prepared(arguments: argparse.Namespace, name: str, contenders: list[str]) -> t.Iterator[Row]:
    """A row of one container, on hosts that are ready for it."""
    fleet = Fleet(tuple((arguments.hosts or "node1,node2").split(",")), arguments.inventory, arguments.parameters)
    fleet.names(HERE / "ready.yml")
    row = Row(fleet, name, contenders, arguments.lab_cache)
    with fleet.disk("disk" in row.conditions), free_memory.kept():
        yield row


# Rows that have hosts and contenders of their own.
OTHERS = {"docker": freeze_docker.prepared}


def main() -> int:
    parser = argparse.ArgumentParser(description=t.cast(str, __doc__).splitlines()[0])
    parser.add_argument("--runs", type=int, default=10, help="moves of each contender (10)")
    parser.add_argument("--rows", default="idle,od", help=f"workloads {', '.join(WORKLOADS)}, each with +disk, +link or both; docker (idle,od)")
    parser.add_argument("--contenders", help="who moves them (all)")
    parser.add_argument("--lab-cache", type=Path, default=Path("/var/cache/handover-lab"), help="where the lab keeps its images")
    parser.add_argument("--hosts", help="the two hosts (node1,node2; for the row docker dock1,dock2)")
    parser.add_argument("--inventory", type=Path, help="of another fleet than the default one")
    parser.add_argument("--parameters", type=Path, help="of that fleet")
    parser.add_argument("--add", action="store_true", help="keep what was measured of the rows before")
    parser.add_argument("--report", action="store_true", help="measure nothing: write the files again from what was measured")
    arguments = parser.parse_args()
    folder = CHECKOUT / "docs" / "benchmarks"
    runs = freeze_report.Runs(folder, [*WORKLOADS, *OTHERS], [*CONTENDERS, *freeze_docker.CONTENDERS])
    # Whoever ends it finds the disks and the machine's memory as they were.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if not arguments.report:
        chosen = {name: contenders_of(parser, name, arguments.contenders) for name in arguments.rows.split(",")}
        for name, contenders in chosen.items():
            with OTHERS.get(name, prepared)(arguments, name, contenders) as row:
                row.run(arguments.runs)
            today = datetime.date.today().isoformat()
            what = "; ".join([row.work.what, *(CONDITIONS[c] for c in row.conditions)])
            found = {"what": what, "memory": row.work.memory, "date": today, "cores": os.cpu_count(), "by": row.found}
            runs.put(name, found, arguments.add)
            runs.write()
    runs.write()
    bars = runs.bars()
    for each in bars:
        print(each.sentence())
    return 0 if all(each.met for each in bars) else 1


if __name__ == "__main__":
    sys.exit(main())
