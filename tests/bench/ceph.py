#!/usr/bin/env python
# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the restart of an OSD costs: its way up, its reads, the cluster's way back, and what clients notice, in turn, in one run.

Each OSD is restarted on the lab's own cluster, whose disks do so many reads a second, under load. A row is a store and such a limit
(``bluestore+100``); its cells come in turn, run after run:

* bluestore: ``plain``, ceph-ansible's sequence of stop, start and wait, which always begins cold, since the last close throws the pages of
  the device away; ``held``, as the role does it; ``held, no compaction``, the same without compacting before;
* filestore: ``hot``, ceph-ansible's sequence, in which the page cache of the files outlives the process; ``cold``, the same after its
  disk was taken away and brought again, as by a reboot; ``prewarmed``, that, as the role does it: its object map written anew while it serves, shut
  down in order, and what a start reads of the map read ahead by the unit that reads at a boot; ``evicted``, ceph-ansible's sequence where the kernel had
  taken the pages while it served, as under memory pressure; ``evicted, prewarmed``, that, as the role does it: read and locked while it serves.

A row begins by growing the OSD's database to a size that is worth reading. Each run begins with a time of load on what the restart before
has left, and nothing is compacted but by a cell itself. What was measured is kept by row in docs/benchmarks/ceph-runs.json; a cell that is
run again replaces its own part, or with --add is added to.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import typing as t
from dataclasses import dataclass
from pathlib import Path

import ceph_report
import free_memory
import yaml
from hosts import BIN, CHECKOUT, Fleet

LAB = CHECKOUT / "lab" / "ceph"
ADMIN, HOST = "ceph1", "ceph2"
WATCHED = "/run/bench-ceph-is-watched"
# OSDs of HOST, by what is in them (see `make bench-ceph`).
OSD = {"bluestore": 2, "filestore": 3}
RECORD_SECONDS = 400
# Operations a second that write keys while the database is to grow, and how long that may take.
GROW_RATE, GROW_SECONDS = 1500, 300
# Of the role's ceph_osd_restart_options; the balancer is off in all cells.
INTERVAL = {"who": "mon", "name": "paxos_propose_interval", "value": "0.1"}
RECENT = {"who": "osd", "name": "bluestore_default_buffered_write", "value": "true"}
ROLES = (INTERVAL, RECENT)
# See plugins/module_utils/_ceph/boot.py; and what systemd knows of a unit that has done its work, in microseconds.
MARK, BEGAN, ENDED = "/run/handover-ceph/osd.{osd}.has-booted", "ExecMainStartTimestampMonotonic", "ExecMainExitTimestampMonotonic"
# One object at a time leaves the processors room: with the lab's four both are always busy, and an OSD that starts waits for them and not for its disk.
LOAD = "THREADS=1"


@dataclass(frozen=True)
class Cell:
    """How one OSD is restarted."""

    before: str = ""  # while it serves: it is held, and compacted by this policy
    tidy: str = "never"
    options: tuple[dict[str, str], ...] = ()  # what the cluster has meanwhile
    cold: bool = False  # its disk is taken away and brought again
    warm: bool = False  # at that boot, what it reads is read ahead
    evicted: bool = False  # while it serves, the page cache loses what it reads when it starts
    locked: bool = False  # and then it is read and locked


CELLS = {
    "bluestore": {
        "plain": Cell(),
        "held": Cell("auto", "auto", ROLES),
        "held, no compaction": Cell("never", "auto", ROLES),
    },
    "filestore": {
        "hot": Cell(),
        "cold": Cell(cold=True),
        "prewarmed": Cell(tidy="auto", options=ROLES, cold=True, warm=True),
        "evicted": Cell(evicted=True),
        "evicted, prewarmed": Cell(tidy="auto", options=ROLES, evicted=True, locked=True),
    },
}


