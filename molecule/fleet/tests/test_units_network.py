# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A quadlet whose container is on a network of a quadlet's moves with both: the network is made on the destination as it was, or the move is refused.

In the order of this file: each test finds the container where the one before it left it.
"""

from __future__ import annotations

import json
import typing as t

import pytest
from hosts import said
from pair import QUADLETS, Pair
from turns import in_turn

pytestmark = in_turn(1, of=3)

NAME, NETWORK, SUBNET = "tills", "systemd-tills", "10.119.7.0/24"
UNIT, NETWORK_UNIT = f"{NAME}.service", f"{NAME}-network.service"
CRIU = "/etc/criu/runc.conf"
IMAGE, LAN = "localhost/handover/tools:lab", "till-lan"
FILES = {
    f"{NAME}.network": f"[Network]\nSubnet={SUBNET}\nGateway=10.119.7.254\nInternal=true\nDisableDNS=true\nOptions=isolate=true\nLabel=of=tills\n",
    f"{NAME}.container": f"""\
[Container]
Image={IMAGE}
ContainerName={NAME}
Network={NAME}.network:ip=10.119.7.20
StopSignal=9
Exec=heartbeat -file /beats -every 5ms

[Install]
WantedBy=multi-user.target
""",
}


class Tills(Pair):
    """The unit on the first two hosts."""

    NAME = NAME

    def make(self) -> None:
        self.start_quadlets(FILES, UNIT)

    def remove(self) -> None:
        for name in (self.first, self.second):
            host = self.on(name)
            host.run(f"systemctl stop {UNIT} {NETWORK_UNIT}; rm -rf {QUADLETS}/{NAME}.* /etc/systemd/system/{UNIT}.d /run/systemd/system/{UNIT}*")
            host.run(f"systemctl daemon-reload; systemctl reset-failed; podman rm --force --time=0 --ignore {NAME}; podman network rm --force {NETWORK}")

    def network(self, host: str, name: str = NETWORK) -> dict[str, t.Any]:
        """All of it that is not the host's own."""
        (found,) = json.loads(self.on(host).check_output(f"podman network inspect {name}"))
        return {key: value for key, value in found.items() if key not in ("id", "created", "containers", "network_interface")}

    def runs_only_on(self, there: str) -> None:
        host, other = self.on(there), self.on(self.other(there))
        conmon = host.check_output(f"podman inspect {NAME} --format '{{{{.State.ConmonPid}}}}'")
        assert host.check_output(f"systemctl show --value --property=MainPID {UNIT}") == conmon
        assert host.check_output(f"systemctl is-active {UNIT} {NETWORK_UNIT}").split() == ["active", "active"]
        assert other.run(f"podman container exists {NAME}").rc == 1
        assert other.check_output(f"systemctl show --value --property=LoadState {UNIT}") == "not-found"
        assert host.run(f"ls -d /var/lib/handover/parts/*/*{NAME}*").stdout == ""


@pytest.fixture(scope="module")
def tills() -> t.Iterator[Tills]:
    yield from Tills.on_the_fleet()


def test_a_network_that_differs_is_refused_and_nothing_is_touched(tills: Tills) -> None:
    there = tills.on(tills.second)
    there.check_output(f"podman network create --subnet {SUBNET} --gateway 10.119.7.254 --internal --disable-dns {NETWORK}")
    try:
        status, text = tills.move(tills.second)
    finally:
        there.check_output(f"podman network rm {NETWORK}")
    assert status != 0
    wanted = f"the network {NETWORK} is not the same on both hosts: its set of options is isolate=true on {tills.first} and none on {tills.second}"
    assert wanted in said(text), text[-3000:]
    tills.runs_only_on(tills.first)


def test_a_move_that_fails_takes_the_network_back(tills: Tills) -> None:
    there = tills.on(tills.second)
    there.check_output(f"echo planted-by-a-test >> {CRIU}")
    try:
        status, text = tills.move(tills.second)
    finally:
        there.check_output(f"sed -i /^planted-by-a-test$/d {CRIU}")
    assert status != 0 and f"runs on {tills.first} as before" in said(text), text[-3000:]
    tills.runs_only_on(tills.first)
    assert there.run(f"podman network exists {NETWORK}").rc == 1
    assert there.run(f"ls {QUADLETS}/{NAME}.*").stdout == ""


@pytest.mark.parametrize("mode", ["live", "offline"])
def test_the_network_is_made_as_it_was(tills: Tills, mode: str) -> None:
    here, there = (tills.first, tills.second) if mode == "live" else (tills.second, tills.first)
    before = tills.network(here)
    assert (before["internal"], before["options"]["isolate"], before["labels"]["of"]) == (True, "true", "tills")
    if mode == "offline":
        tills.on(there).check_output(f"systemctl stop {NETWORK_UNIT}; podman network rm --force {NETWORK}")
    status, text = tills.move(there, migrate_mode=mode)
    assert status == 0, text[-4000:]
    tills.runs_only_on(there)
    assert tills.network(there) == before
    host = tills.on(there)
    assert host.check_output(f"podman inspect {NAME} --format '{{{{(index .NetworkSettings.Networks \"{NETWORK}\").IPAddress}}}}'") == "10.119.7.20"
    if mode == "live":
        beats = json.loads(host.check_output(f"podman exec {NAME} heartbeat -gaps /beats"))
        assert (beats["missed"], beats["broken"]) == (0, 0)
    host.check_output(f"systemctl restart {UNIT}")
    tills.runs_only_on(there)


def test_a_network_on_an_interface_is_made_on_the_same_one(tills: Tills) -> None:
    """Of a container that no unit starts."""
    here, there = tills.on(tills.first), tills.on(tills.second)
    made = "podman network create --driver=macvlan --opt=parent=host0 --subnet=10.119.9.0/24 --gateway=10.119.9.254 --disable-dns --label=of=lan"
    try:
        here.check_output(f"{made} {LAN}")
        here.check_output(f"podman run --detach --name={LAN} --network={LAN}:ip=10.119.9.20 --stop-signal=9 {IMAGE} sleep 1000000")
        status, text = tills.fleet.play("migrate", handover_workload=LAN, handover_source=tills.first, handover_destination=tills.second)
        assert status == 0, text[-4000:]
        assert tills.network(tills.second, LAN) == tills.network(tills.first, LAN)
        assert there.check_output(f"podman network inspect {LAN} --format '{{{{.NetworkInterface}}}}'") == "host0"
        assert "10.119.9.20/24" in there.check_output(f"podman exec {LAN} ip -4 address show dev eth0")
    finally:
        for host in (here, there):
            host.run(f"podman rm --force --time=0 --ignore {LAN}; podman network rm --force {LAN}")
