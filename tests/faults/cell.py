# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One cell of the matrix, on the containers of any engine: the move, its fault, the recovery, and the judgement."""

from __future__ import annotations

import pytest
from fleet import Fleet, sentences, until
from matrix import Case
from scene import Scene
from strikes import Fault
from watch import Watch


def one_copy_and_every_line(case: Case, fleet: Fleet, fault: Fault) -> tuple[str, str]:
    """Where the workload runs afterwards, as the table says it, and what came of the play."""
    if not fleet.tidy():
        pytest.exit(f"what an earlier case left has to be looked at first: {[host.footprint() for host in fleet.hosts]}", returncode=1)
    source, engine, lifted = fleet.home(), fleet.engine, False
    until("the ledger is written", source.writes)
    scene = Scene(fleet, source, fleet.other(source))
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
        beats = home.run(engine.gaps)
        assert '"missed":0' in beats.replace(" ", "") and '"broken":0' in beats.replace(" ", ""), beats
        # Whoever wrote a line was the one copy; the line before the last one was acknowledged for certain.
        acknowledged = watch.highest - 1
        assert home.last() >= acknowledged, f"{home.ledger} ends with {home.last()}, and {acknowledged} was acknowledged"
        assert home.footprint() == fleet.at_home
        assert fleet.other(home).footprint() == {}
        home.run(engine.whole)
        wrote = [turn.host for turn in watch.turns]
        assert wrote in ([source.name], [source.name, fleet.other(source).name]), f"both wrote: {watch.turns}"
        where = "moved" if home.name != source.name else "stayed"
        return f"{where}, recovered" if recovered else where, after_the_play
    finally:
        watch.end()
        scene.end()
        if not lifted:
            fault.lift(scene)
        fault.after(scene)