class Cluster(Fleet):
    """The cluster, and the collection's modules on its hosts."""

    def __init__(self) -> None:
        super().__init__((ADMIN, HOST), LAB / "inventory.yml", LAB / "parameters.yml")

    def module_command(self, host: str, name: str, arguments: dict[str, t.Any]) -> list[str]:
        return [str(BIN / "ansible"), *self.options, host, f"--module-name=livefleet.handover.{name}", "--args", json.dumps(arguments)]

    def module(self, host: str, name: str, /, **arguments: t.Any) -> dict[str, t.Any]:
        return self.answer(subprocess.Popen(self.module_command(host, name, arguments), **self.quietly()), name)

    def begin(self, host: str, name: str, /, **arguments: t.Any) -> subprocess.Popen[str]:
        return subprocess.Popen(self.module_command(host, name, arguments), **self.quietly())

    def quietly(self) -> dict[str, t.Any]:
        environment = {**self._environment(), "ANSIBLE_NOCOLOR": "1", "ANSIBLE_CALLBACK_RESULT_FORMAT": "json"}
        return {"cwd": CHECKOUT, "env": environment, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}

    @staticmethod
    def answer(process: subprocess.Popen[str], name: str) -> dict[str, t.Any]:
        said, _nothing = process.communicate(timeout=900)
        _host, arrow, result = said.partition(" => ")
        found = json.loads(result) if arrow else {"msg": said}
        if process.returncode:
            sys.exit(f"bench: {name}: {found.get('msg')}")
        return found

    def slow(self, reads: int) -> None:
        self.play(CHECKOUT / "lab" / "slow.yml", {"lab_read_iops": reads})

    def reboot(self, osd: int, tidy: str, unit: str, reads: int) -> dict[str, t.Any]:
        """Takes an OSD through a boot, at which a unit reads, if there is one: what the modules have measured, and what systemd says of the unit."""
        with tempfile.NamedTemporaryFile() as result:
            disk = {"lab_read_iops": reads, "bench_result": result.name, "bench_boot_unit": unit, "bench_boot_mark": MARK.format(osd=osd)}
            self.play(CHECKOUT / "tests" / "bench" / "reboot_osd.yml", {"bench_host": HOST, "bench_osd": osd, "bench_tidy_stop": tidy, **disk})
            return json.loads(Path(result.name).read_text())

    def quiet(self) -> None:
        """Nothing but us moves its placement groups: the balancer takes an OSD that is away for a reason to move some, and to copy them."""
        self.shell(ADMIN, "ceph balancer off")

    def shell(self, host: str, script: str, timeout: float = 300) -> str:
        return self.run(host, "sh", "-ec", script, timeout=timeout)


