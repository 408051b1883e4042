#!/usr/bin/env python
# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Cells of the fault matrix on several fleets side by side: `make test-faults FLEETS=3`, with FAULTS as there.

A cell waits most of its time, for limits and for hosts that boot. Each fleet is two hosts on a bridge of their own, made for the run and taken
down after it, also where the run is interrupted, and takes the next cell when it is free. One that a cell has failed on is made ready anew. Exits with 1 if
a cell failed.
"""

from __future__ import annotations

import concurrent.futures
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import yaml

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parent.parent
sys.path.insert(0, str(HERE))

from matrix import Case, asked

BIN = Path(sys.executable).parent
OUTPUT = CHECKOUT / "tests" / "output" / "faults"
ANSIBLE = {**os.environ, "ANSIBLE_CONFIG": str(CHECKOUT / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"}
TEST = "tests/faults/test_matrix.py::test_one_copy_and_every_line"
# Of the networks 10.230.0.0/16 and fd4c:9a1e:7bf0::/60, one for each fleet.
MOST = 8


@dataclass(frozen=True)
class Wide:
    """One of the fleets."""

    number: int

    @property
    def inventory(self) -> Path:
        return OUTPUT / f"fleet{self.number}-inventory.yml"

    @property
    def parameters(self) -> Path:
        return OUTPUT / f"fleet{self.number}-parameters.yml"

    def write(self) -> None:
        """What the lab's playbooks have to know of it."""
        net, net6 = f"10.230.{self.number}", f"fd4c:9a1e:7bf{self.number}:"
        state = f"/var/lib/handover-matrix{self.number}"
        parameters = {
            "lab_state": state, "lab_bridge": f"handovermx{self.number}", "lab_images": ["tools"],
            "lab_subnet": f"{net}.0/24", "lab_gateway": f"{net}.1", "lab_container_range": f"{net}.128/25",
            "lab_subnet6": f"{net6}:/64", "lab_gateway6": f"{net6}:1", "lab_container_range6": f"{net6}:1:0/112",
        }  # fmt: skip
        hosts = {f"m{self.number}{letter}": {"ansible_host": f"{net}.{at}", "lab_address6": f"{net6}:{at}"} for letter, at in (("a", 11), ("b", 12))}
        variables = {
            "ansible_user": "root", "ansible_python_interpreter": "/usr/bin/python3",
            "ansible_ssh_common_args": f"-F {state}/ssh_config", "ansible_ssh_args": "",
        }  # fmt: skip
        self.parameters.write_text(yaml.safe_dump(parameters), encoding="utf-8")
        self.inventory.write_text(yaml.safe_dump({"lab_hosts": {"children": {"lab": {"hosts": hosts}}, "vars": variables}}), encoding="utf-8")

    def play(self, *playbooks: str) -> None:
        """One after the other; the first that fails is an error."""
        shared = CHECKOUT / "lab" / "group_vars" / "all" / "parameters.yml"
        words = ["-i", self.inventory, "-e", f"@{shared}", "-e", f"@{self.parameters}", "-e", f"scenario_address=10.230.{self.number}.102"]
        with (OUTPUT / f"fleet{self.number}.log").open("a", encoding="utf-8") as log:
            for playbook in playbooks:
                command = [BIN / "ansible-playbook", *words, playbook]
                subprocess.run(command, cwd=CHECKOUT, env=ANSIBLE, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=True)

    def strike(self, case: Case) -> bool:
        """Runs one cell."""
        environment = {**ANSIBLE, "FAULTS": case.name, "FAULTS_INVENTORY": str(self.inventory), "FAULTS_PARAMETERS": str(self.parameters)}
        with (OUTPUT / f"{case.name.replace(' ', '-')}.txt").open("w", encoding="utf-8") as log:
            command = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", "-c", "tests/pytest.ini", TEST]
            return subprocess.run(command, cwd=CHECKOUT, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=False).returncode == 0


def work(fleet: Wide, waiting: queue.SimpleQueue[Case], failed: list[Case], speak: threading.Lock) -> None:
    """Brings a fleet up, and has it take cells until none is left."""
    fleet.write()
    try:
        with speak:  # one builds what the others find
            fleet.play("lab/create.yml", "lab/images.yml")
        fleet.play("molecule/faults/prepare.yml")
        while True:
            try:
                case = waiting.get_nowait()
            except queue.Empty:
                return
            began = time.monotonic()
            passed = fleet.strike(case)
            with speak:
                print(f"{'ok' if passed else 'FAILED':>6} {time.monotonic() - began:5.0f} s  {case.name}", flush=True)
            if not passed:
                failed.append(case)
                fleet.play("molecule/faults/cleanup.yml", "molecule/faults/prepare.yml")
    finally:
        fleet.play("lab/destroy.yml")


def main(fleets: int) -> int:
    if not 1 <= fleets <= MOST:
        sys.exit(f"FLEETS is {fleets}: from 1 to {MOST} can run side by side")
    OUTPUT.mkdir(parents=True, exist_ok=True)
    cells = asked(os.environ)
    waiting: queue.SimpleQueue[Case] = queue.SimpleQueue()
    for case in cells:
        waiting.put(case)
    failed: list[Case] = []
    speak = threading.Lock()
    # A shell has its background jobs ignore the first.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with concurrent.futures.ThreadPoolExecutor(fleets) as pool:
        try:
            for ended in [pool.submit(work, Wide(number), waiting, failed, speak) for number in range(fleets)]:
                ended.result()
        except (KeyboardInterrupt, SystemExit):
            # The cells that are under way come to their end, and then the fleets are taken down.
            while not waiting.empty():
                waiting.get_nowait()
            raise
    print(f"{len(cells) - len(failed) - waiting.qsize()} of {len(cells)} cells passed", *(f"  failed: {case.name}" for case in failed), sep="\n")
    return 1 if failed or not waiting.empty() else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
