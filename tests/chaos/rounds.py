#!/usr/bin/env python
# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Moves of random workloads in which random things happen at random times: `make test-chaos SECONDS=600 SEED=n`.

Each round has a seed of its own, the first one SEED, and `SEED=n ROUNDS=1` is that round again. At the end of a round everything is healed,
and `recover.yml` runs once if anything is left. Then there is exactly one copy, every line that was acknowledged is in its ledger once,
nobody else wrote, the client's connection lives, and neither host has anything left over. Exits with 1 after a finding.
"""

from __future__ import annotations

import argparse
import itertools
import re
import signal
import sys
import tempfile
import time
import typing as t
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "faults")]

from client import Client
from deeds import DEEDS, RENAMED
from fleet import CHECKOUT, MOUNTED, VOLUME, WORKLOAD, Fleet, play, sentences, until
from marks import EMPTY, EVIDENCE, MARKS
from plan import KINDS, Move, Shape, round_of
from report import Report, judge, unwritten
from scene import Scene
from strokes import Strokes
from watch import Watch

OUTPUT = CHECKOUT / "tests" / "output" / "chaos"
# Of the workload's address.
LAST_NUMBER = "102"
# A volume is where podman says; an image volume is elsewhere as well, and podman unmounts its own place when the container stops.
ELSEWHERE = f"sed 's#/var/lib/containers/storage/volumes/{VOLUME}/_data#{MOUNTED}#g'"
KEPT = f"sha256sum $(podman inspect ledger --format '{{{{range .Mounts}}}}{{{{.Source}}}}/kept {{{{end}}}}' | {ELSEWHERE}) | cut -d' ' -f1 | sort"
IS_AT = f"""podman inspect ledger --format '{{{{range .Mounts}}}}{{{{if eq .Destination "/data"}}}}{{{{.Source}}}}{{{{end}}}}{{{{end}}}}' | {ELSEWHERE}"""
STOPPED = re.compile(rf"{WORKLOAD} was resumed on (\S+) and does not run there any more")
# The first line is the first, and none is missing, there twice or torn.
WRONG_LINE = "awk '$1 != NR || NF != 2 {{ print \"line \" NR \" is \" $0; exit }}' {ledger}"


class ChaosFleet(Fleet):
    """Knows besides what the workload is that it has."""

    def __init__(self, reports: Path, ledger: str, at_home: t.Mapping[str, str], shape: Shape) -> None:
        super().__init__(reports, at_home, ledger, MARKS)
        self.shape, self.runs, self.mode = shape, shape.runs, "live" if shape.runs else "offline"


class Harness:
    def __init__(self, reports: Path) -> None:
        self.reports = reports
        self.fleet: ChaosFleet
        self.usual = 25.0
        self.kept = ""

    def empty(self, power: bool) -> None:
        """Both hosts as they were before any workload, whatever they have."""
        bare = Fleet(self.reports, {}, "/nowhere", MARKS)
        for host in bare.hosts:
            if power:
                bare.power_off(host)
            if power or host.ask("true", 20).returncode != 0:
                bare.power_on(host)
            host.ask(EMPTY, 240)
        assert not any(host.footprint() for host in bare.hosts), [host.footprint() for host in bare.hosts]

    def make(self, shape: Shape) -> None:
        play(
            str(HERE / "workload.yml"), chaos_volumes=shape.volumes, chaos_memory=shape.memory, chaos_runs=shape.runs, chaos_health=shape.health
        )
        bare = Fleet(self.reports, {}, "/nowhere", MARKS)
        host = bare.hosts[0]
        ledger = host.run(IS_AT).strip()
        self.kept = host.run(KEPT)
        self.fleet = ChaosFleet(self.reports, f"{ledger}/ledger", host.footprint(), shape)
        assert self.fleet.tidy(), [each.footprint() for each in self.fleet.hosts]

    def heal(self) -> None:
        """What an operator stopped or renamed is as it was again, where its copy is the only one."""
        hosts = self.fleet.hosts
        for host in hosts:
            host.ask(f"! podman container exists {RENAMED} || timeout 20 podman rename {RENAMED} {WORKLOAD}")
        here = [host for host in hosts if host.footprint().get("containers") == f"{WORKLOAD}=exited"]
        if self.fleet.runs and len(here) == 1 and "containers" not in self.fleet.other(here[0]).footprint():
            here[0].run(f"podman start {WORKLOAD}")

    def move(self, move: Move) -> dict[str, t.Any]:
        """One move, and what came of it. An AssertionError is a finding."""
        fleet = self.fleet
        fleet.mode = move.mode
        source = fleet.home()
        scene = Scene(fleet, source, fleet.other(source))
        client = None
        if fleet.runs:
            until("the ledger is written", source.writes)
            client = Client(".".join([*source.address.split(".")[:3], LAST_NUMBER]))
            until("the client is answered", client.answers)
        known = source.last()
        for stroke in move.strokes:
            DEEDS[stroke.kind].before(scene, stroke)
        watch = Watch(fleet, source)
        began = time.monotonic()
        scene.session, scene.play = fleet.begin(source, {}, "", migrate_mode=move.mode)
        struck = Strokes(scene, move.strokes, self.usual)
        try:
            status = scene.play.end(900)
            seconds = time.monotonic() - began
            struck.end()
            said = "moved" if status == 0 else sentences(scene.play.text)[-600:]
            if not move.strokes:
                assert status == 0, f"nothing happened, and it failed: {said}"
                self.usual = seconds
            killed = any(KINDS[stroke.kind].ends_play for stroke in struck.struck)
            # A play that is dead is no session's owner any more: its session is taken back or brought to its end by name.
            ended = any(KINDS[stroke.kind].ends_workload for stroke in struck.struck)
            recovered = not fleet.tidy() and self.recover(scene.session if killed else "", said, ended)
            self.heal()
            if client and move.keeps_clients:
                # TCP asks less and less often while nobody answers, at worst every two minutes.
                until(f"the client is answered over its connection again (the move: {said})", lambda: client.broken or client.answers(), 150)
                assert not client.broken, f"the client's connection is gone: {client.broken} (the move: {said})"
            watch.end()
            self.look(max(watch.highest - 1, known, client.acknowledged if client else 0), watch, move.power_cuts, said)
            home = fleet.home()
            for stroke in move.strokes:
                DEEDS[stroke.kind].after(scene, stroke)
        finally:
            if not struck.over.is_set():
                struck.end()
            if client:
                client.end()
            scene.end()
            watch.end()
        where = "moved" if home.name != source.name else "stayed"
        return {
            "status": status, "said": said, "where": where, "recovered": recovered, "seconds": round(seconds, 1),
            "struck": len(struck.struck), "lifting": struck.errors,
        }  # fmt: skip

    def recover(self, session: str, said: str, ended: bool) -> bool:
        """Brings the move to its end. One whose workload an operator has ended on the destination says that it is to be started there first."""
        status, text = (1, said) if ended and STOPPED.search(said) else self.fleet.recover(session)
        stopped = STOPPED.search(sentences(text)) if ended and status else None
        if stopped:
            next(host for host in self.fleet.hosts if host.name == stopped[1]).run(f"podman start {WORKLOAD}")
            status, text = self.fleet.recover(session)
        assert status == 0, f"the move: {said}\nthe recovery: {sentences(text)}"
        return True

    def look(self, acknowledged: int, watch: Watch, power_cuts: int, said: str) -> None:
        fleet = self.fleet
        marks = [host.footprint() for host in fleet.hosts]
        assert not judge(marks, fleet.at_home), f"{judge(marks, fleet.at_home)} (the move: {said})"
        home = fleet.home()
        if fleet.runs:
            until("the ledger is written again", home.writes)
        assert home.last() >= acknowledged, f"the ledger ends with {home.last()}, and {acknowledged} was acknowledged"
        wrong = home.run(WRONG_LINE.format(ledger=home.ledger))
        assert not wrong or fleet.runs and int(wrong.split()[1]) > acknowledged, wrong
        kept = home.run(KEPT)
        assert kept == self.kept, f"the files in the volumes are {kept}, and were {self.kept}"
        lost = unwritten(home.run(f"cat {home.ledger}"), watch, acknowledged)
        # The last line before a loss of power may have been seen and never have come to the disk.
        assert len(lost) <= power_cuts, f"written where nobody has it any more: two were at it: {lost[:5]}"

    def evidence(self, seed: int) -> None:
        for host in Fleet(self.reports).hosts:
            try:
                (OUTPUT / f"{seed}-{host.name}.txt").write_text(host.ask(EVIDENCE, 90).stdout, encoding="utf-8")
            except (OSError, TimeoutError) as error:
                print(f"         {host.name} tells nothing: {error}", flush=True)


def chosen(seed: int, rounds: int, only: t.Collection[str]) -> t.Iterator[Move]:
    """The rounds from this seed on in which one of these faults comes; every round if none is named."""
    moves = map(round_of, itertools.count(seed))
    return itertools.islice((move for move in moves if not only or {stroke.kind for stroke in move.strokes} & set(only)), rounds)


def run(seed: int, seconds: float, rounds: int, prepared: bool = False, only: t.Collection[str] = ()) -> Report:
    OUTPUT.mkdir(parents=True, exist_ok=True)
    report = Report(seed)
    # A shell has its background jobs ignore it, and the plays would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with tempfile.TemporaryDirectory() as reports:
        harness, shape = Harness(Path(reports)), None
        if not prepared:
            play(str(HERE / "prepare.yml"))
        harness.empty(power=False)
        end = time.monotonic() + seconds
        for move in chosen(seed, rounds, only):
            if time.monotonic() > end:
                break
            number = move.seed
            try:
                if shape != move.shape:
                    if shape:
                        harness.empty(power=False)
                    harness.make(move.shape)
                    # Nothing happens in the first one: it tells how long a move takes here.
                    if not report.moves and not report.findings:
                        harness.move(Move(0, move.shape, move.mode, ()))
                    shape = move.shape
                print(f"{time.strftime('%T')} {number}: {move.mode}, {move.shape}: {'; '.join(map(str, move.strokes))}", flush=True)
                came = harness.move(move)
                recovered, said = ", recovered" if came["recovered"] else "", came["said"].rpartition("\n")[2]
                print(f"         {came['where']}{recovered}, {came['seconds']} s, struck {came['struck']}: {said[:200]}", flush=True)
                report.add(move, came)
            except Exception as error:
                report.finding(move, f"{type(error).__name__}: {error}")
                print(f"FINDING  {type(error).__name__}: {error}\n         again: make test-chaos SEED={number} ROUNDS=1", flush=True)
                report.write(OUTPUT)  # what it left may be more than the harness can take away
                harness.evidence(number)
                harness.empty(power=True)
                shape = None
            report.write(OUTPUT)
        harness.empty(power=False)
    return report


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clean", action="store_true", help="only take away what a run that was killed has left")
    parser.add_argument("--seed", type=int, default=1, help="of the first round; the next one has the next")
    parser.add_argument("--seconds", type=float, default=600, help="begin no round later")
    parser.add_argument("--rounds", type=int, default=1_000_000, help="make so many at most")
    parser.add_argument("--prepared", action="store_true", help="the hosts have this tree's helper from an earlier run")
    parser.add_argument("--only", action="append", default=[], choices=sorted(KINDS), metavar="FAULT", help="rounds with this fault")
    asked = parser.parse_args()
    # Its plays end with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if asked.clean:
        with tempfile.TemporaryDirectory() as reports:
            Harness(Path(reports)).empty(power=False)
        return 0
    report = run(asked.seed, asked.seconds, asked.rounds, asked.prepared, asked.only)
    print(*report.table(), sep="\n")
    return 1 if report.findings else 0


if __name__ == "__main__":
    sys.exit(main())