class Row:
    """One store at one limit."""

    def __init__(self, cluster: Cluster, name: str, fill: int) -> None:
        self.cluster, self.name, self.fill = cluster, name, fill
        self.store, _plus, reads = name.partition("+")
        self.reads = int(reads)
        self.osd = OSD[self.store]
        self.found: dict[str, list[dict[str, t.Any]]] = {cell: [] for cell in CELLS[self.store]}

    def size(self) -> int:
        """Of its database."""
        if self.store == "filestore":
            # A file may go while it is looked at.
            return int(self.cluster.shell(HOST, f"du -sb /var/lib/ceph/osd/ceph-{self.osd}/current/omap 2>/dev/null || true").split()[0])
        counters = json.loads(self.cluster.shell(HOST, f"ceph daemon osd.{self.osd} perf dump bluefs"))["bluefs"]
        return counters["db_used_bytes"] + counters["slow_used_bytes"]

    def pages(self, state: str) -> None:
        """Of the files that the role reads of a FileStore that serves: evicted, locked or unlocked."""
        folder = f"/var/lib/ceph/osd/ceph-{self.osd}"
        named = yaml.safe_load((CHECKOUT / "roles/ceph_osd_restart/vars/main.yml").read_text())["__ceph_osd_restart_filestore_paths"]
        options = {"paths": [f"{folder}/{path}" for path in named]} if state != "unlocked" else {}
        if state != "evicted":
            options["name"] = f"osd.{self.osd}"
        self.cluster.module(HOST, "vmtouch", state=state, **options)

    def load(self, settings: str) -> None:
        self.cluster.shell(ADMIN, f"echo '{settings}' >/etc/default/lab-ceph-load; systemctl restart lab-ceph-load lab-ceph-load-omap")

    def grow(self, size: int) -> None:
        """Writes keys until the database has that size."""
        end = time.monotonic() + GROW_SECONDS
        self.load(f"RATE={GROW_RATE}")
        while self.size() < size and time.monotonic() < end:
            time.sleep(5)
        self.load(LOAD)
        print(f"{self.name:16} the database of osd.{self.osd} has {self.size() >> 20} MiB", flush=True)

    def run(self, runs: int, cells: t.Collection[str]) -> None:
        for run in range(runs):
            for name, cell in CELLS[self.store].items():
                if name not in cells:
                    continue
                sample = self.measure(cell)
                self.found[name].append(sample)
                print(
                    f"{self.name:16} {name:28} {run + 1:2} of {runs}  up {sample['up']:6.1f} s  {sample['reads']:5} reads  clean {sample['clean']:6.1f} s"
                    f"  worst {sample['worst']:5.1f} s, due at {sample['worst_from']:.1f}  score {sample['score']:6.1f}",
                    flush=True,
                )

    def measure(self, cell: Cell) -> dict[str, t.Any]:
        cluster, osd = self.cluster, self.osd
        time.sleep(self.fill)
        size = self.size()
        before = cluster.module(ADMIN, "ceph_gate", osds=[osd], state="may_stop", timeout=240)
        cluster.slow(self.reads)
        watch = None
        try:
            if cell.evicted:
                self.pages("evicted")
                # The kernel's inodes and directories, all of the machine's.
                Path("/proc/sys/vm/drop_caches").write_text("2")
            began = time.monotonic()
            if cell.warm:
                cluster.module(HOST, "ceph_osd", osds=[osd], state="compacted")
            elif cell.locked:
                self.pages("locked")
            elif cell.before:
                cluster.module(HOST, "ceph_osd_pin", osd=osd, compact=cell.before)
            prewarm = time.monotonic() - began if cell.before or cell.warm or cell.locked else 0.0
            cluster.module(ADMIN, "ceph_noout", osds=[osd])
            cluster.module(ADMIN, "ceph_option", options=cell.options)
            watch = cluster.begin(ADMIN, "ceph_peering_impact", seconds=RECORD_SECONDS, while_file=WATCHED, probe_pool="probe")
            cluster.shell(ADMIN, f"until test -e {WATCHED}; do sleep 0.2; done", timeout=60)
            # It is to have seen a client's everyday before anything happens.
            time.sleep(5)
            if cell.before:
                cluster.module(HOST, "ceph_osd_pin", osd=osd)
            up, inside = self.restart(cell)
            returned, busy = time.monotonic(), os.getloadavg()[0]
            cluster.module(ADMIN, "ceph_gate", osds=[osd], state="recovered", up_from=before["up_from"], timeout=RECORD_SECONDS - 30)
            gate = time.monotonic() - returned
            cluster.shell(ADMIN, f"rm {WATCHED}")
            seen = cluster.answer(watch, "ceph_peering_impact")
        finally:
            if watch is not None and watch.poll() is None:
                cluster.shell(ADMIN, f"rm -f {WATCHED}")
                watch.wait(60)
            cluster.slow(0)
            cluster.module(ADMIN, "ceph_noout", osds=[osd], state="restored")
            cluster.module(ADMIN, "ceph_option", options=cell.options, state="restored")
            if cell.locked:
                self.pages("unlocked")
            cluster.module(HOST, "ceph_osd_pin", osd=osd, state="released")
            cluster.module(HOST, "ceph_osd_boot", osd=osd, state="absent")
        down = min((each["at"] for each in seen["osds"] if each["osd"] == osd and not each["up"]), default=0.0)
        back = max((each["at"] for each in seen["osds"] if each["osd"] == osd and each["up"]), default=0.0)
        return {
            "stop": up["stop_seconds"], "up": up["up_seconds"], "reads": up["reads"], "prewarm": round(prewarm + inside, 2), "inside": round(inside, 2),
            "away": round(back - down, 2), "clean": max(0.0, round(seen["clean_at"] - back, 2)), "gate": round(gate, 2),
            "worst": seen["probe"]["worst"], "worst_from": round(seen["probe"]["worst_at"] - down, 2), "p99": seen["probe"]["p99"],
            "score": seen["score"], "busy": round(busy, 1), "database": size >> 20, "curve": seen["curve"],
        }  # fmt: skip

    def restart(self, cell: Cell) -> tuple[dict[str, t.Any], float]:
        """What the module has measured, and the seconds that prewarming took while the OSD was down."""
        cluster, osd, inside = self.cluster, self.osd, 0.0
        if not cell.cold:
            return cluster.module(HOST, "ceph_osd", osds=[osd], state="restarted", tidy_stop=cell.tidy)["osds"][0], inside
        unit = cluster.module(HOST, "ceph_osd_boot", osd=osd)["unit"] if cell.warm else ""
        told = cluster.reboot(osd, cell.tidy, unit, self.reads)
        if cell.warm:
            inside = (int(told["unit"][ENDED]) - int(told["unit"][BEGAN])) / 1e6
        return {**told["up"], "stop_seconds": told["down"]["stop_seconds"]}, inside


