# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A pod that a quadlet makes moves with its unit and those of its members, there and back, and comes up there at a boot.

In the order of this file: each test finds the pod where the one before it left it.
"""

from __future__ import annotations

import json
import os
import typing as t
from pathlib import Path

import pytest
from hosts import Hosts, boot, said
from turns import in_turn

pytestmark = in_turn(0, of=3)

POD, MEMBERS = "booth", ("booth-db", "booth-web")
POD_UNIT = f"{POD}-pod.service"
UNITS = (POD_UNIT, *(f"{member}.service" for member in MEMBERS))
FOLDER = "/etc/containers/systemd"
IMAGE = "localhost/handover/tools:lab"
MEMBER = f"""\
[Container]
Image={IMAGE}
ContainerName={{name}}
Pod={POD}.pod
Volume={{name}}.volume:/data
StopSignal=9
Exec=sh -c "date +%%s%%N >> /data/starts; exec heartbeat -file /beats -every 10ms"
"""
FILES = {
    f"{POD}.pod": (
        # An infra container that heeds no signal would outlast the time that systemd gives it.
        f"[Pod]\nPodName={POD}\nPodmanArgs=--infra-image {IMAGE} --infra-command 'heartbeat -file /beats -every 1s'\nNetwork={POD}.network\n\n"
        "[Install]\nWantedBy=multi-user.target\n"
    ),
    f"{POD}.network": "[Network]\nSubnet=10.119.8.0/24\nDisableDNS=true\nLabel=of=booths\n",
    **{f"{member}.container": MEMBER.format(name=member) for member in MEMBERS},
    **{f"{member}.volume": "[Volume]\nLabel=of=booths\n" for member in MEMBERS},
}


class Booth:
    """The pod on the first two hosts."""

    def __init__(self, fleet: Hosts) -> None:
        self.fleet = fleet
        self.first, self.second = fleet.names[:2]

    def on(self, host: str) -> t.Any:
        return self.fleet.hosts[host]

    def other(self, host: str) -> str:
        return self.second if host == self.first else self.first

    def write(self) -> None:
        host = self.on(self.first)
        for name, text in FILES.items():
            host.check_output("mkdir -p %s && printf %%s %s > %s", FOLDER, text, f"{FOLDER}/{name}")
        host.check_output(f"systemctl daemon-reload && systemctl start {POD_UNIT}")

    def remove(self) -> None:
        for name in (self.first, self.second):
            host = self.on(name)
            host.run(f"systemctl stop {POD_UNIT} {POD}-network.service {' '.join(f'{member}-volume.service' for member in MEMBERS)}")
            host.run(f"rm -rf {FOLDER}/{POD}* " + " ".join(f"/etc/systemd/system/{unit}.d /run/systemd/system/{unit}*" for unit in UNITS))
            host.run(f"systemctl daemon-reload; systemctl reset-failed; podman pod rm --force --time=0 --ignore {POD}")
            host.run(f"podman network rm --force systemd-{POD}; podman volume rm --force {' '.join(f'systemd-{member}' for member in MEMBERS)}")

    def move(self, there: str, **more: t.Any) -> tuple[int, str]:
        return self.fleet.play("migrate", handover_workload=POD, handover_source=self.other(there), handover_destination=there, **more)

    def starts(self, there: str) -> list[int]:
        """How often each member was started since the first, by its volume."""
        return [len(self.on(there).check_output(f"podman exec {member} cat /data/starts").split()) for member in MEMBERS]

    def runs_only_on(self, there: str) -> None:
        host, other = self.on(there), self.on(self.other(there))
        assert host.check_output(f"systemctl is-active {' '.join(UNITS)}").split() == ["active"] * 3
        for member in MEMBERS:
            shown = host.check_output(f"podman inspect {member} --format '{{{{.State.ConmonPid}}}}'")
            assert host.check_output(f"systemctl show --value --property=MainPID {member}.service") == shown
        assert host.check_output(f"podman ps --filter pod={POD} --format '{{{{.Names}}}}'").split().__len__() == 3
        assert host.check_output(f"podman network inspect systemd-{POD} --format '{{{{.Labels.of}}}}'") == "booths"
        for unit in UNITS:
            assert host.check_output(f"systemctl show --value --property=DropInPaths {unit}") == ""
            assert other.check_output(f"systemctl show --value --property=LoadState {unit}") == "not-found"
        assert other.run(f"podman pod exists {POD}").rc == 1
        assert other.run(f"podman volume exists systemd-{MEMBERS[0]}").rc == 1
        assert host.run(f"ls -d /var/lib/handover/sessions/{POD}-* /var/lib/handover/parts/*/*{POD}*").stdout == ""


    def missed_nothing(self, there: str) -> None:
        """Each member has its memory."""
        for member in MEMBERS:
            beats = json.loads(self.on(there).check_output(f"podman exec {member} heartbeat -gaps /beats"))
            assert (beats["missed"], beats["broken"]) == (0, 0), (member, beats)


@pytest.fixture(scope="module")
def booth() -> t.Iterator[Booth]:
    made = Booth(Hosts(Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "reports"))
    try:
        made.remove()
        made.write()
        yield made
    finally:
        made.remove()


def test_the_move_of_a_member_is_refused(booth: Booth) -> None:
    status, text = booth.fleet.play(
        "migrate", handover_workload=MEMBERS[0], handover_source=booth.first, handover_destination=booth.second, migrate_mode="offline"
    )
    assert status != 0
    assert f"{MEMBERS[0]} is a member of the pod {POD} on {booth.first}, which moves as one: move it with -e handover_workload={POD}" in said(text)
    booth.runs_only_on(booth.first)
    assert booth.starts(booth.first) == [1, 1]


def test_it_moves_live_with_all_of_its_units(booth: Booth) -> None:
    status, text = booth.move(booth.second)
    assert status == 0, text[-4000:]
    booth.runs_only_on(booth.second)
    booth.missed_nothing(booth.second)
    assert booth.starts(booth.second) == [1, 1]
    kept = set(booth.on(booth.first).check_output(f"ls {FOLDER}").split())
    assert {f"{name}.migrated" for name in FILES if not name.endswith(".network")} <= kept and f"{POD}.network" in kept


def test_it_is_restarted_and_comes_up_at_a_boot(booth: Booth) -> None:
    host = booth.on(booth.second)
    # The members' units come up after the pod's.
    host.check_output(f"systemctl restart {POD_UNIT} && systemctl start {' '.join(UNITS)}")
    booth.runs_only_on(booth.second)
    boot(host, POD_UNIT)
    host.run("systemctl is-system-running --wait")
    booth.runs_only_on(booth.second)
    assert booth.starts(booth.second) == [4, 4]


def test_a_move_that_fails_leaves_its_units_as_they_were(booth: Booth) -> None:
    """A unit of that name is on the destination, with other contents."""
    there = booth.on(booth.first)
    there.check_output(f"printf '[Container]\\nImage={IMAGE}\\nExec=true\\n' > {FOLDER}/{MEMBERS[1]}.container && systemctl daemon-reload")
    try:
        status, text = booth.move(booth.first, migrate_mode="offline")
    finally:
        there.check_output(f"rm {FOLDER}/{MEMBERS[1]}.container && systemctl daemon-reload")
    assert status != 0 and f"{MEMBERS[1]}.service" in said(text), text[-3000:]
    booth.runs_only_on(booth.second)
    assert booth.starts(booth.second) == [4, 4]


def test_it_goes_back(booth: Booth) -> None:
    status, text = booth.move(booth.first, migrate_mode="offline")
    assert status == 0, text[-4000:]
    booth.runs_only_on(booth.first)
    assert booth.starts(booth.first) == [5, 5]
    assert ".migrated" not in booth.on(booth.first).check_output(f"ls {FOLDER}")
