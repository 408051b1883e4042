# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The hosts of a scenario, and the operator's playbooks on them.

Another fleet than the lab's own is used if LAB_FLEET names a folder with its inventory.yml and parameters.yml.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
import typing as t
from pathlib import Path

import pytest
import testinfra

CHECKOUT = Path(__file__).resolve().parent.parent.parent
OTHER = os.environ.get("LAB_FLEET", "")
INVENTORY = Path(OTHER) / "inventory.yml" if OTHER else CHECKOUT / "lab" / "inventory.yml"
# tests/cores names another.
ANSIBLE_PLAYBOOK = Path(os.environ.get("ANSIBLE_BIN") or Path(sys.executable).parent) / "ansible-playbook"


class Hosts:
    """The first three of the fleet, in the inventory's order."""

    def __init__(self, reports: Path) -> None:
        listed = subprocess.run(
            [str(ANSIBLE_PLAYBOOK.parent / "ansible-inventory"), "-i", str(INVENTORY), "--list"], check=True, stdout=subprocess.PIPE, text=True
        )
        groups = json.loads(listed.stdout)
        self.names = [*groups["lab"]["hosts"], *groups.get("lab_spare", {}).get("hosts", [])][:3]
        self.hosts = {name: testinfra.get_host(f"ansible://{name}?ansible_inventory={INVENTORY}") for name in self.names}
        self.reports = reports

    def command(self, playbook: str, *words: str, **variables: t.Any) -> list[str]:
        more = [f"--extra-vars=@{file}" for file in (CHECKOUT / "lab/group_vars/all/parameters.yml", f"{OTHER}/parameters.yml")] if OTHER else []
        placed = {"handover_hosts": ",".join(self.names), "handover_report_dir": str(self.reports), "handover_spare_memory": "64M"}
        asked = {**(placed if playbook in ("drain", "move") else {}), **variables}
        return [str(ANSIBLE_PLAYBOOK), f"--inventory={INVENTORY}", *more, f"playbooks/{playbook}.yml", "--extra-vars", json.dumps(asked), *words]

    def start(self, playbook: str, *words: str, **variables: t.Any) -> subprocess.Popen[str]:
        environment = {**os.environ, "ANSIBLE_CONFIG": str(CHECKOUT / "ansible.cfg"), "ANSIBLE_FORCE_COLOR": "0", "ANSIBLE_NOCOLOR": "1"}
        return subprocess.Popen(
            self.command(playbook, *words, **variables), cwd=CHECKOUT, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, start_new_session=True,
        )  # fmt: skip

    def finish(self, process: subprocess.Popen[str]) -> None:
        process.communicate(timeout=300)

    def play(self, playbook: str, *words: str, **variables: t.Any) -> tuple[int, str]:
        process = self.start(playbook, *words, **variables)
        text, _nothing = process.communicate(timeout=600)
        return process.returncode, text

    def ask(self, name: str, script: str) -> tuple[int, str]:
        done = self.hosts[name].run(script)
        return done.rc, done.stdout

    def module(self, host: str, name: str, /, **arguments: t.Any) -> dict[str, t.Any]:
        """What one of the collection's modules answers; it must not fail."""
        words = [host, f"--inventory={INVENTORY}", f"--module-name=livefleet.handover.{name}", "--args", json.dumps(arguments)]
        plain = {"ANSIBLE_CALLBACK_RESULT_FORMAT": "json", "ANSIBLE_NOCOLOR": "1", "ANSIBLE_FORCE_COLOR": "0"}
        done = subprocess.run(
            [str(ANSIBLE_PLAYBOOK.parent / "ansible"), *words], cwd=CHECKOUT, env={**os.environ, "ANSIBLE_CONFIG": str(CHECKOUT / "ansible.cfg"), **plain},
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
        return t.cast("dict[str, t.Any]", json.loads(done.stdout.partition("=>")[2]))

    def states(self) -> dict[str, dict[str, str]]:
        """Host → the containers of the scenario that are there, and podman's word for how they are."""
        listed = {name: host.check_output("podman ps --all --format '{{.Names}} {{.State}}'").splitlines() for name, host in self.hosts.items()}
        return {host: {line.split()[0]: line.split()[1] for line in lines if line.startswith("tenant")} for host, lines in listed.items()}

    def running(self) -> dict[str, set[str]]:
        """Host → the containers of the scenario that run there."""
        return {host: {name for name, state in found.items() if state == "running"} for host, found in self.states().items()}


def said(text: str) -> str:
    return " ".join(text.split())


def answers(address: str, port: int) -> None:
    """Waits for a server: this machine may still know an address by the hardware that had it before."""
    for _each in range(60):
        try:
            with socket.create_connection((address, port), timeout=2):
                return
        except OSError:
            time.sleep(1)
    pytest.fail(f"{address} does not answer")


def boot(host: t.Any, unit: str) -> None:
    """Has a host boot, and waits until a unit is active there; ssh fails in between."""
    begun = host.check_output("stat --format=%Y /proc/1")
    with contextlib.suppress(RuntimeError):
        host.run("systemctl reboot")
    for _each in range(180):
        time.sleep(1)
        with contextlib.suppress(RuntimeError):
            answer = host.run(f"stat --format=%Y /proc/1; systemctl is-active {unit}")
            if answer.rc == 0 and answer.stdout.split()[0] != begun:
                return
    pytest.fail(f"{unit} is not active after a boot")