def main() -> int:
    parser = argparse.ArgumentParser(description=t.cast(str, __doc__).splitlines()[0])
    parser.add_argument("--runs", type=int, default=5, help="restarts of each cell (5)")
    parser.add_argument("--rows", default="bluestore+100,filestore+100,bluestore+250,filestore+250", help="a store and a limit of reads a second, each")
    every = [cell for cells in CELLS.values() for cell in cells]
    parser.add_argument("--cells", default="/".join(every), help="only these, with / between them")
    parser.add_argument("--fill", type=int, default=40, help="seconds of load before each restart (40)")
    parser.add_argument("--database", type=int, default=700, help="MiB to which the database is grown first (700)")
    parser.add_argument("--add", action="store_true", help="keep what was measured of the rows before")
    parser.add_argument("--report", action="store_true", help="measure nothing: write the files again from what was measured")
    arguments = parser.parse_args()
    runs = ceph_report.Runs(CHECKOUT / "docs" / "benchmarks")
    rows = [] if arguments.report else arguments.rows.split(",")
    for name in rows:
        store, _plus, limit = name.partition("+")
        if store not in CELLS or not limit.isdigit():
            parser.error(f"{name}: a row is {' or '.join(CELLS)}, + and reads a second, as in bluestore+100")
    cells = arguments.cells.split("/")
    if set(cells) - set(every):
        parser.error(f"there is no cell {', '.join(sorted(set(cells) - set(every)))}: the cells are {'/'.join(every)}")
    # Whoever ends it keeps what was measured, and disks that are not slow.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    cluster = Cluster() if rows else None
    if cluster:
        cluster.quiet()
    for name in rows:
        row = Row(t.cast(Cluster, cluster), name, arguments.fill)
        try:
            row.grow(arguments.database << 20)
            with free_memory.kept():
                row.run(arguments.runs, cells)
        finally:
            # What a row has before it fails is as good as the rest.
            if any(row.found.values()):
                runs.put(name, {"date": datetime.date.today().isoformat(), "cores": os.cpu_count(), "fill": arguments.fill, "by": row.found}, arguments.add)
                runs.write()
    runs.write()
    bars = runs.bars()
    for each in bars:
        print(each.sentence())
    return 0 if all(each.met for each in bars) else 1


if __name__ == "__main__":
    sys.exit(main())
