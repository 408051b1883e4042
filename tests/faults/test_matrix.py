# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""After every fault, at every step: one copy runs, the ledger has every line that was acknowledged, and nothing is left over.

FAULTS=all, or a number (with FAULTS_SEED), or words that a case's name contains.
"""

from __future__ import annotations

import os
import typing as t

import pytest
from fleet import AT_HOME, LEDGER, WORKLOAD, Fleet, sentences, until
from matrix import Case, asked
from scene import Scene
from strikes import TABLE
from watch import Watch


@pytest.mark.parametrize("case", asked(os.environ), ids=lambda case: case.name)
def test_one_copy_and_every_line(case: Case, fleet: Fleet, record: t.Callable[[str, str], None]) -> None:
    if not fleet.tidy():
        pytest.exit(f"what an earlier case left has to be looked at first: {[host.footprint() for host in fleet.hosts]}", returncode=1)
    source = fleet.home()
    until("the ledger is written", source.writes)
    scene = Scene(fleet, source, fleet.other(source))
    fault, lifted = TABLE[case.fault], False
    fault.before(scene)
    watch = Watch(fleet, source)
    try:
        scene.stand_still(case, **case.variables)
        fault.strike(scene)
        scene.go_on()
        status = scene.play.end() if case.fault != "controller killed" else -9
        fault.lift(scene)
        lifted = True
        after_the_play = "moved" if status == 0 else "stopped: " + sentences(scene.play.text)
        recovered = not fleet.tidy()
        if recovered:
            # The helpers of a dead controller are at work, and go on until they are called off, or their own limit ends them.
            status, text = fleet.recover(scene.session if case.fault == "controller killed" else "")
            assert status == 0, f"{after_the_play}\n{text[-4000:]}"
        watch.end()
        home = fleet.home()  # exactly one
        until("the ledger is written again", home.writes)
        beats = home.run(f"podman exec {WORKLOAD} heartbeat -gaps /data/ledger")
        assert '"missed":0' in beats.replace(" ", "") and '"broken":0' in beats.replace(" ", ""), beats
        # Whoever wrote a line was the one copy; the line before the last one was acknowledged for certain.
        acknowledged = watch.highest - 1
        assert home.last() >= acknowledged, f"{LEDGER} ends with {home.last()}, and {acknowledged} was acknowledged"
        assert home.footprint() == AT_HOME
        assert fleet.other(home).footprint() == {}
        wrote = [turn.host for turn in watch.turns]
        assert wrote in ([source.name], [source.name, fleet.other(source).name]), f"both wrote: {watch.turns}"
        where = "moved" if home.name != source.name else "stayed"
        record(f"{where}, recovered" if recovered else where, after_the_play)
    finally:
        watch.end()
        scene.end()
        if not lifted:
            fault.lift(scene)
        fault.after(scene)


def test_there_is_nothing_left_to_recover(fleet: Fleet) -> None:
    """Last: each case has seen that its own recover.yml left nothing that a second one could find."""
    status, text = fleet.recover()
    assert status == 0, text[-4000:]
    assert "No move is left" in text, text[-4000:]
