# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An operator who starts the twin on the destination: after a loss of power before its session began, and while the move is in its pause.

The cells of the matrix do not see the first: the image volume of their workload is not mounted after a boot, and that alone keeps the twin from starting.
"""

from __future__ import annotations

import os
import typing as t

import pytest
from fleet import SESSIONS, Fleet, Host, sentences, until
from matrix import TASKS
from scene import Scene

BARE = "bare"


@pytest.fixture
def bare(fleet: Fleet) -> t.Iterator[Host]:
    """Where a workload without a volume runs."""
    source = fleet.home()
    source.run(f"podman run --detach --name {BARE} --network lan --stop-signal 9 localhost/handover/tools:lab heartbeat -file /tmp/ledger -every 20ms")
    try:
        yield source
    finally:
        for host in fleet.hosts:
            host.ask(f"podman rm --force --time 0 {BARE}")
    assert fleet.tidy()


def running(host: Host) -> str:
    return host.run(f"podman ps --filter name=^{BARE}$ --format '{{{{.Names}}}}'").strip()


@pytest.mark.skipif(os.environ.get("FAULTS", "").isdigit(), reason="the whole matrix has it")
def test_a_twin_does_not_start_before_its_session(bare: Host, fleet: Fleet) -> None:
    scene = Scene(fleet, bare, fleet.other(bare))
    try:
        scene.session, scene.play = fleet.begin(bare, {}, TASKS["prepare"], handover_workload=BARE, migrate_mode="offline")
        assert scene.play.stopped.wait(120), scene.play.text[-4000:]
        # Both are what the test is about, and on the disk.
        scene.destination.run(f"podman container exists {BARE} && test ! -e {SESSIONS}/{scene.session}/spec.json && sync")
        fleet.power_off(scene.destination)
        scene.play.go_on()
        assert scene.play.end() != 0
    finally:
        scene.end()
        fleet.power_on(scene.destination)
    refused = scene.destination.ask(f"podman start {BARE}")
    assert f"{BARE} is the container of {bare.name}, and this one is only prepared for a move (session {scene.session})" in refused.stderr, refused
    assert (running(bare), running(scene.destination)) == (BARE, ""), sentences(scene.play.text)
    status, text = fleet.recover()
    assert status == 0, text[-4000:]
    assert scene.destination.ask(f"podman container exists {BARE}").returncode != 0
    assert running(bare) == BARE


@pytest.mark.skipif(os.environ.get("FAULTS", "").isdigit(), reason="the whole matrix has it")
@pytest.mark.parametrize("mode", ["offline", "live"])
@pytest.mark.parametrize("step", ["frozen", "flushed"])
def test_a_twin_does_not_start_in_the_pause(bare: Host, fleet: Fleet, mode: str, step: str) -> None:
    scene = Scene(fleet, bare, fleet.other(bare))
    try:
        scene.session, scene.play = fleet.begin(bare, {"destination": step}, "", handover_workload=BARE, migrate_mode=mode)
        until(f"the move comes to {step}", lambda: scene.destination.paused(scene.session) or scene.play.process.poll() is not None)
        # A restore that is under way has podman's lock on the container. The start waits for it, and so would podman's own list.
        started = scene.destination.ask(f"timeout --signal=KILL 3 podman start {BARE}")
        assert started.returncode != 0, started
        assert scene.destination.ask("pgrep --exact heartbeat").stdout == ""
        scene.go_on()
        assert scene.play.end() == 0, scene.play.text[-4000:]
    finally:
        scene.end()
    assert (running(bare), running(scene.destination)) == ("", BARE)
