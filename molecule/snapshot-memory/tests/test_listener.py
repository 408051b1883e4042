# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A snapshot with memory of a container at whose door clients wait."""

from __future__ import annotations

import os
import typing as t
from pathlib import Path

import pytest
from hosts import Hosts

LISTENER = "tenant5"
PORT = 7000
# Connections without end; and one over IPv6, on which nothing is said until somebody wants that.
KNOCKING = "for n in {{1..8}}; do while :; do {{ echo x >&3; read -t 60 -u 3 && echo answered; }} 3<>/dev/tcp/{0}/{1}; done & done; wait"
WAITING = "exec 3<>/dev/tcp/{0}/{1}; echo x >&3; read -u 3; echo connected; until test -e go; do sleep 0.1; done; echo x >&3; read -t 60 -u 3; echo $?"


@pytest.fixture(scope="module")
def fleet() -> Hosts:
    return Hosts(Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "reports")


def addresses(host: t.Any, number: str) -> list[str]:
    """Of a container, outside the ranges of which podman gives each host's containers the first that is free."""
    listed = host.check_output("podman network inspect lan --format '{{range .Subnets}}{{.Subnet}} {{end}}'").split()
    subnet, subnet6 = sorted(listed, key=lambda each: ":" in each)
    return [subnet.rpartition(".")[0] + "." + number, subnet6.partition("/")[0] + "2:" + number]


def until(host: t.Any, true: str) -> None:
    host.check_output(f"for try in $(seq 300); do {true} && exit; sleep 0.1; done; exit 1")


def test_a_listener_is_kept_with_its_memory_while_connections_come(fleet: Hosts) -> None:
    """They wait for the dump: CRIU refuses a listener at whose door somebody waits, and without a guard nearly always one does."""
    first, second = (fleet.hosts[name] for name in fleet.names[:2])
    address, address6 = addresses(first, "71")
    asked = {"handover_source": fleet.names[0], "handover_workload": LISTENER, "handover_snapshot": "busy"}
    units = {"waiting": WAITING.format(address6, PORT), "knocking": KNOCKING.format(address, PORT)}
    try:
        network = f"lan:ip={address},ip6={address6}"
        first.check_output(f"podman run --detach --name {LISTENER} --stop-signal 9 --network {network} localhost/handover/tools:lab nc -ll -p {PORT} -e cat")
        until(second, f"ping -6 -c 1 -W 1 {address6}")
        for unit, script in units.items():
            words = f"--unit=door-{unit} --property=RuntimeDirectory=door-{unit} --working-directory=/run/door-{unit}"
            second.check_output(f"systemd-run --expand-environment=no {words} --property=StandardOutput=truncate:/run/door-{unit}.log bash -c '{script}'")
        until(second, "grep -q connected /run/door-waiting.log && grep -q answered /run/door-knocking.log")
        status, text = fleet.play("snapshot", handover_memory=True, **asked)
        assert status == 0, text[-4000:]
        second.check_output("truncate --size 0 /run/door-knocking.log && touch /run/door-waiting/go")
        until(second, "grep -q answered /run/door-knocking.log && grep -q '^[0-9]' /run/door-waiting.log")
        assert second.check_output("cat /run/door-waiting.log").split() == ["connected", "0"]
    finally:
        for unit in units:
            second.run(f"systemctl stop door-{unit}.service; rm --force /run/door-{unit}.log")
        first.run(f"podman rm --force --time 0 {LISTENER}; rm --recursive --force /var/lib/handover/snapshots/{LISTENER}")
