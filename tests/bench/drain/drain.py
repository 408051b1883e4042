#!/usr/bin/env python
# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What it takes to empty a host of the lab: time, against what its link needs, and processor time of the controller.

Containers with volumes full of what cannot be compressed leave one host for two others over links that are limited. The slowest path is the
source's own link. Its bound is not computed but measured in the same run: the same number of bytes, sent by socat in two streams to the same two
hosts at the same limit. The controller's processor time is what ansible-playbook and all that it started used, by the kernel's account.

The rows come in turn, run after run. Writes docs/benchmarks/drain.json, drain.md and drain.svg. Another fleet than the lab's own is used if
LAB_FLEET names a folder with its inventory.yml and parameters.yml.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import typing as t
from pathlib import Path

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parent.parent.parent
# A folder of programs and not a package: it can be imported from only when it is in the path.
sys.path.insert(0, str(HERE.parent))
from results import Bar, chart, save, spread, table

BIN = Path(sys.executable).parent
OTHER = os.environ.get("LAB_FLEET", "")
INVENTORY = Path(OTHER) / "inventory.yml" if OTHER else CHECKOUT / "lab" / "inventory.yml"
PORT = 4300
TOTAL_LIMIT, PROCESSOR_LIMIT, GROWTH_LIMIT = 1.3, 3.0, 1.2
CONTENDER = "socat, the same bytes over the same links"


class Fleet:
    """Three hosts of the lab."""

    def __init__(self, reports: Path) -> None:
        listed = subprocess.run([BIN / "ansible-inventory", "-i", INVENTORY, "--list"], env=environment(), check=True, stdout=subprocess.PIPE, text=True)
        groups = json.loads(listed.stdout)
        self.names = [*groups["lab"]["hosts"], *groups.get("lab_spare", {}).get("hosts", [])][:3]
        self.known = groups["_meta"]["hostvars"]
        self.reports = reports

    def play(self, playbook: str, **variables: t.Any) -> tuple[float, float]:
        """Seconds that it took, and seconds of the controller's processors."""
        more = [f"--extra-vars=@{file}" for file in (CHECKOUT / "lab/group_vars/all/parameters.yml", f"{OTHER}/parameters.yml")] if OTHER else []
        asked = {"lab_fleet": ",".join(self.names), **variables}
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        done = subprocess.run(
            [str(BIN / "ansible-playbook"), f"--inventory={INVENTORY}", *more, playbook, "--extra-vars", json.dumps(asked)], cwd=CHECKOUT,
            env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        )  # fmt: skip
        took, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
        if done.returncode != 0:
            sys.exit(f"drain: {playbook} failed:\n{done.stdout[-3000:]}")
        return took, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    def ssh(self, host: str, *argv: str, wait: bool = True) -> subprocess.Popen[str]:
        known = self.known[host]
        command = ["ssh", *known["ansible_ssh_common_args"].split(), f"{known['ansible_user']}@{known['ansible_host']}", *argv]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        if wait and process.wait(timeout=3600) != 0:
            sys.exit(f"drain: on {host}: {' '.join(argv)} failed")
        return process

    def link_seconds(self, total: int) -> float:
        """How long the link itself needs for so many bytes, in a stream to each of the two hosts."""
        source, *others = self.names
        sinks = [self.ssh(host, f"socat -u TCP-LISTEN:{PORT},reuseaddr OPEN:/dev/null", wait=False) for host in others]
        time.sleep(2)
        began = time.monotonic()
        streams = [
            self.ssh(source, f"head -c {total // len(others)} /dev/zero | socat -u - TCP:{self.known[host]['ansible_host']}:{PORT}", wait=False)
            for host in others
        ]
        failed = [stream.wait(timeout=3600) for stream in streams]
        took = time.monotonic() - began
        for sink in sinks:
            sink.wait(timeout=60)
        if any(failed):
            sys.exit("drain: the link could not be measured: is socat on the hosts?")
        return took


def environment() -> dict[str, str]:
    return {**os.environ, "ANSIBLE_CONFIG": str(CHECKOUT / "ansible.cfg"), "PATH": f"{BIN}:{os.environ['PATH']}", "ANSIBLE_NOCOLOR": "1"}


def drain(fleet: Fleet, containers: int, fill_mib: int, rate: str) -> dict[str, float]:
    """One drain, from containers that are made to containers that are gone."""
    source = fleet.names[0]
    volume = f"{max(64, fill_mib * 5 // 4)}M"
    print(f"{containers:3} containers of {fill_mib} MiB at {rate}: ", end="", flush=True)
    fleet.play(str(HERE / "remove.yml"))
    fleet.play(
        str(HERE / "prepare.yml"), fleet_source=source, fleet_containers=containers, fleet_volume_size=volume, fleet_fill_mib=fill_mib
    )
    fleet.play("lab/shape.yml", lab_limits={"rate": rate})
    try:
        link = fleet.link_seconds(containers * fill_mib * 2**20)
        took, cpu = fleet.play(
            "playbooks/drain.yml", handover_source=source, handover_hosts=",".join(fleet.names), handover_serial=16, handover_spare_memory="64M",
            handover_report_dir=str(fleet.reports),
        )  # fmt: skip
    finally:
        fleet.play("lab/shape.yml", lab_limits={})
    moved = [json.loads(path.read_text(encoding="utf-8")) for path in fleet.reports.glob("tenant*.json")]
    for path in fleet.reports.iterdir():
        path.unlink()
    if len(moved) != containers:
        sys.exit(f"drain: {len(moved)} of {containers} containers have moved")
    if len({report["destination"] for report in moved}) != min(2, containers):
        sys.exit("drain: the containers have not gone to two hosts: is one of them out of memory or disk?")
    print(f"{took:6.1f} s, the link alone {link:6.1f} s, controller {cpu / containers:5.2f} s of processor each", flush=True)
    return {
        "seconds": took, "link": link, "part": took / link, "each": took / containers, "processor": cpu / containers,
        "paused": max(report["frozen_ms"] for report in moved) / 1000,
    }  # fmt: skip


