# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Snapshots with memory, and the way back: of a container that writes, and of one at whose door clients wait."""

from __future__ import annotations

import json
import os
import re
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


def test_a_snapshot_and_the_way_back(fleet: Hosts) -> None:
    first = fleet.names[0]
    asked = {"handover_source": first, "handover_workload": "tenant1", "handover_snapshot": "before", "handover_memory": True}
    status, text = fleet.play("snapshot", **asked)
    assert status == 0, text[-4000:]
    assert re.search(r"^  tenant1 +before +2\d{3}-", text, flags=re.MULTILINE)
    beats = json.loads(fleet.hosts[first].check_output("podman exec tenant1 heartbeat -gaps /data/heartbeat"))
    fleet.hosts[first].check_output("podman exec tenant1 sh -c 'echo mistake > /data/mistake; echo mistake > /mistake'")
    status, text = fleet.play("rollback", **asked)
    assert status == 0, text[-4000:]
    # The process itself runs on from that moment, on the files of that moment.
    again = json.loads(fleet.hosts[first].check_output("podman exec tenant1 heartbeat -gaps /data/heartbeat"))
    assert (again["missed"], again["broken"]) == (0, 0)
    assert fleet.hosts[first].run("podman exec tenant1 ls /data/mistake /mistake").stdout == ""
    assert again["gap_ms"] >= beats["gap_ms"]
    # The disks of the moment before the rollback were kept, and can be gone back to: the container starts again on them.
    status, text = fleet.play("snapshot", handover_source=first, handover_workload="tenant1")
    assert status == 0, text[-4000:]
    (undo,) = re.findall(r"^  tenant1 +(undo-\d{8}T\d{6}) +2\d{3}-", text, flags=re.MULTILINE)
    back = {"handover_source": first, "handover_workload": "tenant1", "handover_snapshot": undo}
    status, text = fleet.play("rollback", snapshot_keep=False, **back)
    assert status == 0, text[-4000:]
    assert fleet.hosts[first].check_output("podman exec tenant1 cat /data/mistake") == "mistake"
    # Beside the container's own volume the one of the snapshot is mounted, without the mistake.
    status, text = fleet.play("snapshot", **{**asked, "handover_state": "mounted"})
    assert status == 0, text[-4000:]
    (place,) = re.findall(r"mounted on (/\S+)", text)
    names = fleet.hosts[first].check_output(f"ls {place}").split()
    assert "heartbeat" in names
    assert "mistake" not in names
    assert fleet.hosts[first].run(f"touch {place}/new").rc != 0
    status, text = fleet.play("snapshot", **{**asked, "handover_state": "unmounted"})
    assert status == 0, text[-4000:]
    assert not fleet.hosts[first].file(place).exists
    for name in (undo, "before"):
        status, text = fleet.play("snapshot", **{**asked, "handover_snapshot": name, "handover_state": "absent"})
        assert status == 0, text[-4000:]
    assert "There is no snapshot." in text
    left = fleet.hosts[first].check_output("/usr/local/libexec/handover/pcopy snapshot list --json /var/lib/handover/snapshots/.disks/tenant1")
    assert json.loads(left) == {"snapshots": []}


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
