#!/usr/bin/env python
# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Moves of random workloads in which random things happen at random times: `make test-chaos SECONDS=600 SEED=n`.

At the end of each move everything is healed, and `recover.yml` runs once if anything is left. Then there is exactly one copy, every line
that was acknowledged is in its ledger, nobody else wrote, and neither host has anything left over. Exits with 1 after a finding.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
import typing as t
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "faults")]

from deeds import DEEDS, RENAMED
from fleet import AT_HOME, CHECKOUT, LEDGER, VOLUME, WORKLOAD, Fleet, Host, play, sentences, until
from plan import Move, Shape, Stroke, moves
from report import Report, judge
from scene import Scene
from watch import Watch

OUTPUT = CHECKOUT / "tests" / "output" / "chaos"
PLAIN_LEDGER = f"/var/lib/containers/storage/volumes/{VOLUME}/_data/ledger"


def at_home(shape: Shape, state: str = "exited") -> dict[str, str]:
    """What the host of a workload has of it; state is a stopped one's."""
    left_out = {"volumes", "mnt", "mounts"} if shape.volume == "plain" else set()
    found = {key: value for key, value in AT_HOME.items() if key not in left_out}
    if not shape.runs:
        found = {**found, "containers": f"{WORKLOAD}={state}"}
        del found["processes"]
    return found


class Strokes:
    """The faults of one move, each in a thread of its own, since their times may overlap."""

    def __init__(self, scene: Scene, move: Move, seconds: float) -> None:
        self.scene, self.over, self.moved_on = scene, threading.Event(), time.monotonic()
        self.struck: list[Stroke] = []
        self.errors: list[str] = []
        self.threads = [threading.Thread(target=self._one, args=(stroke, stroke.at * seconds), daemon=True) for stroke in move.strokes]
        for thread in self.threads:
            thread.start()

    def _one(self, stroke: Stroke, after: float) -> None:
        deed = DEEDS[stroke.kind]
        if self.over.wait(after):
            return  # the move was faster than the one before
        self.struck.append(stroke)
        try:
            deed.strike(self.scene, stroke)
            if deed.brief:
                # Lifted when its time has come, and not with the play: the play may wait for just that.
                time.sleep(stroke.seconds)
                deed.lift(self.scene, stroke)
        except Exception as error:
            self.errors.append(f"{stroke}: {error}")

    def end(self) -> None:
        self.over.set()
        for thread in self.threads:
            thread.join(180)
        for stroke in self.struck:
            if not DEEDS[stroke.kind].brief:
                DEEDS[stroke.kind].lift(self.scene, stroke)


