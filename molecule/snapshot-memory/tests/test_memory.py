# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A backup with memory, on another host; and the way back to it, on the host of the container and on the other one. And a rollback on another host, there
and back again.

The container counts in its memory, and writes a ledger on its image volume: each line has the count and a word that only this process knows. A process
that was started anew would have another word, and disks of another moment another count.
"""

from __future__ import annotations

import os
import typing as t
from pathlib import Path

import pytest
from hosts import Hosts, said

NAME = "counter1"
VOLUME = f"{NAME}data"
REPOSITORY = "/var/lib/handover/test-memory"
KEPT = "/var/lib/handover/kept"
PCOPY = "/usr/local/libexec/handover/pcopy"
SNAPSHOTS = "/var/lib/handover/snapshots"
PLACE = f"/var/lib/handover/mnt/{VOLUME}"
COUNTS = (
    "word=$(cat /proc/sys/kernel/random/uuid); rm -f /data/ledger; echo $word > /dev/shm/word; "
    "n=0; while :; do n=$((n+1)); echo $n $word >> /data/ledger; sleep 0.01; done"
)


class Counter:
    """The container, on the first host, and a second host."""

    def __init__(self, fleet: Hosts) -> None:
        self.fleet = fleet
        self.names = fleet.names[:2]
        self.first, self.second = (fleet.hosts[name] for name in self.names)

    def volume(self, host: str, state: str) -> None:
        how = {"size": "64M"} if state == "mounted" else {"force": True}
        self.fleet.module(host, "image_volume", name=VOLUME, state=state, podman_volume=VOLUME, **how)

    def play(self, playbook: str, name: str, **more: t.Any) -> tuple[int, str]:
        return self.fleet.play(playbook, handover_source=name, handover_workload=NAME, **more)

    def done(self, playbook: str, name: str, **more: t.Any) -> str:
        status, text = self.play(playbook, name, **more)
        assert status == 0, text[-4000:]
        return text

    def ledger(self, host: t.Any) -> tuple[int, str]:
        """The count, and the one word; each count is there once."""
        lines = host.check_output(f"cat {PLACE}/ledger").split("\n")
        assert [line.split()[0] for line in lines] == [str(number) for number in range(1, len(lines) + 1)]
        (word,) = {line.split()[1] for line in lines}
        return len(lines), word

    def until(self, host: t.Any, count: int) -> None:
        host.check_output(f"for try in $(seq 300); do [ $(wc -l <{PLACE}/ledger) -gt {count} ] && exit; sleep 0.1; done; exit 1")

    def lose(self, host: str) -> None:
        self.fleet.hosts[host].run(f"podman rm --force --time 0 {NAME}; podman volume rm {VOLUME}")
        self.volume(host, "absent")


@pytest.fixture(scope="module")
def counter() -> t.Iterator[Counter]:
    made = Counter(Hosts(Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "reports"))
    try:
        made.volume(made.names[0], "mounted")
        made.first.check_output(
            f"podman run --detach --name {NAME} --network none --label livefleet.handover.backup.memory=true --volume {VOLUME}:/data "
            f"localhost/handover/tools:lab sh -c '{COUNTS}'"
        )
        yield made
    finally:
        for name in made.names:
            made.lose(name)
            host = made.fleet.hosts[name]
            host.run(f"{PCOPY} snapshot untrack {REPOSITORY}/{NAME}; {PCOPY} snapshot untrack {made.names[1]}:{REPOSITORY}/{NAME}")
            host.run(f"rm --recursive --force {REPOSITORY} {KEPT} {SNAPSHOTS}/{NAME} {SNAPSHOTS}/.disks/{NAME} {SNAPSHOTS}/.brought/{NAME}")


def test_it_runs_on_from_its_backup_here_and_there(counter: Counter) -> None:
    there = f"{counter.names[1]}:{REPOSITORY}"
    hosts = {"handover_memory": True, "handover_hosts": ",".join(counter.names)}
    counter.until(counter.first, 100)
    before, word = counter.ledger(counter.first)
    process = counter.first.check_output(f"podman inspect --format '{{{{.State.Pid}}}}' {NAME}")
    counter.done("backup", counter.names[0], handover_repository=there)
    after, again = counter.ledger(counter.first)
    assert again == word, "it runs on after the backup"
    assert counter.first.check_output(f"podman inspect --format '{{{{.State.Pid}}}}' {NAME}") == process, "and did not end for it"
    text = counter.done("backup_list", counter.names[1], handover_repository=REPOSITORY, handover_verify=True, handover_report_dir=str(counter.fleet.reports))
    assert "  True  " in text

    counter.until(counter.first, after + 1000)
    counter.done("backup_restore", counter.names[0], handover_repository=there, **hosts)
    counter.until(counter.first, before)
    now, again = counter.ledger(counter.first)
    assert (again, counter.first.check_output(f"podman exec {NAME} cat /dev/shm/word")) == (word, word), "the process is the same"
    assert before <= now < after + 1000, "from the moment of the backup"

    counter.lose(counter.names[0])
    counter.done("backup_restore", counter.names[1], handover_repository=REPOSITORY, **hosts)
    counter.until(counter.second, before)
    moved, again = counter.ledger(counter.second)
    assert (again, counter.second.check_output(f"podman exec {NAME} cat /dev/shm/word")) == (word, word), "and on the other host"
    counter.until(counter.second, moved)

    # A backup without: the disks come back, and nothing is touched where its memory is asked for.
    counter.done("backup", counter.names[1], handover_repository=REPOSITORY, handover_memory=False)
    status, text = counter.play("backup_restore", counter.names[1], handover_repository=REPOSITORY, **hosts)
    assert status != 0 and "has no memory: restore the disks alone" in " ".join(text.split())
    assert counter.ledger(counter.second)[1] == word


def test_a_move_keeps_the_disks_as_they_were(counter: Counter) -> None:
    """An upgrade after a move fails: the way back is on the host that the container has left, and leads to the one where it is now."""
    source, destination = reversed(counter.names)
    counter.second.check_output(f"echo before >{PLACE}/version")
    text = counter.done("migrate", source, handover_destination=destination, handover_keep_source=True)
    assert f"as they were are in {source}:{KEPT}" in text
    assert counter.second.run(f"podman container exists {NAME}").rc == 1, "the source's copy is removed"
    counter.first.check_output(f"echo after >{PLACE}/version")
    counter.done("backup_restore", destination, handover_repository=f"{source}:{KEPT}", handover_hosts=",".join(counter.names))
    assert counter.first.check_output(f"cat {PLACE}/version") == "before"
    assert counter.first.check_output(f"podman inspect --format '{{{{.State.Running}}}}' {NAME}") == "true"


def tree(host: t.Any) -> set[str]:
    return set(host.run(f"ls {SNAPSHOTS}/{NAME}").stdout.split())


def test_a_destination_that_cannot_be_is_told_before_anything_is_touched(counter: Counter) -> None:
    first, second = counter.names
    counter.first.check_output(f"echo before >{PLACE}/version")
    counter.done("snapshot", first, handover_snapshot="warm", handover_memory=True)
    there = tree(counter.second)
    asked = {"handover_snapshot": "warm", "handover_destination": second}
    image = counter.first.check_output(f"podman inspect {NAME} --format '{{{{.ImageName}}}}'")
    counter.second.check_output(f"podman create --name {NAME} {image} true")
    try:
        for more, words in (
            ({"handover_snapshot": "cold"}, f"there is no snapshot cold of {NAME} on {first}: name one of "),
            ({"handover_destination": "node9"}, "nothing was touched: handover_destination"),
            ({}, f"{second} has a container named {NAME} already"),
        ):
            status, text = counter.play("rollback", first, **{**asked, **more})
            assert status != 0 and words in said(text), text[-4000:]
    finally:
        counter.second.check_output(f"podman rm {NAME}")
    assert tree(counter.second) == there
    assert counter.first.check_output(f"podman inspect --format '{{{{.State.Running}}}}' {NAME}") == "true"


def test_back_there_and_forwards_here(counter: Counter) -> None:
    first, second = counter.names
    here, (_count, word) = tree(counter.first), counter.ledger(counter.first)
    asked = {"handover_snapshot": "warm", "handover_memory": True, "handover_destination": second}
    counter.first.check_output(f"echo later >{PLACE}/version")
    status, text = counter.fleet.play("rollback", "--check", handover_source=first, handover_workload=NAME, **asked)
    assert status == 0 and f"{NAME} can move from {first} to {second}, and go back to warm there." in said(text), text[-4000:]
    counter.done("rollback", first, **asked)
    now, again = counter.ledger(counter.second)
    assert again == word == counter.second.check_output(f"podman exec {NAME} cat /dev/shm/word"), "the process is the same"
    assert counter.second.check_output(f"cat {PLACE}/version") == "before", "on the disks of its moment"
    counter.until(counter.second, now)
    assert counter.first.run(f"podman container exists {NAME}").rc == 1
    assert tree(counter.first) == here, "the snapshots stay there, too"
    (undo,) = tree(counter.second) - here
    # Forwards, to the disks as they were, where it came from: the other tree grows by the one that it lacks.
    text = counter.done("rollback", second, handover_snapshot=undo, handover_destination=first)
    assert f"Of its snapshots {undo} come to {first}" in said(text), text[-4000:]
    assert counter.first.check_output(f"cat {PLACE}/version") == "later"
    assert tree(counter.first) > here | {undo}
