# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""recover.yml beside a migrate.yml that comes to its end meanwhile: the recovery takes nothing away of a workload that has moved."""

from __future__ import annotations

import os

import pytest
from fleet import AT_HOME, Fleet, until
from matrix import TASKS, Case
from scene import Scene

EXITED = {**AT_HOME, "containers": "ledger=exited"}
del EXITED["processes"]

# Where the recovery stands still, where the move is then, and how far that comes before the recovery goes on: to its end, or to its cleanup.
TAKES_BACK, HEARD_DONE = "Withdraw | End the sessions on the source", "Cutover | Freeze on the source, resume on the destination"
LATE = {
    "heard that it is done": (HEARD_DONE, "cleanup", ""),
    "takes it back": (TAKES_BACK, "presync", ""),
    "takes it back before it is cleaned up": (TAKES_BACK, "presync", "cleanup"),
}
# A sample of the matrix (FAULTS is a number) has the one that random faults have found.
ASKED = list(LATE)[:1] if os.environ.get("FAULTS", "").isdigit() else list(LATE)


@pytest.mark.parametrize("task, step, until_step", [LATE[name] for name in ASKED], ids=ASKED)
def test_a_recovery_that_is_late_takes_nothing_away(task: str, step: str, until_step: str, fleet: Fleet) -> None:
    """The workload has ended by itself by then: podman removes one that has stopped, and one that runs it would not."""
    source = fleet.home()
    scene = Scene(fleet, source, fleet.other(source))
    recovery = None
    try:
        scene.stand_still(Case("controller killed", step))
        recovery = fleet.begin_recovery(scene.session, task)
        assert recovery.stopped.wait(120), recovery.text
        scene.play.stop_at = TASKS.get(until_step, "")
        scene.play.stopped.clear()
        scene.go_on()
        assert scene.play.stopped.wait(120) if until_step else scene.play.end() == 0, scene.play.text[-4000:]
        scene.destination.run("podman kill ledger && podman wait ledger")
        recovery.go_on()
        said = recovery.end(), recovery.text[-6000:]
        assert scene.destination.footprint()["containers"] == EXITED["containers"], said
        scene.play.go_on()
        assert scene.play.end() == 0, scene.play.text[-4000:]
    finally:
        scene.end()
        if recovery:
            recovery.kill()
    assert (scene.destination.footprint(), source.footprint()) == (EXITED, {}), said
    assert said[0] == 0 or until_step, said
    scene.destination.run("podman start ledger")
    until("the ledger is written again", scene.destination.writes)
