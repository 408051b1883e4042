# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A container that a quadlet starts moves with its unit: live, under a client that holds a connection, and back after all that may happen to it.
Its plain volume becomes an image volume on the way.

In the order of this file: each test finds the container where the one before it left it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import typing as t
from pathlib import Path

import pytest
from hosts import CHECKOUT, Hosts, answers, boot

NAME = "quad1"
UNIT = f"{NAME}.service"
VOLUME = {"name": NAME, "podman_volume": f"systemd-{NAME}"}
MOUNT = f"var-lib-handover-mnt-{NAME}.mount"
KEPT = f"/var/lib/containers/storage/volumes/.handover-plain/systemd-{NAME}"
FOLDER = "/etc/containers/systemd"
QUADLET = """\
[Unit]
Description=A container that systemd starts

[Container]
Image=localhost/handover/tools:lab
ContainerName={name}
Network=lan:ip={address},ip6={address6}
Volume={name}.volume:/data
StopSignal=9
Exec=sh -c "heartbeat -file /data/heartbeat -every 5ms & exec nc -ll -p 7007 -e cat"

[Service]
Restart=always
RestartSec=2

[Install]
WantedBy=multi-user.target
"""


class Quadlet:
    """The unit on each of the hosts."""

    def __init__(self, fleet: Hosts) -> None:
        self.fleet = fleet
        self.first, self.second = fleet.names[:2]
        listed = fleet.hosts[self.first].check_output("podman network inspect lan --format '{{range .Subnets}}{{.Subnet}} {{end}}'")
        subnet, subnet6 = sorted(listed.split(), key=lambda each: ":" in each)
        # Outside the ranges of which podman gives each host's containers the first that is free there.
        self.address, self.address6 = subnet.rpartition(".")[0] + ".201", subnet6.partition("/")[0] + "2:201"

    def on(self, host: str) -> t.Any:
        return self.fleet.hosts[host]

    def write(self) -> None:
        host = self.on(self.first)
        text = QUADLET.format(name=NAME, address=self.address, address6=self.address6)
        for path, content in ((f"{NAME}.container", text), (f"{NAME}.volume", "[Volume]\nLabel=of=units\n")):
            host.check_output("mkdir -p %s && printf %%s %s > %s", FOLDER, content, f"{FOLDER}/{path}")
        host.check_output(f"systemctl daemon-reload && systemctl start {UNIT}")

    def remove(self) -> None:
        for host in (self.on(self.first), self.on(self.second)):
            host.run(f"systemctl stop {UNIT} {NAME}-volume.service; rm -rf {FOLDER}/{NAME}.* /etc/systemd/system/{UNIT}.d /run/systemd/system/{UNIT}*")
            host.run(f"systemctl daemon-reload; systemctl reset-failed; podman rm --force --time=0 --ignore {NAME}; podman volume rm --force systemd-{NAME}")
            host.run(f"systemctl disable --now {MOUNT}; rm -rf /etc/systemd/system/{MOUNT} /etc/systemd/system/handover-loop-{NAME}.service {KEPT}")
            host.run(f"systemctl daemon-reload; rm -f /var/lib/handover/volumes/{NAME}.img*; rmdir /var/lib/handover/mnt/{NAME}")

    def move(self, there: str, **more: t.Any) -> None:
        here = self.second if there == self.first else self.first
        status, text = self.fleet.play("migrate", handover_workload=NAME, handover_source=here, handover_destination=there, **more)
        assert status == 0, text[-4000:]

    def runs_only_on(self, there: str) -> None:
        """systemd and podman agree about it, and the other host has nothing that could start it."""
        host = self.on(there)
        conmon, group, main = (
            host.check_output(f"podman inspect {NAME} --format '{{{{.State.ConmonPid}}}}'"),
            host.check_output(f"podman inspect {NAME} --format '{{{{.State.CgroupPath}}}}'"),
            host.check_output(f"systemctl show --value --property=MainPID {UNIT}"),
        )
        assert main == conmon and group.startswith(f"/system.slice/{UNIT}/"), (main, conmon, group)
        assert host.check_output(f"systemctl is-active {UNIT}") == "active"
        assert host.check_output(f"systemctl show --value --property=DropInPaths {UNIT}") == ""
        other = self.on(self.second if there == self.first else self.first)
        assert other.run(f"podman ps --all --format '{{{{.Names}}}}' | grep -x {NAME}").stdout == ""
        assert other.check_output(f"systemctl show --value --property=LoadState {UNIT}") == "not-found"
        assert other.run(f"ls -d /etc/systemd/system/{UNIT}* /run/systemd/system/{UNIT}*").stdout == ""


@pytest.fixture(scope="module")
def quadlet() -> t.Iterator[Quadlet]:
    made = Quadlet(Hosts(Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "reports"))
    try:
        made.write()
        yield made
    finally:
        made.remove()


@contextlib.contextmanager
def connection(quadlet: Quadlet) -> t.Iterator[None]:
    """A client that holds one connection all the while."""
    answers(quadlet.address, 7007)
    words = [sys.executable, str(CHECKOUT / "tests/clients/echo.py"), "7007", quadlet.address]
    client = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        time.sleep(1)
        yield
    finally:
        client.terminate()
        told, _nothing = client.communicate(timeout=30)
    (seen,) = json.loads(told).values()
    assert "error" not in seen and seen["answers"] > 100, told


