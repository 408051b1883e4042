# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A container behind the NAT of its engine's own bridge, whose published port has an address of its own, and a client that keeps a connection to it."""

from __future__ import annotations

import ipaddress
import json
import socket
import subprocess
import sys
import time
import typing as t
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parent.parent.parent
NAME = "floats1"
NETWORK = "behind"
PORT = 7011
IMAGE = "localhost/handover/tools:lab"
SESSIONS = "/var/lib/handover/sessions"
PCOPY = "/usr/local/libexec/handover/pcopy"
BIND = ("net.ipv4.ip_nonlocal_bind", "net.ipv6.ip_nonlocal_bind")
FAMILIES = ("inet", "inet6")


class Operator(t.Protocol):
    """The hosts of a scenario, and the playbooks on them."""

    names: list[str]

    def ask(self, name: str, script: str) -> tuple[int, str]:
        """The exit status of a script on a host, and its output."""

    def play(self, playbook: str, *words: str, **variables: t.Any) -> tuple[int, str]: ...

    def start(self, playbook: str, **variables: t.Any) -> subprocess.Popen[str]:
        """A play that goes on."""

    def finish(self, process: subprocess.Popen[str]) -> None:
        """Waits for its end."""


class Engine(t.NamedTuple):
    """One that publishes ports."""

    command: str
    families: t.Sequence[str]  # of the addresses that float
    network: str  # the options of its network, which has {number} in its subnets, and draws addresses from {begin} on
    run: str  # those of its container
    asked: t.Mapping[str, t.Any]  # of a move


# Other inner addresses than those of an earlier run, of which the kernel may know connections still.
PODMAN = Engine(
    "podman", FAMILIES, "--disable-dns --subnet 10.98.7.0/24 --ipv6 --subnet fd98:7::/64", "--network {network}:ip=10.98.7.{number},ip6=fd98:7::{number}", {}
)
AS_DOCKER = {"handover_driver": "docker", "handover_ignore_checks": ["clock"]}
# It has no fixed address, and each host would draw another.
OF_DOCKER = "--subnet 10.98.{number}.0/24 --gateway 10.98.{number}.1 --ip-range 10.98.{number}.{begin}/26"
DOCKER = Engine("docker", FAMILIES[:1], OF_DOCKER, "--network {network}", AS_DOCKER)


