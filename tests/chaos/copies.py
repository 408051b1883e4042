# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Snapshots, ways back, deletions, backups and their policy, each struck at a random moment, under a database that is written all the time.

A stroke kills the helper, a module or the play, or takes the host's power away. After it nothing that was acknowledged is missing, and each is to the byte
what it was: its digest was noted when it was taken. The database is as before the deed or as after it, as a whole, or it does not start until the way back is
run again. It is checked by `pg_amcheck` and by the ledger of its client.
"""

from __future__ import annotations

import json
import time
import typing as t
from dataclasses import dataclass
from pathlib import Path

from copies_database import Moment, Writer
from copies_plan import Round, round_of
from deeds import DEEDS, Deed, there
from fleet import CHECKOUT, PCOPY, VOLUME, WORKLOAD, Fleet, Play, play, sentences, until
from scene import Scene
from strokes import Strokes

HERE = Path(__file__).resolve().parent
OUTPUT = CHECKOUT / "tests" / "output" / "strokes"
SNAPSHOTS = "/var/lib/handover/snapshots"
STORE = f"{SNAPSHOTS}/.disks/{WORKLOAD}"
REPOSITORY = "/var/lib/handover/test-strokes"
BACKUPS = f"{REPOSITORY}/{WORKLOAD}"
# Of the database's address.
LAST_NUMBER = "103"
# More are deleted between two rounds: each is read after every round.
MOST = 5
PLAY_SECONDS = 240
# Until one was seen.
USUAL = 12

STRIKES: dict[str, Deed] = {
    **DEEDS,
    # One that is seen from this moment on: many of the helper's calls are over before a stroke at any time would find one. One of them, for the helper has
    # processes of its own that thaw what it has frozen.
    "kill what runs": Deed(
        there(
            "seen() {{ for try in $(seq 300); do found=$(pgrep --exact {target} | shuf --head-count 1); test -z $found || break; sleep 0.01; done; }}; "
            "test {seconds} = 0 || {{ seen; sleep {seconds}; }}; seen; kill -s KILL $found"
        )
    ),
}

LISTED = f"""
for each in {SNAPSHOTS}/{WORKLOAD}/*/snapshot.json; do test ! -e $each || echo snapshot $(basename $(dirname $each)); done
test ! -d {BACKUPS} || {PCOPY} snapshot list --json {BACKUPS}
"""
# What a snapshot of the disks is to the byte, and the files beside them, such as its memory.
LOOK = f"""
look() {{
    rm --force /var/lib/handover/look
    {PCOPY} snapshot restore $2 $3 --volume {VOLUME}=/var/lib/handover/look >/dev/null && echo "$1 $3 $(sha256sum </var/lib/handover/look | cut -c 1-64) $4"
}}
beside() {{ tar --create --sort=name --directory={SNAPSHOTS}/{WORKLOAD} $1 | sha256sum | cut -c 1-64; }}
"""
# A module that was left alone by its play ends by itself, and so does a helper. One that was on its way to the host when the play was killed begins a
# moment later. A pipelined module has no name but its interpreter's.
BUSY = "for look in 1 2 3 4; do pgrep --full '[A]nsiballZ|[p]copy snapshot' || pgrep --exact 'pcopy|criu|python3' && exit 0; sleep 0.5; done; exit 1"
AMCHECK = f"podman exec {WORKLOAD} pg_amcheck --all --install-missing --heapallindexed --host=/tmp --username=postgres"
EVIDENCE = f"""
journalctl --no-pager --since -5min | tail -n 800; ps axf; findmnt; losetup --list; podman ps --all
find {SNAPSHOTS} {REPOSITORY} -ls; cat {STORE}/store.json {BACKUPS}/store.json; ls -la /var/lib/handover/volumes
"""
EMPTY = f"""
for store in {STORE} {BACKUPS}; do test ! -d $store || {PCOPY} snapshot untrack $store; done
rm -rf {SNAPSHOTS}/{WORKLOAD} {STORE} {REPOSITORY} /var/lib/handover/look
rm -f /var/lib/handover/volumes/{VOLUME}.img.handover-held
"""


@dataclass(frozen=True)
class Copy:
    """A snapshot or a backup that was seen: it is what it was then for as long as it is there."""

    kind: str
    name: str
    digest: str
    moments: tuple[Moment, ...]
    memory: bool
    mark: str  # in the container's own layer

    def holds(self, rows: t.Sequence[int]) -> str:
        """What is wrong with these rows; empty if they are of one of its moments."""
        wrong = [moment.holds(rows) for moment in self.moments]
        return "" if "" in wrong else " and ".join(wrong)


class StruckHost(Fleet):
    """The first host of a fleet, whose database the harness itself starts after a boot."""

    runs = False


class Harness:
    """A database with its snapshots and backups."""

    def __init__(self, reports: Path) -> None:
        self.fleet = StruckHost(reports, {})
        self.host = self.fleet.hosts[0]
        self.copies: dict[tuple[str, str], Copy] = {}
        self.usual: dict[str, float] = {}
        self.rounds = 0
        self.mark = ""
        self.writer: Writer

    # The world

    def make(self) -> None:
        self.empty()
        play(str(HERE / "database.yml"))
        self.writer = Writer(".".join([*self.host.address.split(".")[:3], LAST_NUMBER]))
        until("the ledger is written", self.writer.writes)
        for deed, memory in (("snapshot", True), ("snapshot", False), ("backup", False), ("backup", False)):
            self.round(Round(0, deed, memory, 0, ()))

    def empty(self) -> None:
        if self.host.ask("true", 20).returncode != 0:
            self.fleet.power_on(self.host)
        play(str(HERE / "no_database.yml"), remove_workload=WORKLOAD, remove_volume=VOLUME)
        self.host.run(EMPTY)
        self.copies.clear()

    def end(self) -> None:
        self.writer.end()

    # A round

    def round(self, this: Round) -> str:
        """Does the deed under its stroke, and judges what is there. An AssertionError is a finding."""
        self.rounds += 1
        self.mark = f"round-{self.rounds}"
        self.host.run(f"podman exec {WORKLOAD} sh -c 'echo {self.mark} >/mark; sync /mark'")
        before = self.writer.moment()
        playbook, asked, copy = self.asked(this)
        began = time.monotonic()
        scene = Scene(self.fleet, self.host, self.host, play=Play(f"playbooks/{playbook}.yml", asked))
        struck = Strokes(scene, this.strokes, self.usual.get(this.deed, USUAL), STRIKES)
        try:
            status = scene.play.end(PLAY_SECONDS)
            seconds = time.monotonic() - began
        finally:
            struck.end()
            scene.end()
        assert not struck.errors, struck.errors
        told = "" if status == 0 else sentences(scene.play.text)
        assert status == 0 or struck.struck, f"nothing struck it, and it failed: {told}"
        if status == 0:
            self.usual[this.deed] = seconds
        until("the host has an end of it", lambda: self.host.ask(BUSY).returncode == 1, PLAY_SECONDS)
        with self.writer.still():
            came = self.judge(this, copy, status, asked)
            self.look(this, copy, status, before, asked)
        until("the ledger is written again", self.writer.writes, 90)
        return f"{'done' if status == 0 else 'cut off'}, {came}, {seconds:.0f} s{': ' + ' '.join(told.split())[:200] if told else ''}"

    def asked(self, this: Round) -> tuple[str, dict[str, t.Any], Copy | None]:
        """The playbook of the deed, its variables, and the snapshot that it is about."""
        words: dict[str, t.Any] = {"handover_source": self.host.name, "handover_workload": WORKLOAD}
        if this.deed in ("backup", "prune"):
            policy = {"handover_keep": {"last": 2}} if this.deed == "prune" else {}
            return "backup", {**words, "handover_repository": REPOSITORY, **policy}, None
        if this.deed == "snapshot":
            return "snapshot", {**words, "handover_snapshot": f"s{self.rounds}", "handover_memory": this.memory}, None
        copy = self.copies["snapshot", this.of(sorted(name for kind, name in self.copies if kind == "snapshot"))]
        if this.deed == "delete":
            return "snapshot", {**words, "handover_snapshot": copy.name, "handover_state": "absent"}, copy
        return "rollback", {**words, "handover_snapshot": copy.name, "handover_memory": this.memory and copy.memory}, copy

    # What is true afterwards

    def judge(self, this: Round, copy: Copy | None, status: int, asked: dict[str, t.Any]) -> str:
        """The database is one whole: the old one, or the one of the snapshot."""
        back = copy if this.deed == "rollback" else None
        again = ""
        if not self.starts():
            assert back is not None and status != 0, f"{WORKLOAD} does not start: {self.host.ask(f'podman start {WORKLOAD}').stderr}"
            again = "shut, "
            assert (run := Play("playbooks/rollback.yml", asked)).end(PLAY_SECONDS) == 0, f"run again it fails: {sentences(run.text)}"
            assert self.starts(), f"{WORKLOAD} does not start after the way back"
            status = 0
        rows = self.writer.rows()
        old, new = self.writer.moment().holds(rows), back.holds(rows) if back else "nothing is gone back to"
        assert not (old and new), f"it is neither the old one ({old}) nor the new one ({new})"
        assert not (back and status == 0 and new), f"the way back was acknowledged, and it is not the new one: {new}"
        mark = self.host.run(f"podman exec {WORKLOAD} cat /mark").strip()
        right = back.mark if back and not new and asked["handover_memory"] else self.mark
        assert mark == right, f"its layer is of {mark} and its disks of {right}"
        self.checks()
        if back and not new:
            self.writer.has_gone_back(rows)
        return again + ("new" if not new else "as it was")

    def checks(self) -> None:
        """Every table and index of the database."""
        checked = self.host.ask(AMCHECK, 120)
        assert checked.returncode == 0, f"pg_amcheck: {checked.stdout}{checked.stderr}"

    def shown(self, backup: str) -> str:
        """The file of its disk, in its store."""
        shown = json.loads(self.host.run(f"{PCOPY} snapshot show --json {BACKUPS} {backup}"))
        return str(Path(shown["images"][VOLUME]).relative_to(BACKUPS))

    def starts(self) -> bool:
        running = f"test $(podman inspect --format '{{{{.State.Running}}}}' {WORKLOAD}) = true"
        return self.host.ask(f"{running} || timeout 60 podman start {WORKLOAD}", 90).returncode == 0

    def look(self, this: Round, copy: Copy | None, status: int, before: Moment, asked: dict[str, t.Any]) -> None:
        """Nothing that was acknowledged is missing or has another content, and what is new is noted."""
        found = self.digests()
        gone = {key for key in self.copies if key not in found}
        may_go = self.may_go(this, asked, found)
        assert gone <= may_go, f"lost: {sorted(gone - may_go)}, and it has {sorted(found)}"
        assert status != 0 or gone == may_go, f"acknowledged as deleted, and there: {sorted(may_go - gone)}"
        for key in gone:
            del self.copies[key]
        other = {key for key, each in self.copies.items() if found[key] != each.digest}
        assert not other, f"not what they were any more: {sorted(other)}"
        new = set(found) - set(self.copies)
        wanted = {"snapshot": "snapshot", "backup": "backup", "prune": "backup"}.get(this.deed)
        if status == 0 and wanted:
            assert [kind for kind, _name in new] == [wanted], f"acknowledged as taken, and there is {sorted(new)}"
        given = self.writer.given
        moment = Moment(before.acknowledged, before.base, before.since, given)
        # One that the way back takes first is of the line that it leaves. Run again, it may leave the one that it has come to.
        moments = (moment, *(copy.moments if copy and this.deed == "rollback" else ()))
        for kind, name in new:
            memory = this.deed == "snapshot" and this.memory
            self.copies[kind, name] = Copy(kind, name, found[kind, name], moments, memory, f"round-{self.rounds}")
        self.trim()

    def may_go(self, this: Round, asked: dict[str, t.Any], found: t.Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
        """What the deed takes away. The policy keeps the new ones and, up to its number, the latest of those that were there."""
        if this.deed == "delete":
            return {("snapshot", asked["handover_snapshot"])}
        if this.deed != "prune":
            return set()
        known = [key for key in self.copies if key[0] == "backup"]
        new = [key for key in found if key[0] == "backup" and key not in self.copies]
        return set(known[: max(0, len(known) + len(new) - asked["handover_keep"]["last"])])

    def last_backup(self) -> tuple[str, str]:
        return [key for key in self.copies if key[0] == "backup"][-1]

    def digests(self) -> dict[tuple[str, str], str]:
        """All that is listed, each read back whole, and both stores verified."""
        lines = self.host.run(LISTED).splitlines()
        listed = [("snapshot", line.split()[1]) for line in lines if line.startswith("snapshot ")]
        listed += [("backup", each["id"]) for line in lines if line.startswith("{") for each in json.loads(line)["snapshots"]]
        stores = {"snapshot": STORE, "backup": BACKUPS}
        looks = [f"look {kind} {stores[kind]} {name} {f'$(beside {name})' if kind == 'snapshot' else '-'}" for kind, name in listed]
        verified = [f"{{ test ! -d {store} || {PCOPY} snapshot verify {store}; }}" for store in stores.values()]
        said = self.host.ask(LOOK + "\n".join([*looks, "rm --force /var/lib/handover/look", " && ".join(verified)]), 240)
        assert said.returncode == 0, f"a store is not right: {said.stdout}{said.stderr}"
        read = {(words[0], words[1]): " ".join(words[2:]) for words in map(str.split, said.stdout.splitlines()) if words and words[0] in stores}
        assert set(read) == set(listed), f"listed, and cannot be read back: {sorted(set(listed) - set(read))}: {said.stderr}"
        return read

    def trim(self) -> None:
        """The oldest go, but for one with memory: they would be read again and again."""
        snapshots = [copy for copy in self.copies.values() if copy.kind == "snapshot"]
        first = next((copy.name for copy in snapshots if copy.memory), "")
        for copy in [each for each in snapshots if each.name != first][: max(0, len(snapshots) - MOST)]:
            self.host.run(f"rm -rf {SNAPSHOTS}/{WORKLOAD}/{copy.name}; {PCOPY} snapshot delete {STORE} {copy.name}")
            del self.copies["snapshot", copy.name]


def run(harness: Harness, seed: int, count: int) -> list[str]:
    """The rounds from this seed on, and what was found: nothing, if all is well."""
    OUTPUT.mkdir(parents=True, exist_ok=True)
    found: list[str] = []
    for this in map(round_of, range(seed, seed + count)):
        print(f"{time.strftime('%T')} {this.seed}: {this}", flush=True)
        try:
            print(f"         {harness.round(this)}", flush=True)
        except Exception as error:
            found.append(f"make test-snapshot STROKES=1 SEED={this.seed}: {this}: {type(error).__name__}: {error}")
            print(f"FINDING  {found[-1]}", flush=True)
            (OUTPUT / f"{this.seed}.txt").write_text(harness.host.ask(EVIDENCE, 90).stdout, encoding="utf-8")
            harness.end()
            harness.make()
    return found
