# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The hosts of two newcomers, and a newcomer's controller: an empty folder and a home of its own, with nothing of the checkout's but the tarball."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import typing as t
from pathlib import Path

import yaml

CHECKOUT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
LAB = CHECKOUT / "lab" / "newcomer"
STATE = Path(yaml.safe_load((LAB / "parameters.yml").read_text(encoding="utf-8"))["lab_state"])
ADDRESSES = {
    name: about["ansible_host"]
    for name, about in yaml.safe_load((LAB / "inventory.yml").read_text(encoding="utf-8"))["lab_hosts"]["children"]["lab"]["hosts"].items()
}  # fmt: skip
GATEWAY = yaml.safe_load((LAB / "parameters.yml").read_text(encoding="utf-8"))["lab_gateway"]
SECONDS = 900
# It writes the same word, which it has made up at its start, again and again.
WRITER = "word=$(head -c 16 /dev/urandom | md5sum); while :; do echo $word >> /data/words; sleep 0.1; done"


def play(playbook: str, **variables: t.Any) -> None:
    """A playbook of the lab, on this fleet."""
    here = (f"--inventory={LAB / 'inventory.yml'}", f"--extra-vars=@{LAB / 'parameters.yml'}")
    command = [BIN / "ansible-playbook", *here, playbook, "-e", json.dumps(variables)]
    environment = {**os.environ, "ANSIBLE_CONFIG": str(CHECKOUT / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"}
    done = subprocess.run(command, cwd=CHECKOUT, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, f"{playbook}: {done.stdout[-4000:]}{done.stderr[-2000:]}"


def ask(host: str, command: str, given: str | bytes | None = None) -> str:
    """As root, whom the test knows and the newcomer need not."""
    text = given.encode() if isinstance(given, str) else given
    done = subprocess.run(["ssh", "-F", STATE / "ssh_config", host, command], input=text or b"", capture_output=True, check=False)
    assert done.returncode == 0, f"{host}: {command}: {done.stdout.decode()}{done.stderr.decode()}"
    return done.stdout.decode()


def start(host: str, name: str, number: int) -> None:
    """A container, as somebody may have one: with an address and a volume."""
    address = GATEWAY.rpartition(".")[0] + f".{number}"
    ask(host, f"podman run --detach --name {name} --network lan --ip {address} --volume {name}data:/data --stop-signal 9 "
        f"localhost/handover/tools:lab sh -c '{WRITER}'")  # fmt: skip


def where(name: str, *hosts: str) -> list[str]:
    """Those of a newcomer's hosts on which it runs, and with its state each on which it only is."""
    states = {host: ask(host, f"podman ps --all --filter name=^{name}$ --format '{{{{.State}}}}'").strip() for host in hosts}
    return [host if state == "running" else f"{host}: {state}" for host, state in states.items() if state]


def words(host: str, name: str) -> int:
    """How many it has written so far, all of them by the process that was its first."""
    lines = ask(host, f"podman exec {name} cat /data/words").splitlines()
    assert len(set(lines)) == 1, f"{name} was started again"
    return len(lines)


class Controller:
    def __init__(self, folder: Path, tarball: Path, key: Path, names: dict[str, str]) -> None:
        """`names`: the pages' names and addresses, and those of this fleet that are filled in for them."""
        self.folder, self.names = folder / "work", names
        (folder / "home").mkdir()
        self.folder.mkdir()
        (self.folder / tarball.name).symlink_to(tarball)
        ssh = {"IdentityFile": key, "IdentitiesOnly": "yes", "StrictHostKeyChecking": "yes", "UserKnownHostsFile": STATE / "fleet" / "known_hosts"}
        self.ssh_config = folder / "home" / "ssh_config"
        self.ssh_config.write_text("".join(f"{word} {value}\n" for word, value in ssh.items()), encoding="utf-8")
        kept = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}
        # ssh would read the settings of whoever runs this, whatever the home is.
        own = {"HOME": str(folder / "home"), "PATH": f"{BIN}:{os.environ['PATH']}", "ANSIBLE_NOCOLOR": "1", "ANSIBLE_SSH_COMMON_ARGS": f"-F {self.ssh_config}"}
        self.environment = {**kept, **own}

    def fill(self, text: str) -> str:
        for theirs, ours in self.names.items():
            text = text.replace(theirs, ours)
        return text

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(self.fill(text), encoding="utf-8")

    def type(self, line: str, status: int = 0) -> str:
        """A line of a page, with the names filled in; what it says."""
        done = subprocess.run(["sh", "-ec", self.fill(line)], cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=SECONDS, check=False)  # fmt: skip
        assert done.returncode == status, f"{self.fill(line)}\n{done.stdout[-6000:]}"
        return done.stdout

    def ssh(self, user: str, host: str, command: str, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["ssh", "-F", self.ssh_config, *words, f"{user}@{ADDRESSES[host]}", command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=SECONDS, check=False)  # fmt: skip
