# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""migrate.yml once more, after the controller was killed: the move goes on where it was, or begins anew, and the workload moves once."""

from __future__ import annotations

import os

import pytest
from fleet import AT_HOME, Fleet, sentences, until
from matrix import Case
from scene import Scene

# Where the controller was killed, and what the second run says of the first: nothing, where it takes back what is left and begins anew.
SAID = {
    "prepare": "",
    "presync": "goes on at the presync",
    "released": "goes on at the cutover",
    "settle": "goes on at the cutover",
    "cleanup": "goes on at the cutover",
}
# A sample of the matrix (FAULTS is a number) has the one of them in which nobody but the two hosts knows where the workload runs.
ASKED = ["released"] if os.environ.get("FAULTS", "").isdigit() else list(SAID)


@pytest.mark.parametrize("step", ASKED)
def test_a_second_run_ends_the_move_of_the_first(step: str, fleet: Fleet) -> None:
    source = fleet.home()
    scene = Scene(fleet, source, fleet.other(source))
    try:
        scene.stand_still(Case("controller killed", step))
        acknowledged = source.last() - 1
        scene.end()
        scene.go_on()
        _session, again = fleet.begin(source, {}, "")
        assert again.end() == 0, again.text[-4000:]
    finally:
        scene.end()
    assert (f"session {scene.session} began {SAID[step]}" in again.text) if SAID[step] else ("goes on at the" not in again.text), again.text
    assert scene.destination.footprint() == AT_HOME
    assert source.footprint() == {}
    until("the ledger is written again", scene.destination.writes)
    assert scene.destination.last() >= acknowledged


@pytest.mark.skipif(os.environ.get("FAULTS", "").isdigit(), reason="the whole matrix has it")
def test_a_twin_that_was_removed_can_be_made_again(fleet: Fleet) -> None:
    source = fleet.home()
    scene = Scene(fleet, source, fleet.other(source))
    try:
        scene.stand_still(Case("controller killed", "settle"))
        scene.destination.run("podman rm --force --time 0 ledger")
        scene.go_on()
        assert scene.play.end() != 0
        assert "was removed there since" in sentences(scene.play.text), scene.play.text[-4000:]
    finally:
        scene.end()
    acknowledged = scene.destination.last()
    assert source.footprint()["containers"] == "ledger=exited"
    command = source.run("podman inspect ledger --format '{{join .Config.CreateCommand \" \"}}'").strip()
    scene.destination.run(f"{command} && podman start ledger")
    status, text = fleet.recover()
    assert status == 0, text[-4000:]
    assert scene.destination.footprint() == AT_HOME
    assert source.footprint() == {}
    until("the ledger is written again", scene.destination.writes)
    assert scene.destination.last() > acknowledged
