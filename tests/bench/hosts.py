# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Two hosts of a lab fleet, as the benchmarks use them."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent.parent
BIN = Path(sys.executable).parent


class Fleet:
    """Hosts by name, over the lab's own ssh configuration. Whatever fails ends the benchmark with one sentence."""

    def __init__(self, names: tuple[str, ...], inventory: Path | None = None, parameters: Path | None = None) -> None:
        self.options = [*(["-i", str(inventory)] if inventory else []), *(["-e", f"@{parameters}"] if parameters else [])]
        listing = subprocess.run(
            [BIN / "ansible-inventory", *self.options, "--list"], env=self._environment(), cwd=CHECKOUT, check=True, capture_output=True, text=True
        )
        hosts = json.loads(listing.stdout)["_meta"]["hostvars"]
        self.ssh = {
            name: ["ssh", *hosts[name]["ansible_ssh_common_args"].split(), f"{hosts[name]['ansible_user']}@{hosts[name]['ansible_host']}"] for name in names
        }
        self.address = {name: hosts[name]["ansible_host"] for name in names}

    @staticmethod
    def _environment() -> dict[str, str]:
        return {**os.environ, "ANSIBLE_CONFIG": str(CHECKOUT / "ansible.cfg"), "PATH": f"{BIN}:{os.environ['PATH']}"}

    def argv(self, host: str, *argv: str) -> list[str]:
        """The command that runs one on a host; an argument is one word there too."""
        return [*self.ssh[host], shlex.join(argv)]

    def run(self, host: str, *argv: str, timeout: float = 300, given: bytes | None = None) -> str:
        done = subprocess.run(self.argv(host, *argv), input=given, capture_output=True, timeout=timeout, check=False)
        if done.returncode:
            sys.exit(f"bench: on {host}, {shlex.join(argv)}: {done.stderr.decode().strip()}")
        return done.stdout.decode()

    def play(self, playbook: Path, variables: dict[str, object]) -> None:
        done = subprocess.run(
            [BIN / "ansible-playbook", *self.options, str(playbook), "-e", json.dumps(variables)],
            env=self._environment(), cwd=CHECKOUT, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            sys.exit(f"bench: {playbook.name} failed:\n{done.stdout[-4000:]}{done.stderr[-2000:]}")
