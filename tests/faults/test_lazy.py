# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What may happen while memory follows a workload that runs already: it never runs twice, and loses no more than docs/cutover.md says.

FAULTS=all runs every case, FAULTS="memory follows" these alone; of a sample of the matrix (FAULTS is a number) it is the one that has to be decided about.
"""

from __future__ import annotations

import json
import os
import re
import typing as t
from dataclasses import dataclass

import pytest
from fleet import AT_HOME, PCOPY, SESSIONS, WORKLOAD, Fleet, Host, play, sentences, until
from matrix import Case
from scene import Scene
from strikes import TABLE
from watch import Watch

# Its memory needs half a minute over such a link, if nothing of it has gone ahead.
RATE = "6mbit"


@dataclass(frozen=True)
class Following:
    """A fault, what the play says of it if it fails, and how the move ends."""

    fault: str
    says: str
    ends: t.Callable[[Scene], Host]


def by_itself(scene: Scene) -> Host:
    """Whatever is left comes, and the move is brought to its end."""
    shape(scene.fleet, "")
    until("all of its memory is there", lambda: fetch(scene).get("fetched", 0) == fetch(scene).get("total") or not at_work(scene.destination, scene))
    if not scene.fleet.tidy():
        status, text = scene.fleet.recover(scene.session)
        assert status == 0, text[-4000:]
    return scene.destination


def back_to_the_freeze(scene: Scene) -> Host:
    """A person decides for the source, which goes on without what was done since."""
    nothing_starts(scene)
    for host in (scene.destination, scene.source):
        host.run(f"{PCOPY} session resolve {SESSIONS}/{scene.session} --outcome fenced")
    status, text = scene.fleet.recover()
    assert status == 0, text[-4000:]
    return scene.source


def anew(scene: Scene) -> Host:
    """What it had in memory is lost, and it is started where its volumes are."""
    assert not scene.destination.writes()
    nothing_starts(scene, scene.source)
    scene.destination.run(f"podman kill {WORKLOAD}")
    until("its end is noticed", lambda: shown(scene.destination, scene).get("state") != "resumed")
    scene.destination.run(f"podman start {WORKLOAD}")
    status, text = scene.fleet.recover()
    assert status == 0, text[-4000:]
    return scene.destination


CASES = {
    "controller killed": Following("controller killed", "", by_itself),
    "sender killed": Following("sender killed", "", by_itself),
    "network cut": Following("network cut, later healed", "a part of its memory is on", by_itself),
    "receiver killed": Following("receiver killed", "", back_to_the_freeze),
    "destination loses power": Following("destination loses power", "", back_to_the_freeze),
    "source loses power": Following("source loses power", "", anew),
}
WORD, SAMPLE = os.environ.get("FAULTS", "all"), ["destination loses power"]


def asked() -> list[str]:
    if WORD.isdigit():
        return SAMPLE
    return [case for case in CASES if WORD == "all" or WORD in f"{case} while memory follows"]


@pytest.mark.parametrize("case", asked())
def test_while_memory_follows(case: str, fleet: Fleet) -> None:
    source = fleet.home()
    until("the ledger is written", source.writes)
    scene, following = Scene(fleet, source, fleet.other(source)), CASES[case]
    fault, lifted = TABLE[following.fault], False
    watch = Watch(fleet, source)
    try:
        scene.stand_still(Case("destination loses power", "released"), handover_lazy_pages=True, migrate_precopy=False)
        frozen_at = source.last() - 1
        shape(fleet, RATE)
        scene.go_on()
        until("its memory follows", lambda: follows(scene) or scene.play.process.poll() is not None)
        assert follows(scene), scene.play.text[-4000:]
        fault.strike(scene)
        status = scene.play.end() if case != "controller killed" else -9
        assert status == 0 or not following.says or re.search(following.says, sentences(scene.play.text)), scene.play.text[-4000:]
        fault.lift(scene)
        lifted = True
        home = following.ends(scene)
        watch.end()
        until("the ledger is written again", home.writes)
        # What was acknowledged after the freeze went with the destination's memory only where the source went on.
        acknowledged = frozen_at if home is source else watch.highest - 1
        assert home.last() >= acknowledged, f"the ledger ends with {home.last()}, and {acknowledged} was acknowledged"
        assert home.footprint() == AT_HOME
        assert fleet.other(home).footprint() == {}
        print(f"{case}: {'stayed' if home is source else 'moved'}; the play {'succeeded' if status == 0 else 'said: ' + sentences(scene.play.text)}")
    finally:
        watch.end()
        scene.end()
        if not lifted:
            fault.lift(scene)
        shape(fleet, "")


def shape(fleet: Fleet, rate: str) -> None:
    play("lab/shape.yml", lab_limits={"rate": rate} if rate else {})


def shown(host: Host, scene: Scene) -> dict[str, t.Any]:
    """Where the session stands on that host; nothing, if it has none there."""
    said = host.ask(f"{PCOPY} session show {SESSIONS}/{scene.session}").stdout
    return json.loads(said) if said.strip() else {}


def fetch(scene: Scene) -> dict[str, int]:
    return shown(scene.destination, scene).get("fetch") or {}


def follows(scene: Scene) -> bool:
    """Whether some of its memory has come, and not all."""
    progress = fetch(scene)
    return 0 < progress.get("fetched", 0) < progress.get("total", 0)


def at_work(host: Host, scene: Scene) -> bool:
    return bool(shown(host, scene).get("running"))


def nothing_starts(scene: Scene, *hosts: Host) -> None:
    """Neither by itself nor by somebody who does not know, until it is decided."""
    for host in hosts or (scene.source, scene.destination):
        # On a source that still holds the tasks podman waits for its own checkpoint.
        host.ask(f"timeout 5 podman start {WORKLOAD}")
        assert not host.writes(), f"it runs on {host.name}"