class Harness:
    def __init__(self, reports: Path) -> None:
        self.reports = reports
        self.fleet: Fleet
        self.usual = 60.0

    def make(self, shape: Shape) -> None:
        self.fleet = Fleet(self.reports, at_home(shape), LEDGER if shape.volume == "image" else PLAIN_LEDGER)
        play(str(HERE / "workload.yml"), chaos_volume=shape.volume, chaos_memory=shape.memory, chaos_runs=shape.runs)

    def clear(self) -> None:
        play(str(HERE / "workload.yml"), chaos_volume="none")

    def heal(self, shape: Shape) -> None:
        """What an operator stopped or renamed is as it was again, where its copy is the only one."""
        for host in self.fleet.hosts:
            host.ask(f"! podman container exists {RENAMED} || timeout 20 podman rename {RENAMED} {WORKLOAD}")
        here = [host for host in self.fleet.hosts if host.footprint().get("containers") == f"{WORKLOAD}=exited"]
        if shape.runs and len(here) == 1 and not self.fleet.other(here[0]).footprint():
            here[0].run(f"podman start {WORKLOAD}")

    def move(self, move: Move) -> dict[str, t.Any]:
        """One move, and what came of it. An AssertionError is a finding."""
        fleet, shape = self.fleet, move.shape
        source = fleet.home()
        if shape.runs:
            until("the ledger is written", source.writes)
        scene = Scene(fleet, source, fleet.other(source))
        for stroke in move.strokes:
            DEEDS[stroke.kind].before(scene, stroke)
        known = source.last()
        watch = Watch(fleet, source)
        began = time.monotonic()
        scene.session, scene.play = fleet.begin(source, {}, "", migrate_mode=move.mode)
        struck = Strokes(scene, move, self.usual)
        try:
            status = scene.play.end(900)
            seconds = time.monotonic() - began
            struck.end()
            killed = any(stroke.kind == "kill the play" for stroke in struck.struck)
            if not move.strokes:
                assert status == 0, f"nothing happened, and it failed: {sentences(scene.play.text)}"
                self.usual = seconds
            said = "moved" if status == 0 else sentences(scene.play.text)[-600:]
            self.fit(shape)
            # A play that is dead is no session's owner any more: its session is taken back or brought to its end by name.
            recovered = not fleet.tidy() and self.recover(scene.session if killed else "", said)
            self.heal(shape)
        finally:
            struck.end() if not struck.over.is_set() else None
            scene.end()
            watch.end()
        self.look(source, shape, max(watch.highest - 1, known), watch)
        home = fleet.home()
        for stroke in move.strokes:
            DEEDS[stroke.kind].after(scene, stroke)
        where = "moved" if home.name != source.name else "stayed"
        return {
            "status": status, "said": said, "where": where, "recovered": recovered, "seconds": round(seconds, 1),
            "struck": len(struck.struck), "lifting": struck.errors,
        }  # fmt: skip

    def recover(self, session: str, said: str) -> bool:
        status, text = self.fleet.recover(session)
        assert status == 0, f"the move: {said}\nthe recovery: {sentences(text)}"
        return True

    def fit(self, shape: Shape) -> None:
        """A stopped container that has moved was made there and never ran there, which podman calls created."""
        states = {host.footprint().get("containers") for host in self.fleet.hosts}
        if not shape.runs:
            self.fleet.at_home = at_home(shape, "created" if f"{WORKLOAD}=created" in states else "exited")

    def look(self, source: Host, shape: Shape, acknowledged: int, watch: Watch) -> None:
        fleet = self.fleet
        self.fit(shape)
        marks = [host.footprint() for host in fleet.hosts]
        assert not judge(marks, fleet.at_home), judge(marks, fleet.at_home)
        home = fleet.home()
        if shape.runs:
            until("the ledger is written again", home.writes)
            beats = home.run(f"podman exec {WORKLOAD} heartbeat -gaps /data/ledger").replace(" ", "")
            assert '"missed":0' in beats and '"broken":0' in beats, beats
        assert home.last() >= acknowledged, f"the ledger ends with {home.last()}, and {acknowledged} was acknowledged"
        wrote = [turn.host for turn in watch.turns]
        other = fleet.other(source).name
        assert wrote in ([], [source.name], [other], [source.name, other]), f"both wrote: {watch.turns}"


def run(seed: int, seconds: float, first: int, last: int) -> Report:
    report = Report(seed)
    with tempfile.TemporaryDirectory() as reports:
        harness = Harness(Path(reports))
        end, afresh = time.monotonic() + seconds, True
        for move in moves(seed):
            if time.monotonic() > end or (last and move.number > last):
                break
            if move.number < first and not move.new_shape:
                continue
            if move.number < first - 4:
                continue
            try:
                if move.new_shape or afresh:
                    harness.make(move.shape)
                    afresh = False
                print(f"{time.strftime('%T')} {move.number}: {move.mode} {move.shape}: {'; '.join(map(str, move.strokes)) or 'nothing happens'}", flush=True)
                came = harness.move(move)
                recovered = ", recovered" if came["recovered"] else ""
                print(f"         {came['where']}{recovered}, {came['seconds']} s: {came['said'].splitlines()[-1][:200]}", flush=True)
                report.add(move, came)
            except (AssertionError, OSError, ValueError, TimeoutError) as error:
                report.finding(move, str(error))
                print(f"FINDING  {error}\n         again: make test-chaos SEED={seed} FIRST={move.number} LAST={move.number}", flush=True)
                afresh = True
            report.write(OUTPUT)
        harness.clear()
    return report


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--first", type=int, default=1, help="begin with this move of the seed")
    parser.add_argument("--last", type=int, default=0, help="end with it")
    asked = parser.parse_args()
    OUTPUT.mkdir(parents=True, exist_ok=True)
    report = run(asked.seed, asked.seconds, asked.first, asked.last)
    print(*report.table(), sep="\n")
    return 1 if report.findings else 0


if __name__ == "__main__":
    sys.exit(main())
