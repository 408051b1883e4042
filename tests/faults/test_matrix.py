# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""After every fault, at every step: one copy runs, the ledger has every line that was acknowledged, and nothing is left over.

FAULTS=all, or a number (with FAULTS_SEED), or words that a case's name contains.
"""

from __future__ import annotations

import os
import threading
import time
import typing as t

import pytest
from fleet import AT_HOME, LEDGER, WORKLOAD, Fleet, sentences, until
from matrix import Case, asked
from scene import Scene
from strikes import TABLE


class Watch(threading.Thread):
    """Looks all the time whether the ledger grows on both hosts."""

    def __init__(self, fleet: Fleet) -> None:
        super().__init__(daemon=True)
        self.fleet, self.over, self.twice = fleet, threading.Event(), 0

    def run(self) -> None:
        while not self.over.is_set():
            try:
                before = [host.last() for host in self.fleet.hosts]
                time.sleep(0.2)
                after = [host.last() for host in self.fleet.hosts]
            except Exception:  # noqa: BLE001 a host without power says nothing
                time.sleep(0.5)
                continue
            # One of them may have stopped and the other begun in between: twice in a row is both.
            self.twice = self.twice + 1 if all(b > a > 0 for a, b in zip(before, after)) else 0
            assert self.twice < 3, "the ledger grows on both hosts"


@pytest.mark.parametrize("case", asked(os.environ), ids=lambda case: case.name)
def test_one_copy_and_every_line(case: Case, fleet: Fleet, record: t.Callable[[str, str], None]) -> None:
    source = fleet.home()
    until("the ledger is written", source.writes)
    scene = Scene(fleet, source, fleet.other(source))
    TABLE[case.fault].before(scene)
    watch = Watch(fleet)
    try:
        scene.stand_still(case)
        watch.start()
        # The line before the last one was acknowledged for certain.
        acknowledged = max(host.last() for host in fleet.hosts) - 1
        TABLE[case.fault].strike(scene)
        scene.go_on()
        status = scene.play.end() if case.fault != "controller killed" else -9
        TABLE[case.fault].lift(scene)
        after_the_play = "moved" if status == 0 else "stopped: " + sentences(scene.play.text)
        # The helpers of a dead controller are at work, and go on until they are called off, or their own limit ends them.
        recovered, text = fleet.recover(scene.session if case.fault == "controller killed" else "")
        assert recovered == 0, f"{after_the_play}\n{text[-4000:]}"
    finally:
        scene.end()
        TABLE[case.fault].lift(scene)
        TABLE[case.fault].after(scene)
        watch.over.set()
    home = fleet.home()  # exactly one
    until("the ledger is written again", home.writes)
    beats = home.run(f"podman exec {WORKLOAD} heartbeat -gaps /data/ledger")
    assert '"missed":0' in beats.replace(" ", "") and '"broken":0' in beats.replace(" ", ""), beats
    assert home.last() >= acknowledged, f"{LEDGER} ends with {home.last()}, and {acknowledged} was acknowledged"
    assert home.footprint() == AT_HOME
    assert fleet.other(home).footprint() == {}
    assert "No move is left" in fleet.recover()[1], "recover.yml found something to do a second time"
    assert watch.twice < 3, "the ledger grew on both hosts"
    record("moved" if home.name != source.name else "stayed", after_the_play)
