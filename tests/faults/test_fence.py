# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A destination that may run the workload and is gone: only a fence that succeeded lets the source go on."""

from __future__ import annotations

from fleet import AT_HOME, Fleet, sentences, until
from matrix import Case
from scene import Scene


def test_only_a_fence_that_succeeded_lets_the_source_go_on(fleet: Fleet) -> None:
    source = fleet.home()
    scene = Scene(fleet, source, fleet.other(source))
    gone = scene.destination
    try:
        scene.stand_still(Case("destination loses power", "released"))
        acknowledged = source.last() - 1
        fleet.power_off(gone)
        scene.go_on()
        assert scene.play.end() != 0
        assert f"{gone.name} cannot be reached, and ledger may run there: it stays frozen on {source.name}" in sentences(scene.play.text)
        for fence, said in (([], "it stays frozen on"), (["false"], "could not be fenced")):
            status, text = fleet.recover(handover_fence=fence)
            assert status != 0
            assert said in sentences(text)
            assert not source.writes()
        status, text = fleet.recover(handover_fence=["test", "{host}", "=", gone.name])
        assert status == 0, text[-4000:]
        until("the ledger is written again", source.writes)
    finally:
        scene.end()
        fleet.power_on(gone)
    status, text = fleet.recover()
    assert status == 0, text[-4000:]
    assert source.last() >= acknowledged
    assert source.footprint() == AT_HOME
    assert gone.footprint() == {}
