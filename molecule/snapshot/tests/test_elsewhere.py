# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A container goes back on another host: with its memory there, and forwards again, without, on the host that it came from.

It counts in its memory and writes a ledger, as the one of the backups with memory. A process that was started anew has another word.
"""

from __future__ import annotations

import typing as t

import pytest
import test_memory
from hosts import said
from test_memory import NAME, Counter

counter = test_memory.counter
SNAPSHOTS = "/var/lib/handover/snapshots"


def tree(host: t.Any) -> list[str]:
    return host.check_output(f"ls {SNAPSHOTS}/{NAME}").split()


def test_a_destination_that_cannot_be_is_told_before_anything_is_touched(counter: Counter) -> None:
    first, second = counter.names
    counter.done("snapshot", first, handover_snapshot="warm", handover_memory=True)
    asked = {"handover_snapshot": "warm", "handover_destination": second}
    image = counter.first.check_output(f"podman inspect {NAME} --format '{{{{.ImageName}}}}'")
    counter.second.check_output(f"podman create --name {NAME} {image} true")
    try:
        for more, words in (
            ({"handover_snapshot": "cold"}, f"there is no snapshot cold of {NAME} on {first}: name one of warm"),
            ({"handover_destination": "node9"}, "node9"),
            ({}, f"{second} has a container named {NAME} already"),
        ):
            status, text = counter.play("rollback", first, **{**asked, **more})
            assert status != 0 and words in said(text), text[-4000:]
    finally:
        counter.second.check_output(f"podman rm {NAME}")
    assert counter.second.run(f"ls {SNAPSHOTS}/{NAME}").rc != 0
    assert counter.first.check_output(f"podman inspect --format '{{{{.State.Running}}}}' {NAME}") == "true"


def test_back_there_and_forwards_here(counter: Counter) -> None:
    first, second = counter.names
    before, word = counter.ledger(counter.first)
    asked = {"handover_snapshot": "warm", "handover_memory": True, "handover_destination": second}
    counter.until(counter.first, before + 1000)
    status, text = counter.fleet.play("rollback", "--check", handover_source=first, handover_workload=NAME, **asked)
    assert status == 0 and f"{NAME} can move from {first} to {second}, and go back to warm there." in said(text), text[-4000:]
    counter.done("rollback", first, **asked)
    now, again = counter.ledger(counter.second)
    assert again == word == counter.second.check_output(f"podman exec {NAME} cat /dev/shm/word"), "the process is the same"
    assert now < before + 1000, "from the moment of the snapshot"
    assert counter.first.run(f"podman container exists {NAME}").rc == 1
    assert tree(counter.first) == ["warm"], "it stays there, too"
    (undo,) = set(tree(counter.second)) - {"warm"}
    counter.until(counter.second, now)
    # Forwards, to the disks as they were before, where it came from: the other tree grows by what it lacks.
    text = counter.done("rollback", second, handover_snapshot=undo, handover_destination=first)
    assert f"Of its snapshots {undo} come to {first}" in said(text), text[-4000:]
    assert set(tree(counter.first)) >= {"warm", undo}
    place = f"{SNAPSHOTS}/.mounted/{NAME}/{undo}"
    counter.done("snapshot", first, handover_snapshot=undo, handover_state="mounted")
    lines = int(counter.first.check_output(f"cat {place}/*/ledger | wc -l"))
    counter.done("snapshot", first, handover_snapshot=undo, handover_state="unmounted")
    assert lines > before + 1000


@pytest.fixture(scope="module", autouse=True)
def clean(counter: Counter) -> t.Iterator[None]:
    yield
    for host in (counter.first, counter.second):
        host.run(f"rm --recursive --force {SNAPSHOTS}/{NAME} {SNAPSHOTS}/.disks/{NAME} {SNAPSHOTS}/.mounted/{NAME}")
