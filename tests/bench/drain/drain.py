#!/usr/bin/env python
# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What it takes to empty a host of the lab: time, against what its link needs, and processor time of the controller.

Containers with volumes full of what cannot be compressed leave one host for two others over links that are limited. The slowest path is the
source's own link. Its bound is not computed but measured in the same run: the same number of bytes, sent by socat in two streams to the same two
hosts at the same limit. The controller's processor time is what ansible-playbook and all that it started used, by the kernel's account.

Writes docs/benchmarks/drain.json and drain.md. Another fleet than the lab's own is used if LAB_FLEET names a folder with its inventory.yml and
parameters.yml.
"""

from __future__ import annotations

import argparse
import datetime
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

CHECKOUT = Path(__file__).resolve().parent.parent.parent.parent
HERE = Path(__file__).resolve().parent
BIN = Path(sys.executable).parent
OTHER = os.environ.get("LAB_FLEET", "")
INVENTORY = Path(OTHER) / "inventory.yml" if OTHER else CHECKOUT / "lab" / "inventory.yml"
PORT = 4300
TOTAL_LIMIT, CPU_LIMIT, GROWTH_LIMIT = 1.3, 3.0, 0.2


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


def drain(fleet: Fleet, containers: int, fill_mib: int, rate: str) -> dict[str, t.Any]:
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
    found = {
        "containers": containers, "seconds": round(took, 1), "link_seconds": round(link, 1), "controller_cpu_seconds": round(cpu, 1),
        "paused_ms": round(max(report["frozen_ms"] for report in moved)), "hosts": sorted({report["destination"] for report in moved}),
    }  # fmt: skip
    print(f"{took:6.1f} s, the link alone {link:6.1f} s, controller {cpu / containers:5.2f} s of processor each", flush=True)
    return found


def write(few: list[dict[str, t.Any]], large: dict[str, t.Any], fill_mib: int, rate: str) -> bool:
    first, last = few[0], few[-1]
    each = [row["controller_cpu_seconds"] / row["containers"] for row in few]
    seconds = [row["seconds"] / row["containers"] for row in few]
    growth = max(each[-1] / each[0], seconds[-1] / seconds[0]) - 1
    total = large["seconds"] / large["link_seconds"]
    cpu = large["controller_cpu_seconds"] / large["containers"]
    span = f"{first['containers']} to {last['containers']}"
    about = {"contender": "socat, the same bytes over the same links", "date": datetime.date.today().isoformat(), "runs": 1}
    records = [
        {"bar": f"drain of {large['containers']} containers to two hosts, as a part of what the link needs", "figure": round(total, 3), "limit": TOTAL_LIMIT,
         "met": total <= TOTAL_LIMIT, "measured": large, **about},
        {"bar": "controller processor time per migration, seconds", "figure": round(cpu, 2), "limit": CPU_LIMIT, "met": cpu < CPU_LIMIT, **about},
        {"bar": f"growth of the cost per container from {span}", "figure": round(growth, 3), "limit": GROWTH_LIMIT, "met": growth <= GROWTH_LIMIT,
         "measured": few, **about},
    ]  # fmt: skip
    folder = CHECKOUT / "docs" / "benchmarks"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "drain.json").write_text(json.dumps(records, indent=2) + "\n", encoding="utf-8")
    rows = "\n".join(
        f"| {row['containers']} | {row['seconds']} | {row['link_seconds']} | {row['controller_cpu_seconds'] / row['containers']:.2f} | {row['paused_ms']} |"
        for row in [*few, large]
    )
    bars = "\n".join(f"| {each['bar']} | {each['figure']} | {each['limit']} | {'met' if each['met'] else 'missed'} |" for each in records)
    (folder / "drain.md").write_text(
        f"""# Emptying a host

Written by `make bench-drain` on {about["date"]}: containers leave one lab host for two others, side by side, all three and the controller on one machine
with {os.cpu_count()} cores. Each container has an image volume with data that cannot be compressed, {fill_mib} MiB in the last row, and writes to it all the
time. The links are limited to {rate}. "The link alone" is the same number of bytes sent by socat over the same links at the same limit.

| containers | drain, s | the link alone, s | controller's processor time each, s | longest pause, ms |
|---|---|---|---|---|
{rows}

| bar | figure | limit | |
|---|---|---|---|
{bars}
""",
        encoding="utf-8",
    )
    return all(each["met"] for each in records)


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--counts", default="2,16", help="containers of the runs that show what one more costs (2,16)")
    parser.add_argument("--small", type=int, default=32, help="MiB in the volume of each of those (32)")
    parser.add_argument("--containers", type=int, default=8, help="containers of the run against the link (8)")
    parser.add_argument("--large", type=int, default=1024, help="MiB in the volume of each of those (1024)")
    parser.add_argument("--rate", default="500mbit", help="limit of each link (500mbit)")
    arguments = parser.parse_args()
    reports = Path(tempfile.mkdtemp(prefix="bench-drain-"))
    fleet = Fleet(reports)
    try:
        few = [drain(fleet, int(count), arguments.small, arguments.rate) for count in arguments.counts.split(",")]
        large = drain(fleet, arguments.containers, arguments.large, arguments.rate)
    finally:
        fleet.play(str(HERE / "remove.yml"))
        shutil.rmtree(reports)
    return 0 if write(few, large, arguments.large, arguments.rate) else 1


if __name__ == "__main__":
    sys.exit(main())
