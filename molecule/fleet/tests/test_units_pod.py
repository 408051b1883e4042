# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A pod that a quadlet makes moves with its unit and those of its members, there and back, and comes up there at a boot.

In the order of this file: each test finds the pod where the one before it left it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import typing as t

import pytest
from hosts import boot, said
from pair import QUADLETS, Pair
from turns import in_turn

pytestmark = in_turn(0, of=3)

POD, MEMBERS = "booth", ("booth-db", "booth-web")
POD_UNIT = f"{POD}-pod.service"
UNITS = (POD_UNIT, *(f"{member}.service" for member in MEMBERS))
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
    f"{MEMBERS[0]}.container": MEMBER.format(name=MEMBERS[0]),
    f"{MEMBERS[1]}.container": f"[Unit]\nRequires={MEMBERS[0]}.service\nAfter={MEMBERS[0]}.service\n\n{MEMBER.format(name=MEMBERS[1])}",
    **{f"{member}.volume": "[Volume]\nLabel=of=booths\n" for member in MEMBERS},
}


class Booth(Pair):
    """The pod on the first two hosts."""

    NAME = POD

    def make(self) -> None:
        self.start_quadlets(FILES, POD_UNIT)

    def remove(self) -> None:
        for name in (self.first, self.second):
            host = self.on(name)
            host.run(f"systemctl stop {POD_UNIT} {POD}-network.service {' '.join(f'{member}-volume.service' for member in MEMBERS)}")
            host.run(f"rm -rf {QUADLETS}/{POD}* " + " ".join(f"/etc/systemd/system/{unit}.d /run/systemd/system/{unit}*" for unit in UNITS))
            host.run(f"systemctl daemon-reload; systemctl reset-failed; podman pod rm --force --time=0 --ignore {POD}")
            host.run(f"podman network rm --force systemd-{POD}; podman volume rm --force {' '.join(f'systemd-{member}' for member in MEMBERS)}")

    def struck(self, there: str, side: str, step: str, **more: t.Any) -> tuple[int, str]:
        """A move that stands still at a step of the source's, where the helper of one side is killed."""
        session, source = f"{POD}-struck", self.on(self.other(there))
        play = self.fleet.start("migrate", **self.asked(there), migrate_session=session, migrate_pause_at={"source": step}, **more)
        try:
            paused = f"grep -q '\"event\":\"paused\"' /var/lib/handover/sessions/{session}/events.jsonl"
            source.check_output(f"for each in $(seq 600); do {paused} 2>/dev/null && exit; sleep 0.2; done; exit 1")
            # No operator makes it act on the source meanwhile.
            live = more["migrate_mode"] == "live"
            source.run(f"systemctl {'stop' if live else 'start'} {POD_UNIT}")
            assert (source.run(f"systemctl is-active {POD_UNIT}").rc == 0) is live
            struck = source if side == "source" else self.on(there)
            struck.check_output(f"systemctl kill --signal=KILL --kill-whom=main handover-{session}-{side}.service")
            source.run(f"/usr/local/libexec/handover/pcopy session continue /var/lib/handover/sessions/{session}")
            text, _nothing = play.communicate(timeout=300)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(play.pid, signal.SIGKILL)
        return play.returncode, text

    def starts(self, there: str) -> list[int]:
        """How often each member was started since the first, by its volume."""
        return [len(self.on(there).check_output(f"podman exec {member} cat /data/starts").split()) for member in MEMBERS]

    def runs_only_on(self, there: str) -> None:
        host, other = self.on(there), self.on(self.other(there))
        assert host.check_output(f"systemctl is-active {' '.join(UNITS)}").split() == ["active"] * 3
        for container, unit in zip((f"{POD}-infra", *MEMBERS), UNITS):
            conmon = host.check_output(f"podman inspect {container} --format '{{{{.State.ConmonPid}}}}'")
            assert host.check_output(f"systemctl show --value --property=MainPID {unit}") == conmon, unit
            assert f"/{unit}" in host.check_output(f"cat /proc/{conmon}/cgroup"), unit
        assert host.check_output(f"podman pod inspect {POD} --format '{{{{.ExitPolicy}}}}'") == "stop"
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
    yield from Booth.on_the_fleet()


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
    kept = set(booth.on(booth.first).check_output(f"ls {QUADLETS}").split())
    assert {f"{name}.migrated" for name in FILES if not name.endswith(".network")} <= kept and f"{POD}.network" in kept


def test_it_is_restarted_and_comes_up_at_a_boot(booth: Booth) -> None:
    host = booth.on(booth.second)
    host.check_output(f"systemctl restart {MEMBERS[1]}.service")
    booth.runs_only_on(booth.second)
    booth.missed_nothing(booth.second)
    assert booth.starts(booth.second) == [1, 2]
    # The members' units come up after the pod's.
    host.check_output(f"systemctl restart {POD_UNIT} && systemctl start {' '.join(UNITS)}")
    booth.runs_only_on(booth.second)
    boot(host, POD_UNIT)
    host.run("systemctl is-system-running --wait")
    booth.runs_only_on(booth.second)
    assert booth.starts(booth.second) == [3, 4]


@pytest.mark.parametrize(
    ("mode", "side", "step"),
    [
        pytest.param("live", "destination", "prepared", marks=in_turn(0)), pytest.param("offline", "destination", "frozen", marks=in_turn(0)),
        pytest.param("live", "source", "prepared", marks=in_turn(1)), pytest.param("offline", "source", "frozen", marks=in_turn(1)),
    ],
)  # fmt: skip
def test_a_move_that_is_struck_leaves_it_under_its_units(booth: Booth, mode: str, side: str, step: str) -> None:
    """It stood still, or its units had stopped it."""
    before = booth.starts(booth.second)
    status, text = booth.struck(booth.first, side, step, migrate_mode=mode)
    assert status != 0 and f"{POD} was not moved" in said(text), text[-4000:]
    booth.runs_only_on(booth.second)
    if mode == "live":
        booth.missed_nothing(booth.second)
    assert booth.starts(booth.second) == [number + (mode == "offline") for number in before]


def test_a_move_that_cannot_begin_leaves_its_units_as_they_were(booth: Booth) -> None:
    """A unit of that name is on the destination, with other contents."""
    before, there = booth.starts(booth.second), booth.on(booth.first)
    there.check_output(f"printf '[Container]\\nImage={IMAGE}\\nExec=true\\n' > {QUADLETS}/{MEMBERS[1]}.container && systemctl daemon-reload")
    try:
        status, text = booth.move(booth.first)
    finally:
        there.check_output(f"rm {QUADLETS}/{MEMBERS[1]}.container && systemctl daemon-reload")
    assert status != 0 and f"{MEMBERS[1]}.service" in said(text), text[-3000:]
    booth.runs_only_on(booth.second)
    assert booth.starts(booth.second) == before


@pytest.mark.parametrize(("mode", "there"), [("live", 0), ("offline", 1)])
def test_it_moves_on(booth: Booth, mode: str, there: int) -> None:
    host = (booth.first, booth.second)[there]
    before = booth.starts(booth.other(host))
    status, text = booth.move(host, migrate_mode=mode)
    assert status == 0, text[-4000:]
    booth.runs_only_on(host)
    booth.missed_nothing(host)
    assert booth.starts(host) == [number + (mode == "offline") for number in before]
    assert ".migrated" not in booth.on(host).check_output(f"ls {QUADLETS}")
