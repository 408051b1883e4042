# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Moves of container 103 between the two hosts of the scenario, and a look at both."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import typing as t
from pathlib import Path

import testinfra

CHECKOUT = Path(__file__).resolve().parent.parent.parent.parent
OTHER = os.environ.get("LAB_FLEET", "")
INVENTORY = Path(OTHER) / "inventory.yml" if OTHER else CHECKOUT / "lab" / "inventory.yml"
PROGRAMS = Path(sys.executable).parent
PRIVATE = "/var/lib/containers/vz/private/103"
STATE = "/var/lib/vzctl-stand-in"
RUNS, GONE = "CTID 103 exist mounted running", "CTID 103 deleted unmounted down"


class Hosts:
    """The source and the destination of the first move."""

    def __init__(self) -> None:
        listed = subprocess.run([str(PROGRAMS / "ansible-inventory"), "-i", str(INVENTORY), "--list"], check=True, stdout=subprocess.PIPE, text=True)
        self.names = json.loads(listed.stdout)["lab"]["hosts"][:2]
        self.both = [testinfra.get_host(f"ansible://{name}?ansible_inventory={INVENTORY}") for name in self.names]

    def begin(self, *words: str, to: int = 1, **variables: t.Any) -> subprocess.Popen[str]:
        asked = {"handover_workload": "103", "handover_destination": self.names[to], "handover_driver": "openvz", **variables}
        return self.play("migrate", *words, **asked)

    def play(self, playbook: str, *words: str, **variables: t.Any) -> subprocess.Popen[str]:
        asked = {"handover_mode": "offline", "handover_report_dir": "/tmp/handover-openvz-reports", **variables}
        environment = {**os.environ, "ANSIBLE_CONFIG": str(CHECKOUT / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1", "ANSIBLE_FORCE_COLOR": "0"}
        return subprocess.Popen(
            [str(PROGRAMS / "ansible-playbook"), f"--inventory={INVENTORY}", f"playbooks/{playbook}.yml", "--extra-vars", json.dumps(asked), *words],
            cwd=CHECKOUT, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip

    def end(self, begun: subprocess.Popen[str]) -> tuple[int, str]:
        with begun:
            try:
                said, _none = begun.communicate(timeout=300)
            except subprocess.TimeoutExpired:
                begun.kill()
                raise
        return begun.returncode, " ".join(said.split())

    def move(self, *words: str, to: int = 1, **variables: t.Any) -> tuple[int, str]:
        return self.end(self.begin(*words, to=to, **variables))

    def status(self) -> list[str]:
        return [host.check_output("vzctl status 103").strip() for host in self.both]

    def left(self, number: int) -> str:
        """All that a move makes on a host."""
        places = "/var/lib/handover/sessions /var/lib/containers/vz/private /etc/vz/conf /etc/vz/names"
        return self.both[number].check_output(f"ls {places}; ls /var/lib/handover/openvz || :")

    def beats(self, number: int) -> list[int]:
        return [int(line) for line in self.both[number].check_output(f"cat {PRIVATE}/var/log/beat").split()]


def runs(starts: list[int]) -> list[list[int]]:
    """The lines by the start of the process that wrote them: each counts from one."""
    found: list[list[int]] = []
    for beat in starts:
        found.append([beat]) if beat == 1 else found[-1].append(beat)
    return found
