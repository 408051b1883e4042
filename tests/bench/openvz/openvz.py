#!/usr/bin/env python
# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The downtime of a container that comes out of OpenVZ: playbooks/import_openvz.yml against rsync twice by hand and a start, in turn, in one run.

The source is the lab's first host with a stand-in for vzctl, the destination its second. What was measured is in docs/benchmarks/openvz-runs.json;
openvz.json, openvz.md and openvz.svg are made of it.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import shlex
import signal
import statistics
import sys
import time
import typing as t
from pathlib import Path

HERE = Path(__file__).resolve().parent
# A folder of programs and not a package: it can be imported from only when it is in the path.
sys.path.insert(0, str(HERE.parent))
import hosts
from results import Bar, chart, save, spread, table

CHECKOUT = hosts.CHECKOUT
OUT = CHECKOUT / "docs" / "benchmarks"
RUNS = OUT / "openvz-runs.json"
CTID, NAME = "104", "bench-vz"
PRIVATE, HAND = f"/var/lib/bench-vz/{CTID}", f"/var/lib/{NAME}-by-hand"
STATE = "/var/lib/vzctl-stand-in"
OURS, BY_HAND = "handover", "rsync twice by hand"
LIMIT = 0.2
RSYNC = ("rsync", "--archive", "--hard-links", "--acls", "--xattrs", "--numeric-ids", "--delete")

Figures = dict[str, float]


class Lab(hosts.Fleet):
    """Both hosts, and the container on the first."""

    def __init__(self, mib: int) -> None:
        super().__init__(("node1", "node2"))
        self.source, self.destination = "node1", "node2"
        self.names: dict[str, object] = {"bench_id": CTID, "bench_name": NAME, "bench_mib": mib}

    def start(self) -> None:
        """It runs, and is written to."""
        self.run(self.source, "sh", "-c", f"vzctl start {CTID} || test $? = 32")
        self.run(self.source, "systemd-run", "--collect", "--quiet", "python3", f"{STATE}/work.py", "write", PRIVATE, f"{STATE}/{CTID}.pid")
        # The kernel has to write some of it.
        time.sleep(5)

    def imported(self, **more: object) -> None:
        asked = {"handover_workload": CTID, "handover_source": self.source, "handover_destination": self.destination, **more}
        self.play(CHECKOUT / "playbooks" / "import_openvz.yml", asked)


def by_playbook(lab: Lab) -> tuple[Figures, list[str]]:
    """The figures of the report, and the words with which the container was made."""
    began = time.monotonic()
    lab.imported()
    whole = time.monotonic() - began
    record = json.loads(lab.run(lab.destination, "cat", f"/var/lib/handover/import/{NAME}/record.json"))
    (inspect,) = json.loads(lab.run(lab.destination, "podman", "container", "inspect", NAME))
    compare(lab, f"/var/lib/handover/mnt/{NAME}")
    lab.imported(import_openvz_name=NAME, import_openvz_back=True)
    lab.play(HERE / "remove.yml", {**lab.names, "bench_only_here": True})
    return {"downtime": record["downtime_s"], "whole": whole}, inspect["Config"]["CreateCommand"]


def compare(lab: Lab, folder: str) -> None:
    """What was written last is there."""
    last = [lab.run(host, "tail", "-n", "1", f"{place}/srv/data/log") for host, place in ((lab.source, PRIVATE), (lab.destination, folder))]
    if last[0] != last[1]:
        sys.exit(f"bench: the copy in {folder} lacks the last line: {last}")


def by_hand(lab: Lab, command: t.Sequence[str]) -> Figures:
    """As one scripts it, on the destination: nothing of ours between the steps."""
    words = [word.replace(f"/var/lib/handover/mnt/{NAME}", HAND) for word in command[1:] if not word.startswith("--name")]
    words.insert(1, f"--name={NAME}-by-hand")
    ssh = f"ssh -o ControlMaster=auto -o ControlPath=/run/bench-%C -o ControlPersist=60 root@{lab.address[lab.source]}"
    # rsync asks for the host itself.
    rsync = shlex.join([*RSYNC, f"--rsh={ssh.rpartition(' ')[0]}", f"root@{lab.address[lab.source]}:{PRIVATE}/", HAND + "/"])
    script = "\n".join([
        f"mkdir -p {HAND}; now() {{ date +%s%N; }}; began=$(now)",
        f"{rsync} || test $? = 24; stopped=$(now)",
        f"{ssh} vzctl stop {CTID} >/dev/null",
        rsync,
        f"{shlex.join(['podman', *words])} >/dev/null",
        f"podman start {NAME}-by-hand >/dev/null; ended=$(now)",
        "echo $((stopped - began)) $((ended - stopped))",
    ])  # fmt: skip
    first, downtime = (int(word) / 1e9 for word in lab.run(lab.destination, "bash", "-ec", script, timeout=1200).split()[-2:])
    compare(lab, HAND)
    lab.play(HERE / "remove.yml", {**lab.names, "bench_only_here": True})
    return {"downtime": downtime, "first": first, "whole": first + downtime}


