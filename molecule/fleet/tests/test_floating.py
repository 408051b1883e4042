# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A container behind the NAT of podman's own bridge, whose published port has an address of its own: the address moves along, and connections live on.

One client holds a connection over each version of IP through ten moves there and back, a move that is killed before the release, and one that is killed
after it. In the order of this file: each test finds the container where the one before it left it.
"""

from __future__ import annotations

import ipaddress
import json
import os
import re
import subprocess
import sys
import time
import typing as t
from pathlib import Path

import pytest
from hosts import CHECKOUT, Hosts, boot, said

NAME = "floats1"
NETWORK = "behind"
PORT = 7011
SESSIONS = "/var/lib/handover/sessions"
PCOPY = "/usr/local/libexec/handover/pcopy"
BIND = ("net.ipv4.ip_nonlocal_bind", "net.ipv6.ip_nonlocal_bind")
MOVES = 10


class Floating:
    """The container, its addresses, and a client outside of both hosts."""

    def __init__(self, fleet: Hosts) -> None:
        self.fleet = fleet
        self.names = fleet.names[:2]
        listed = json.loads(fleet.hosts[self.names[0]].check_output("ip -json address show dev host0"))
        own = {each["family"]: each for each in listed[0]["addr_info"] if each["scope"] == "global"}
        self.addresses = [own["inet"]["local"].rpartition(".")[0] + ".120", own["inet6"]["local"].rpartition("::")[0] + "::120"]
        self.prefixes = [f"{address}/{own[family]['prefixlen']}" for address, family in zip(self.addresses, ("inet", "inet6"))]
        # Others than those of an earlier run, of which the kernel may know connections still.
        number = 16 + int(time.time()) % 200
        self.inner = [f"10.98.7.{number}", f"fd98:7::{number}"]
        self.client: subprocess.Popen[str] | None = None

    def on(self, name: str) -> t.Any:
        return self.fleet.hosts[name]

    def other(self, name: str) -> str:
        return next(each for each in self.names if each != name)

    def home(self) -> str:
        """The one host on which it runs, and which has both addresses, alone."""
        runs = [name for name in self.names if self.on(name).run(f"podman ps --format '{{{{.Names}}}}' | grep -qx {NAME}").rc == 0]
        has = {name: [address for address in self.addresses if f" {address}/" in self.on(name).check_output("ip -oneline address")] for name in self.names}
        assert len(runs) == 1, runs
        assert has == {runs[0]: self.addresses, self.other(runs[0]): []}
        return runs[0]

    def make(self) -> None:
        for name in self.names:
            host = self.on(name)
            host.check_output(f"sysctl {' '.join(each + '=1' for each in BIND)}")
            host.check_output(f"podman network create --ignore --disable-dns --subnet 10.98.7.0/24 --ipv6 --subnet fd98:7::/64 {NETWORK}")
        host = self.on(self.names[0])
        for prefix in self.prefixes:
            host.check_output(f"ip address add {prefix} dev host0{' nodad' if ':' in prefix else ''}")
        four, six = self.addresses
        published = f"--publish {four}:{PORT}:7000 --publish '[{six}]:{PORT}:7000'"
        host.check_output(
            f"podman run --detach --name {NAME} --network {NETWORK}:ip={self.inner[0]},ip6={self.inner[1]} {published} --stop-signal 9 "
            "localhost/handover/tools:lab nc -ll -p 7000 -e cat"
        )

    def remove(self) -> None:
        self.end()
        for name in self.names:
            host = self.on(name)
            host.run(f"podman rm --force --time=0 --ignore {NAME}; podman network rm --force {NETWORK}")
            for prefix in self.prefixes:
                host.run(f"ip address delete {prefix} dev host0")
            host.run(f"rm -rf /var/lib/handover/addresses; sysctl {' '.join(each + '=0' for each in BIND)}")

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

    def move(self, here: str, **more: t.Any) -> tuple[int, str]:
        return self.fleet.play(
            "migrate", handover_workload=NAME, handover_source=here, handover_destination=self.other(here), handover_floating_addresses=self.addresses, **more
        )

    def recover(self) -> None:
        status, text = self.fleet.play("recover", handover_hosts=",".join(self.names))
        assert status == 0, text[-4000:]

    def entries(self, name: str) -> int:
        """Connections through the addresses that this host leads to the container."""
        inner = [f"src={ipaddress.ip_address(address).exploded} " for address in self.inner]
        table = self.on(name).check_output("cat /proc/net/nf_conntrack")
        ours = [line for line in table.splitlines() if f"dport={PORT} " in line and "ESTABLISHED" in line]
        return len([line for line in ours if any(address in line for address in inner)])

    def killed(self, here: str, side: str, state: str) -> None:
        """A move whose helper on one side is killed when it has come to a state."""
        process = self.fleet.start(
            "migrate", handover_workload=NAME, handover_source=here, handover_destination=self.other(here), handover_floating_addresses=self.addresses,
            migrate_pause_at={side: state}, migrate_peer_timeout=10, migrate_hook_timeout=25, migrate_cutover_timeout=60,
        )  # fmt: skip
        host = self.on(here if side == "source" else self.other(here))
        show = f"for each in {SESSIONS}/{NAME}-*; do ! test -f $each/spec.json || {PCOPY} session show $each; done"
        for _each in range(600):
            said = host.run(show).stdout
            shown = json.loads(said) if said.strip() else {}
            if shown.get("state") == state:
                break
            assert process.poll() is None, (process.stdout.read() if process.stdout else "")[-4000:]
            time.sleep(0.2)
        host.check_output(f"systemctl kill --signal=KILL --kill-whom=main handover-{shown['id']}-{side}.service")
        process.communicate(timeout=300)


@pytest.fixture(scope="module")
def floating() -> t.Iterator[Floating]:
    made = Floating(Hosts(Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "reports"))
    try:
        made.make()
        made.begin()
        yield made
    finally:
        made.remove()


def test_ports_on_an_address_that_does_not_float_are_refused(floating: Floating) -> None:
    status, text = floating.fleet.play("migrate", "--check", handover_workload=NAME, handover_source=floating.names[0], handover_destination=floating.names[1])
    assert status != 0
    assert f"publishes port {PORT}/tcp on {floating.addresses[0]}, an address of {floating.names[0]} that {floating.names[1]} does not have" in said(text)
    assert re.search(rf"{NAME} has 2 TCP connections open over the network {NETWORK}", said(text)), text[-4000:]


def test_connections_live_through_ten_moves_there_and_back(floating: Floating) -> None:
    here = floating.home()
    for number in range(MOVES):
        status, text = floating.move(here)
        assert status == 0, f"move {number}: {text[-4000:]}"
        here = floating.other(here)
        assert floating.home() == here
        assert (floating.entries(here), floating.entries(floating.other(here))) == (2, 0)
    assert floating.client is not None and floating.client.poll() is None


def test_a_move_killed_before_the_release_is_rolled_back(floating: Floating) -> None:
    here = floating.home()
    floating.killed(here, "source", "prepared")
    floating.recover()
    assert floating.home() == here
    assert (floating.entries(here), floating.entries(floating.other(here))) == (2, 0)


def test_a_release_of_which_the_destination_has_not_heard_gives_the_addresses_back(floating: Floating) -> None:
    here = floating.home()
    floating.killed(here, "source", "released")
    floating.recover()
    assert floating.home() == here


def test_a_move_killed_after_the_release_ends_on_the_destination(floating: Floating) -> None:
    here = floating.home()
    floating.killed(here, "destination", "released")
    floating.recover()
    assert floating.home() == floating.other(here)
    seen = floating.end()
    assert {address: found.get("error") for address, found in seen.items()} == dict.fromkeys(floating.addresses), seen
    assert all(found["answers"] > 1000 for found in seen.values()), seen
    print({address: found["longest_wait"] for address, found in seen.items()})


def test_the_addresses_come_back_with_the_container_after_a_boot(floating: Floating) -> None:
    here = floating.home()
    if here == floating.names[0]:
        status, text = floating.move(here)
        assert status == 0, text[-4000:]
        here = floating.other(here)
    host = floating.on(here)
    boot(host, "multi-user.target")
    host.run(f"sysctl {' '.join(each + '=1' for each in BIND)}")
    assert f" {floating.addresses[0]}/" not in host.check_output("ip -oneline address")
    host.check_output(f"podman start {NAME}")
    assert floating.home() == here
    floating.begin()
    status, text = floating.move(here)
    assert status == 0, text[-4000:]
    seen = floating.end()
    assert all("error" not in found for found in seen.values()), seen


def test_it_moves_offline_with_its_addresses(floating: Floating) -> None:
    here = floating.home()
    status, text = floating.move(here, handover_mode="offline")
    assert status == 0, text[-4000:]
    assert floating.home() == floating.other(here)
    floating.begin()
    time.sleep(1)
    assert all(found["answers"] > 10 for found in floating.end().values())
