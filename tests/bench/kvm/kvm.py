#!/usr/bin/env python
# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Live migration of a KVM guest, feature by feature, against plain `virsh migrate` in the same run.

An idle guest and one that writes to its memory move between two lab hosts, over the lab's network as it is and at 1 Gbit/s. Plain is `virsh migrate`
as it comes, once more without the detection of zero pages, which was what plain meant in 2015. `auto` is kvm_migrate, told the speed of the link;
while it holds the guest on the destination, that counts as time and as downtime. All other figures are libvirt's own, asked of the destination. The
contenders come in turn, run after run, and each begins when the guest has been where it is for a while: one that arrived less than a second ago moves
in about four fifths of the time, which would be a gift to the contender that begins the soonest.

What was measured is kept by load in docs/benchmarks/kvm-runs.json; a load that is run again replaces its own part, or with --add is added to. From
all of it docs/benchmarks/kvm.json, kvm.md and a chart for each load and link are written. With LAB_FLEET=folder another fleet than lab/kvm is used.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import time
import typing as t
from pathlib import Path

HERE = Path(__file__).resolve().parent
# A folder of programs and not a package: it can be imported from only when it is in the path.
sys.path.insert(0, str(HERE.parent))
from hosts import BIN, CHECKOUT, Fleet
from results import Bar, chart, save, spread, table

FOLDER = Path(os.environ.get("LAB_FLEET", CHECKOUT / "lab" / "kvm"))
RUNS = CHECKOUT / "docs" / "benchmarks" / "kvm-runs.json"
HOSTS = ("kn1", "kn2")
GUEST = "shared"
SHELL_PORT = 2323
MIB = 1 << 20

OLD_PLAIN, PLAIN, AUTO = "virsh migrate, zero pages not looked for", "virsh migrate", "handover: auto"
# What `virsh migrate` is told besides. Those that take zero pages for others say so to QEMU, since libvirt has no word for it.
CONTENDERS: dict[str, tuple[str, ...]] = {
    OLD_PLAIN: (),
    PLAIN: (),
    "XBZRLE": ("--compressed", "--comp-methods", "xbzrle"),
    "2 connections": ("--parallel", "--parallel-connections", "2"),
    "2 connections, zstd": ("--parallel", "--parallel-connections", "2", "--compressed", "--comp-methods", "zstd"),
    "2 connections, zlib": ("--parallel", "--parallel-connections", "2", "--compressed", "--comp-methods", "zlib"),
    "auto-converge": ("--auto-converge",),
}
SINGLE = tuple(name for name in CONTENDERS if name != OLD_PLAIN)
# Name → what holds each host's uplink, and what kvm_migrate is told of it.
LINKS = {"no limit": ("", None), "1 Gbit/s": ("1gbit", 1000)}
LOADS = {"idle": "", "writer": "heartbeat -file /run/writer -every 100ms -memory {memory}M -dirty {dirty}M"}

TIME_LIMIT, RAM_LIMIT, DEFAULT_LIMIT, BEST_LIMIT = 0.55, 0.30, 1.03, 1.1
# In the order of the columns: heading, key of libvirt's statistics, divisor.
COLUMNS = {
    "total, ms": ("time_elapsed", 1), "downtime, ms": ("downtime", 1), "RAM transferred, MiB": ("memory_processed", MIB),
    "zero pages": ("memory_constant", 1), "passes": ("memory_iteration", 1),
}  # fmt: skip
UNCOUNTED = ("memory_constant", "memory_iteration")
# Those that last until the guest runs again.
HELD = ("time_elapsed", "downtime")
# libvirt's name for a figure → kvm_migrate's.
FIGURES = {
    "time_elapsed": "total_ms", "downtime": "downtime_ms", "memory_processed": "ram_transferred", "memory_constant": "ram_zero_pages",
    "memory_iteration": "iterations",
}  # fmt: skip

# How long the guest has been where it is before it is moved.
REST_SECONDS = 2.0
# A guest that has just booted moves slowly: so long nothing is measured, and the first moves do not count.
BOOTED_SECONDS, FIRST_MOVES = 20.0, 2

# How a load was measured: MiB of the guest, MiB a second that the writer writes, processors of the machine.
HOW = ("memory", "dirty", "cores")

Sample = dict[str, float]
Samples = dict[tuple[str, str, str], list[Sample]]