Samples = dict[str, list[dict[str, float]]]


def bars(small: str, many: str, large: str, samples: Samples) -> list[Bar]:
    def middle(row: str, key: str) -> float:
        return spread([run[key] for run in samples[row]])["median"]

    def of(key: str, *rows: str) -> dict[str, dict[str, float]]:
        return {row: spread([run[key] for run in samples[row]]) for row in rows}

    runs = len(samples[large])
    return [
        Bar(f"drain of {large} to two hosts: time, as a part of what the link needs", middle(large, "part"), TOTAL_LIMIT, runs, of("part", large), CONTENDER),
        Bar("processor time of the controller for a migration, s", middle(large, "processor"), PROCESSOR_LIMIT, runs, of("processor", *samples), "none"),
        Bar(
            f"time for a container, {many} as a part of {small}",
            middle(many, "each") / middle(small, "each"), GROWTH_LIMIT, runs, of("each", small, many), small,
        ),
        Bar(
            f"processor time of the controller for a container, {many} as a part of {small}",
            middle(many, "processor") / middle(small, "processor"), GROWTH_LIMIT, runs, of("processor", small, many), small,
        ),
    ]  # fmt: skip


# Heading, key of a run.
COLUMNS = {
    "drain, s": "seconds", "the link alone, s": "link", "a container, s": "each", "controller's processor, each, s": "processor",
    "longest pause, s": "paused",
}  # fmt: skip


def write(measured: list[Bar], samples: Samples, rate: str) -> None:
    folder = CHECKOUT / "docs" / "benchmarks"
    save(measured, folder / "drain.json")
    processor = {row: [run["processor"] for run in runs] for row, runs in samples.items()}
    drawn = chart("Processor time of the controller for a migration", "s", processor, PROCESSOR_LIMIT)
    (folder / "drain.svg").write_text(drawn, encoding="utf-8")
    rows = []
    for row, runs in samples.items():
        spreads = [spread([run[key] for run in runs]) for key in COLUMNS.values()]
        rows.append([row, *(f"{s['median']:.3g}" + (f" ({s['min']:.3g} to {s['max']:.3g})" if len(runs) > 1 else "") for s in spreads)])
    text = (HERE / "drain.md.in").read_text(encoding="utf-8")
    for mark, put in {
        "@DATE@": measured[0].date, "@RUNS@": str(measured[0].runs), "@CORES@": str(os.cpu_count()), "@RATE@": rate,
        "@ROWS@": table(["", *COLUMNS], rows), "@BARS@": "\n".join(f"- {each.sentence()}" for each in measured),
    }.items():  # fmt: skip
        text = text.replace(mark, put)
    (folder / "drain.md").write_text(text, encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--runs", type=int, default=1, help="of each row (1)")
    parser.add_argument("--counts", default="2,16", help="containers of the rows that show what one more costs (2,16)")
    parser.add_argument("--small", type=int, default=32, help="MiB in the volume of each of those (32)")
    parser.add_argument("--containers", type=int, default=8, help="containers of the row against the link (8)")
    parser.add_argument("--large", type=int, default=1024, help="MiB in the volume of each of those (1024)")
    parser.add_argument("--rate", default="500mbit", help="limit of each link (500mbit)")
    asked = parser.parse_args()
    fewest, most = (int(count) for count in asked.counts.split(","))
    rows = {f"{count} containers of {size} MiB": (count, size) for count, size in ((fewest, asked.small), (most, asked.small), (asked.containers, asked.large))}
    samples: Samples = {row: [] for row in rows}
    reports = Path(tempfile.mkdtemp(prefix="bench-drain-"))
    fleet = Fleet(reports)
    try:
        for _run in range(asked.runs):
            for row, (count, size) in rows.items():
                samples[row].append(drain(fleet, count, size, asked.rate))
    finally:
        fleet.play(str(HERE / "remove.yml"))
        shutil.rmtree(reports)
    measured = bars(*rows, samples)
    write(measured, samples, asked.rate)
    for each in measured:
        print(f"{'met   ' if each.met else 'MISSED'} {each.figure:8.4g} <= {each.limit:<6g} {each.what}")
    return 0 if all(each.met for each in measured) else 1


if __name__ == "__main__":
    sys.exit(main())