def test_the_unit_takes_over_the_container_that_came_live(quadlet: Quadlet) -> None:
    with connection(quadlet):
        quadlet.move(quadlet.second)
    quadlet.runs_only_on(quadlet.second)
    beats = json.loads(quadlet.on(quadlet.second).check_output(f"podman exec {NAME} heartbeat -gaps /data/heartbeat"))
    assert (beats["missed"], beats["broken"]) == (0, 0)
    kept = quadlet.on(quadlet.first).check_output(f"ls {FOLDER}")
    assert {f"{NAME}.container.migrated", f"{NAME}.volume.migrated"} <= set(kept.split())


def test_it_is_restarted_and_comes_up_at_boot(quadlet: Quadlet) -> None:
    host = quadlet.on(quadlet.second)
    host.check_output(f"systemctl restart {UNIT}")
    quadlet.runs_only_on(quadlet.second)
    boot(host, UNIT)
    quadlet.runs_only_on(quadlet.second)


def test_its_plain_volume_becomes_an_image_volume(quadlet: Quadlet) -> None:
    """While it runs, with its memory and a client's connection."""
    host = quadlet.on(quadlet.second)
    host.check_output(f"podman exec {NAME} sh -c 'echo of-the-layer > /kept'")
    which = f"podman exec {NAME} cat /kept; podman inspect {NAME} --format '{{{{.Id}}}} {{{{.State.StartedAt}}}}'"
    begun = host.check_output(which)
    with connection(quadlet):
        made = quadlet.fleet.module(quadlet.second, "image_volume", **VOLUME, state="mounted", convert=True)
    assert made.get("mounted") and made["conversion"]["container"] == NAME and made["conversion"]["paused_ms"], made
    assert made["conversion"]["memory"] and not made["conversion"]["anew"], made
    quadlet.runs_only_on(quadlet.second)
    assert host.check_output(which) == begun
    beats = json.loads(host.check_output(f"podman exec {NAME} heartbeat -gaps /data/heartbeat"))
    assert (beats["missed"], beats["broken"]) == (0, 0)
    size, inside = host.check_output(f"stat --format=%s {KEPT}/heartbeat"), f"{made['mountpoint']}/heartbeat"
    host.check_output(f"cmp --bytes={size} {KEPT}/heartbeat {inside}")
    assert host.check_output(f"podman exec {NAME} stat -c %i /data/heartbeat") == host.check_output(f"stat --format=%i {inside}")
    again = quadlet.fleet.module(quadlet.second, "image_volume", **VOLUME, state="mounted", convert=True, keep_plain=False)
    assert again["reasons"] == [f"the folder of the plain volume is kept as {KEPT}"] and not host.file(KEPT).exists


def test_it_goes_back_after_the_controller_has_died(quadlet: Quadlet) -> None:
    process = quadlet.fleet.start("migrate", handover_workload=NAME, handover_source=quadlet.second, handover_destination=quadlet.first)
    assert process.stdout is not None
    seen = ""
    for line in process.stdout:
        seen += line
        if "Hold its unit on the source" in line:
            break
    else:
        pytest.fail(seen[-4000:])
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    with connection(quadlet):
        quadlet.move(quadlet.first)
    quadlet.runs_only_on(quadlet.first)


def test_offline_the_unit_starts_it_there(quadlet: Quadlet) -> None:
    quadlet.move(quadlet.second, migrate_mode="offline")
    quadlet.runs_only_on(quadlet.second)
    labels = quadlet.on(quadlet.second).check_output(f"podman volume inspect systemd-{NAME} --format '{{{{.Labels.of}}}}'")
    assert labels == "units"


@pytest.mark.parametrize("memory", [True, False])
def test_it_goes_back_to_a_snapshot_and_stays_its_units(quadlet: Quadlet, memory: bool) -> None:
    """The unit does not notice that its memory is taken. In between it makes its container anew."""
    there = quadlet.first if quadlet.on(quadlet.first).run(f"systemctl is-active {UNIT}").rc == 0 else quadlet.second
    host, name = quadlet.on(there), f"memory-{memory}".lower()
    asked = {"handover_source": there, "handover_workload": NAME, "handover_snapshot": name, "handover_memory": memory}
    host.check_output(f"podman exec {NAME} touch /kept /data/kept")
    state = host.check_output(f"systemctl show --property=MainPID,InvocationID,NRestarts {UNIT}")
    with connection(quadlet):
        status, text = quadlet.fleet.play("snapshot", **asked)
    assert status == 0, text[-4000:]
    assert host.check_output(f"systemctl show --property=MainPID,InvocationID,NRestarts {UNIT}") == state
    quadlet.runs_only_on(there)
    host.check_output(f"systemctl restart {UNIT}")
    host.check_output(f"podman exec {NAME} touch /later /data/later")
    status, text = quadlet.fleet.play("rollback", **asked)
    assert status == 0, text[-4000:]
    quadlet.runs_only_on(there)
    found = host.check_output(f"podman exec {NAME} sh -c 'ls / /data'").split()
    assert "later" not in found and found.count("kept") == 1 + memory
    if memory:  # what was restored has the network of its unit's container
        with connection(quadlet):
            time.sleep(2)
    host.check_output(f"systemctl restart {UNIT}")
    quadlet.runs_only_on(there)
    status, text = quadlet.fleet.play("snapshot", handover_state="absent", **{**asked, "handover_memory": False})
    assert status == 0, text[-4000:]