class Floating:
    """The container, its addresses, and a client outside of both hosts."""

    def __init__(self, operator: Operator, engine: Engine) -> None:
        self.operator, self.engine = operator, engine
        self.names = operator.names[:2]
        listed = json.loads(self.run(self.names[0], "ip -json address show dev host0"))
        own = {each["family"]: each for each in listed[0]["addr_info"] if each["scope"] == "global"}
        beside = {"inet": own["inet"]["local"].rpartition(".")[0] + ".120", "inet6": own["inet6"]["local"].rpartition("::")[0] + "::120"}
        self.addresses = [beside[family] for family in engine.families]
        self.prefixes = [f"{beside[family]}/{own[family]['prefixlen']}" for family in engine.families]
        self.inner: list[str] = []
        self.client: subprocess.Popen[str] | None = None

    def run(self, name: str, script: str) -> str:
        status, text = self.operator.ask(name, script)
        assert status == 0, f"on {name}: {script}: {text}"
        return text

    def other(self, name: str) -> str:
        return next(each for each in self.names if each != name)

    def has(self, name: str) -> list[str]:
        """The addresses that a host has."""
        listed = self.run(name, "ip -oneline address")
        return [address for address in self.addresses if f" {address}/" in listed]

    def home(self) -> str:
        """The one host on which it runs, and which has the addresses, alone."""
        look = f"{self.engine.command} ps --format '{{{{.Names}}}}' | grep -qx {NAME}"
        runs = [name for name in self.names if self.operator.ask(name, look)[0] == 0]
        assert len(runs) == 1, runs
        assert {name: self.has(name) for name in self.names} == {runs[0]: self.addresses, self.other(runs[0]): []}
        return runs[0]

    def make(self) -> None:
        number, command = 16 + int(time.time()) % 200, self.engine.command
        for name, begin in zip(self.names, (64, 128)):
            network = self.engine.network.format(number=number, begin=begin)
            self.run(name, f"sysctl {' '.join(each + '=1' for each in BIND)} && {command} network create {network} {NETWORK}")
        for prefix in self.prefixes:
            self.run(self.names[0], f"ip address add {prefix} dev host0{' nodad' if ':' in prefix else ''}")
        published = [f"--publish '{f'[{address}]' if ':' in address else address}:{PORT}:7000'" for address in self.addresses]
        options = f"{self.engine.run.format(network=NETWORK, number=number)} {' '.join(published)}"
        self.run(self.names[0], f"{command} run --detach --name {NAME} {options} --stop-signal 9 {IMAGE} nc -ll -p 7000 -e cat")
        self.inner = self.within(self.names[0])

    def within(self, name: str) -> list[str]:
        """The addresses that it has on its network there."""
        (container,) = json.loads(self.run(name, f"{self.engine.command} inspect {NAME}"))
        endpoint = container["NetworkSettings"]["Networks"][NETWORK]
        return [endpoint[key] for key in ("IPAddress", "GlobalIPv6Address") if endpoint[key]]

    def remove(self) -> None:
        self.end()
        command = self.engine.command
        for name in self.names:
            self.operator.ask(name, f"{command} rm --force {NAME}; {command} network rm {NETWORK}")
            for prefix in self.prefixes:
                self.operator.ask(name, f"ip address delete {prefix} dev host0")
            self.operator.ask(name, f"rm -rf /var/lib/handover/addresses; sysctl {' '.join(each + '=0' for each in BIND)}")

    def begin(self) -> None:
        words = [sys.executable, str(CHECKOUT / "tests/clients/echo.py"), str(PORT), *self.addresses]
        # A neighbour that has met the address elsewhere, before it was put here by hand, asks again after some seconds.
        for _each in range(6):
            self.client = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
            for _look in range(10):
                time.sleep(1)
                if self.entries(self.home()) == len(self.addresses):
                    return
            self.end()
        pytest.fail("the client does not come to the container")

    def end(self) -> dict[str, dict[str, t.Any]]:
        client, self.client = self.client, None
        if client is None:
            return {}
        client.terminate()
        told, _nothing = client.communicate(timeout=90)
        return json.loads(told)

    def lived(self, answers: int = 0) -> None:
        """The client has been answered by each address, without an end."""
        seen = self.end()
        assert {address: found.get("error") for address, found in seen.items()} == dict.fromkeys(self.addresses), seen
        assert all(found["answers"] > answers for found in seen.values()), seen
        print({address: found["longest_wait"] for address, found in seen.items()})

    def asked(self, here: str) -> dict[str, t.Any]:
        whole = {"handover_workload": NAME, "handover_source": here, "handover_destination": self.other(here)}
        return {**whole, "handover_floating_addresses": self.addresses, **self.engine.asked}

    def move(self, here: str, *words: str, **more: t.Any) -> tuple[int, str]:
        return self.operator.play("migrate", *words, **{**self.asked(here), **more})

    def moved(self, here: str, **more: t.Any) -> str:
        """Moves it, and is the host that it has come to."""
        status, text = self.move(here, **more)
        assert status == 0, text[-4000:]
        assert self.home() == self.other(here)
        return self.other(here)

    def recover(self) -> None:
        status, text = self.operator.play("recover", handover_hosts=",".join(self.names))
        assert status == 0, text[-4000:]

    def entries(self, name: str) -> int:
        """Connections through the addresses that this host leads to the container."""
        inner = [f"src={ipaddress.ip_address(address).exploded} " for address in self.inner]
        ours = [line for line in self.run(name, "cat /proc/net/nf_conntrack").splitlines() if f"dport={PORT} " in line and "ESTABLISHED" in line]
        return len([line for line in ours if any(address in line for address in inner)])

    def answers(self) -> None:
        """Another connection is answered, and so is the client's."""
        for address in self.addresses:
            with socket.create_connection((address, PORT), timeout=20) as connection:
                connection.sendall(b"here\n")
                assert connection.recv(8) == b"here\n"

    def leads_alone(self, name: str) -> bool:
        """Whether this host leads the connections to it, and the other none."""
        return (self.entries(name), self.entries(self.other(name))) == (len(self.addresses), 0)

    def killed(self, here: str, side: str, state: str) -> None:
        """A move whose helper on one side is killed when it has come to a state."""
        patience = {"migrate_peer_timeout": 10, "migrate_hook_timeout": 25, "migrate_cutover_timeout": 60}
        process = self.operator.start("migrate", **self.asked(here), migrate_pause_at={side: state}, **patience)
        host = here if side == "source" else self.other(here)
        show = f"for each in {SESSIONS}/{NAME}-*; do ! test -f $each/spec.json || {PCOPY} session show $each; done"
        for _each in range(600):
            said = self.operator.ask(host, show)[1]
            shown = json.loads(said) if said.strip() else {}
            if shown.get("state") == state:
                break
            assert process.poll() is None, f"the play ended before {state}"
            time.sleep(0.2)
        self.run(host, f"systemctl kill --signal=KILL --kill-whom=main handover-{shown['id']}-{side}.service")
        self.operator.finish(process)