class Bench:
    """The guest, wherever it is."""

    def __init__(self, fleet: Fleet, memory: int) -> None:
        self.fleet, self.memory = fleet, memory
        self.at = HOSTS[0]
        self.rate: str | None = None

    def play(self, playbook: str, **variables: object) -> None:
        self.fleet.play(CHECKOUT / playbook, variables)

    def start(self) -> None:
        self.stop()  # what a run that was killed has left
        guest = {"address": "10.217.0.52", "mac": "52:54:00:d9:00:34", "disk": "nbd", "cache": "none"}
        self.play("molecule/kvm/prepare.yml", guests={GUEST: guest}, guest_memory_mib=self.memory)
        time.sleep(BOOTED_SECONDS)
        for _move in range(FIRST_MOVES):
            self.move(PLAIN, None)

    def stop(self) -> None:
        self.play("molecule/kvm/cleanup.yml")

    def limit(self, rate: str) -> None:
        if rate != self.rate:
            self.play("lab/shape.yml", lab_limits={"rate": rate} if rate else {})
            self.rate = rate

    def inside(self, script: str) -> None:
        with socket.create_connection(("10.217.0.52", SHELL_PORT), timeout=30) as shell:
            shell.sendall(f"{script}\necho said\nexit\n".encode())
            while shell.recv(4096):
                pass

    def virsh(self, host: str, *words: str) -> str:
        return self.fleet.run(host, "virsh", "--quiet", *words, timeout=600)

    def move(self, contender: str, link_mbit: int | None) -> Sample:
        """To the other host, and libvirt's figures."""
        there = next(host for host in HOSTS if host != self.at)
        time.sleep(REST_SECONDS)
        stats = self._by_handover(there, link_mbit) if contender == AUTO else self._by_virsh(contender, there)
        self.at = there
        # Zero pages and passes are not counted of every kind of migration.
        return {heading: float(stats.get(key, 0) if key in UNCOUNTED else stats[key]) / divisor for heading, (key, divisor) in COLUMNS.items()}

    def _by_virsh(self, contender: str, there: str) -> dict[str, t.Any]:
        detection = "none" if contender == OLD_PLAIN else "multifd"
        self.virsh(self.at, "qemu-monitor-command", GUEST, "--hmp", f"migrate_set_parameter zero-page-detection {detection}")
        self.virsh(
            self.at, "migrate", GUEST, f"qemu+ssh://{self.fleet.address[there]}/system", "--live", "--p2p", "--persistent", "--undefinesource",
            *CONTENDERS[contender],
        )  # fmt: skip
        lines = self.virsh(there, "domjobinfo", GUEST, "--completed", "--rawstats").splitlines()
        return dict(line.strip().split(": ", 1) for line in lines if ": " in line)

    def _by_handover(self, there: str, link_mbit: int | None) -> dict[str, t.Any]:
        """The same figures, which it asks libvirt for; with what it held the guest after it had arrived."""
        asked = {"guest": GUEST, "destination_uri": f"qemu+ssh://{self.fleet.address[there]}/system"}
        if link_mbit:
            asked["link_mbit"] = link_mbit
        done = subprocess.run(
            [BIN / "ansible", *self.fleet.options, self.at, "-m", "livefleet.handover.kvm_migrate", "-a", json.dumps(asked)],
            env={**os.environ, "ANSIBLE_CONFIG": str(CHECKOUT / "ansible.cfg"), "ANSIBLE_CALLBACK_RESULT_FORMAT": "json"},
            cwd=CHECKOUT, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            sys.exit(f"kvm: {done.stdout[-2000:]}{done.stderr[-1000:]}")
        result = json.loads(done.stdout.partition("=>")[2])
        stats = {key: result["figures"][name] or 0 for key, name in FIGURES.items()}
        return {**stats, **{key: stats[key] + result["held_ms"] for key in HELD}}


def measure(bench: Bench, load: str, runs: int, dirty: int) -> Samples:
    samples: Samples = {}
    if LOADS[load]:
        bench.inside(f"{LOADS[load].format(memory=bench.memory // 4, dirty=dirty)} >/dev/null 2>&1 </dev/null &")
        time.sleep(5)
    for run in range(runs):
        for link, (rate, link_mbit) in LINKS.items():
            bench.limit(rate)
            for contender in (*CONTENDERS, AUTO):
                sample = bench.move(contender, link_mbit)
                samples.setdefault((load, link, contender), []).append(sample)
                told = ", ".join(f"{name} {value:.0f}" for name, value in sample.items())
                print(f"{run + 1} {load:7}{link:9}{contender:42}{told}", flush=True)
    return samples


def kept() -> dict[str, t.Any]:
    """Load → how it was measured, and link → contender → samples."""
    return json.loads(RUNS.read_text(encoding="utf-8")) if RUNS.exists() else {}


def keep(samples: Samples, load: str, how: dict[str, object], add: bool) -> None:
    before = kept().get(load) if add else None
    if before and {name: before[name] for name in HOW} != how:
        sys.exit(f"kvm: {load} was measured with another guest, or on another machine: measure it anew, without --add")
    part: dict[str, dict[str, list[Sample]]] = before["links"] if before else {}
    for (_load, link, contender), each in samples.items():
        part.setdefault(link, {}).setdefault(contender, []).extend(each)
    RUNS.parent.mkdir(exist_ok=True)
    RUNS.write_text(json.dumps({**kept(), load: {**how, "links": part}}, indent=1) + "\n", encoding="utf-8")


def samples_of(runs: dict[str, t.Any]) -> Samples:
    return {
        (load, link, contender): each for load, part in runs.items() for link, of in part["links"].items() for contender, each in of.items()
    }


def middle(samples: Samples, load: str, link: str, contender: str, what: str = "total, ms") -> float:
    return spread([sample[what] for sample in samples[load, link, contender]])["median"]


def bars(samples: Samples) -> list[Bar]:
    runs = min(map(len, samples.values()))

    def held_to(what: str, load: str, link: str, against: str, limit: float, key: str = "total, ms") -> Bar:
        of = {name: spread([sample[key] for sample in samples[load, link, name]]) for name in (AUTO, against)}
        figure = middle(samples, load, link, AUTO, key) / max(1e-9, middle(samples, load, link, against, key))
        return Bar(what, figure, limit, runs, of, against)

    found = [
        held_to("idle guest at 1 Gbit/s: total time, as a part of plain without zero pages", "idle", "1 Gbit/s", OLD_PLAIN, TIME_LIMIT),
        held_to("idle guest at 1 Gbit/s: RAM transferred, as a part of that", "idle", "1 Gbit/s", OLD_PLAIN, RAM_LIMIT, "RAM transferred, MiB"),
    ]
    for link in LINKS:
        found.append(held_to(f"idle guest, {link}: total time, as a part of today's plain", "idle", link, PLAIN, DEFAULT_LIMIT))
        best = min(SINGLE, key=lambda name: middle(samples, "writer", link, name))
        found.append(held_to(f"writer, {link}: total time, as a part of the best single setting", "writer", link, best, BEST_LIMIT))
    return found


def write(measured: list[Bar], samples: Samples, how: dict[str, t.Any]) -> None:
    folder = CHECKOUT / "docs" / "benchmarks"
    save(measured, folder / "kvm.json")
    parts = []
    for load in LOADS:
        for link in LINKS:
            names = [*CONTENDERS, AUTO]
            file = f"kvm-{load}-{link.split()[0]}.svg"
            drawn = {name: [sample["total, ms"] for sample in samples[load, link, name]] for name in names}
            (folder / file).write_text(chart(f"Total time, {load}, {link}", "ms", drawn, ours="handover"), encoding="utf-8")
            rows = [[name, *(f"{middle(samples, load, link, name, what):,.0f}" for what in COLUMNS)] for name in names]
            parts.append(f"## {load.capitalize()}, {link}\n\n{table(['', *COLUMNS], rows)}\n\n![Total time]({file})\n")
    text = (HERE / "kvm.md.in").read_text(encoding="utf-8")
    for mark, put in {
        "@DATE@": measured[0].date, "@RUNS@": str(measured[0].runs), "@CORES@": str(how["cores"]), "@MEMORY@": str(how["memory"]), "@DIRTY@": str(how["dirty"]),
        "@WRITTEN@": str(how["memory"] // 4), "@TABLES@": "\n".join(parts), "@BARS@": "\n".join(f"- {each.sentence()}" for each in measured),
    }.items():  # fmt: skip
        text = text.replace(mark, put)
    (folder / "kvm.md").write_text(text, encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--runs", type=int, default=3, help="of each contender (3)")
    parser.add_argument("--memory", type=int, default=1024, help="MiB of the guest (1024)")
    parser.add_argument("--dirty", type=int, default=32, help="MiB a second that the writer writes to, of a quarter of the memory (32)")
    parser.add_argument("--loads", default=",".join(LOADS), help=f"only these of {','.join(LOADS)}; what was measured of the others stays")
    parser.add_argument("--add", action="store_true", help="keep what was measured of the loads before")
    asked = parser.parse_args()
    loads = asked.loads.split(",")
    unknown = set(loads) - set(LOADS)
    if unknown:
        sys.exit(f"kvm: there is no load {sorted(unknown)[0]}: the loads are {', '.join(LOADS)}")
    if asked.runs:
        bench = Bench(Fleet(HOSTS, FOLDER / "inventory.yml", FOLDER / "parameters.yml"), asked.memory)
        bench.start()
        try:
            for load in [load for load in LOADS if load in loads]:
                how = dict(zip(HOW, (asked.memory, asked.dirty, os.cpu_count())))
                keep(measure(bench, load, asked.runs, asked.dirty), load, how, asked.add)
        finally:
            bench.limit("")
            bench.stop()
    runs = kept()
    missing = set(LOADS) - set(runs)
    if missing:
        sys.exit(f"kvm: {sorted(missing)[0]} was not measured yet: run this with --loads {sorted(missing)[0]}, too")
    if len({json.dumps({name: part[name] for name in HOW}) for part in runs.values()}) > 1:
        sys.exit("kvm: the loads were measured with guests of different sizes, or on different machines: measure all of them anew")
    samples = samples_of(runs)
    measured = bars(samples)
    write(measured, samples, runs[next(iter(LOADS))])
    for each in measured:
        print(f"{'met   ' if each.met else 'MISSED'} {each.figure:8.4g} <= {each.limit:<6g} {each.what}")
    return 0 if all(each.met for each in measured) else 1


if __name__ == "__main__":
    sys.exit(main())