def measure(lab: Lab, runs: int) -> dict[str, t.Any]:
    """All rounds. The container runs again before each contender."""
    samples: dict[str, list[Figures]] = {OURS: [], BY_HAND: []}
    load: list[float] = []
    command: list[str] = []
    for number in range(runs):
        load.append(round(os.getloadavg()[0], 1))
        # By hand the options of the first import are taken.
        for who in (OURS, BY_HAND) if number % 2 == 0 else (BY_HAND, OURS):
            lab.start()
            if who == OURS:
                figures, command = by_playbook(lab)
            else:
                figures = by_hand(lab, command)
            samples[who].append(figures)
            said = "  ".join(f"{key} {value:.3f} s" for key, value in figures.items())
            print(f"{number + 1:2} of {runs}  {who:20} {said}", flush=True)
    return {
        "date": datetime.date.today().isoformat(), "runs": runs, "load": load, "machine": f"{platform.release()}, {os.cpu_count()} processors",
        "mib": lab.names["bench_mib"], "samples": samples,
    }  # fmt: skip


def of(found: dict[str, t.Any], who: str, key: str) -> list[float]:
    return [run[key] for run in found["samples"][who]]


def write(found: dict[str, t.Any]) -> Bar:
    """The page, the bar and the chart."""
    ours, whole, alone = of(found, OURS, "downtime"), of(found, BY_HAND, "whole"), of(found, BY_HAND, "downtime")
    size = f"{found['mib'] / 1024:g} GiB"
    figure = statistics.median(ours) / statistics.median(whole)
    mark = Bar(
        f"import of {size}: downtime, as a part of rsync twice by hand and start", figure, LIMIT, found["runs"],
        {OURS: spread(ours), BY_HAND: spread(whole), f"{BY_HAND}, downtime alone": spread(alone)}, BY_HAND, date=found["date"],
    )  # fmt: skip
    save([mark], OUT / "openvz.json")
    measured = {f"{OURS}, downtime": ours, "by hand, downtime": alone, "by hand, first pass": of(found, BY_HAND, "first"), "by hand, all of it": whole}
    (OUT / "openvz.svg").write_text(chart(f"Out of OpenVZ: {size}", "s", measured, ours=OURS), encoding="utf-8")
    rows = [[who, *(f"{spread(values)[key]:.2f}" for key in ("min", "median", "max"))] for who, values in measured.items()]
    beside = statistics.median(ours) / statistics.median(alone)
    foot = (
        f"{found['runs']} rounds, turn about, on {found['date']}; Linux {found['machine']}. "
        f"Load average before each round: {', '.join(map(str, found['load']))}."
    )
    parts = {
        "@SIZE@": size, "@ALONE@": f"{beside:.2f}", "@FOOT@": foot, "@BARS@": f"- {mark.sentence()}",
        "@TABLE@": table(["bar", "figure", "limit", "met"], [[mark.what, f"{mark.figure:.3g}", f"≤ {mark.limit:g}", "yes" if mark.met else "**no**"]]),
        "@ROWS@": table(["seconds", "least", "median", "most"], rows),
    }  # fmt: skip
    text = (HERE / "openvz.md.in").read_text(encoding="utf-8")
    for key, value in parts.items():
        text = text.replace(key, value)
    (OUT / "openvz.md").write_text(text, encoding="utf-8")
    return mark


def main() -> int:
    parser = argparse.ArgumentParser(description=t.cast(str, __doc__).splitlines()[0])
    parser.add_argument("--runs", type=int, default=5, help="rounds; 0 only writes the page (5)")
    parser.add_argument("--mib", type=int, default=2048, help="MiB of the container's files (2048)")
    given = parser.parse_args()
    # Whoever ends it finds the hosts as they were.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if given.runs:
        lab = Lab(given.mib)
        try:
            lab.play(HERE / "ready.yml", lab.names)
            found = measure(lab, given.runs)
        finally:
            lab.play(HERE / "remove.yml", lab.names)
        RUNS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    mark = write(json.loads(RUNS.read_text(encoding="utf-8")))
    print(f"{'met   ' if mark.met else 'MISSED'} {mark.figure:8.4g} <= {mark.limit:<6g} {mark.what}")
    return 0 if mark.met else 1


if __name__ == "__main__":
    sys.exit(main())
