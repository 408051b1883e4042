# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A guest's move is struck at each phase: it never runs twice, its disk is always there, and running the same play again ends well.

KVM_FAULTS=all runs every case, KVM_FAULTS=switch those whose name has the word. Without it KVM_FAULTS_SEED chooses one of a sample.
Requested cases write their results into the table in docs/kvm.md.
"""

from __future__ import annotations

import os
import typing as t
from dataclasses import dataclass

import pytest
from conftest import Guests
from fleet import CHECKOUT, Host, Play, until
from page import Table

MIGRATION_PORTS = "49152-49215"
# MiB a second: slow enough to be struck in the middle, and what libvirt takes for no limit.
SLOW, FAST = 12, 8192
MODULE = "[A]nsiballZ_kvm_migrate"


@dataclass
class Scene:
    """A move that has come to a phase."""

    guests: Guests
    source: Host
    destination: Host
    play: Play


def copies_disks(scene: Scene) -> bool:
    return "File processed" in scene.source.ask("virsh domjobinfo own").stdout and not copies_memory(scene)


def copies_memory(scene: Scene) -> bool:
    return "Memory processed" in scene.source.ask("virsh domjobinfo own | grep -v 'Memory processed: *0.000'").stdout


def is_held(scene: Scene) -> bool:
    return scene.guests.standing("own") == {scene.destination.name: "paused"}


def reach_disks(scene: Scene) -> None:
    until("disks are copied", lambda: copies_disks(scene) or scene.play.process.poll() is not None)


def reach_memory(scene: Scene) -> None:
    until("memory is copied", lambda: copies_memory(scene) or scene.play.process.poll() is not None, 150)
    assert scene.play.process.poll() is None, scene.play.text[-4000:]


def reach_switch(scene: Scene) -> None:
    """libvirt has moved the guest, and who asked for it has not heard of it yet: so the guest is held."""
    reach_memory(scene)
    scene.source.run(f"pkill --signal STOP --full '{MODULE}'")
    scene.source.run(f"virsh migrate-setspeed own {FAST}")
    until("the guest is held on the destination", lambda: is_held(scene))


PHASES = {"disks": reach_disks, "memory": reach_memory, "switch": reach_switch}


def kill_libvirtd(side: str) -> t.Callable[[Scene], None]:
    def strike(scene: Scene) -> None:
        getattr(scene, side).run("systemctl kill --signal=KILL --kill-whom=main libvirtd.service")

    return strike


def cut_connection(scene: Scene) -> None:
    """Between the two hosts, for what libvirt and QEMU say to each other. The controller reaches both."""
    for here, there in ((scene.source, scene.destination), (scene.destination, scene.source)):
        here.run(
            "nft add table inet handover-faults"
            " && nft add chain inet handover-faults in '{ type filter hook input priority -300; }'"
            f" && nft add rule inet handover-faults in ip saddr {there.address} tcp dport {{ 22, {MIGRATION_PORTS} }} drop"
            f" && nft add rule inet handover-faults in ip saddr {there.address} tcp sport {{ 22, {MIGRATION_PORTS} }} drop"
        )


def heal_connection(scene: Scene) -> None:
    for host in (scene.source, scene.destination):
        host.ask("nft delete table inet handover-faults")


def kill_asker(scene: Scene) -> None:
    """The play, and what it has started on the source."""
    scene.play.kill()
    scene.source.ask(f"pkill --signal KILL --full '{MODULE}'")


def kill_module(scene: Scene) -> None:
    """What the play has started on the source; the play waits for it, and has to notice."""
    scene.source.ask(f"pkill --signal KILL --full '{MODULE}'")


FAULTS: dict[str, t.Callable[[Scene], None]] = {
    "source's libvirtd killed": kill_libvirtd("source"),
    "destination's libvirtd killed": kill_libvirtd("destination"),
    "connection cut": cut_connection,
    "asker killed": kill_asker,
    "module killed": kill_module,
}
TABLE = Table(
    CHECKOUT / "docs" / "kvm.md", "<!-- guests that were struck: written by make test-kvm KVM_FAULTS=all -->", "<!-- end of it -->",
    tuple(FAULTS), tuple(PHASES),
)  # fmt: skip
CASES = [f"{fault} at {phase}" for fault in FAULTS for phase in PHASES]
SAMPLE = ["source's libvirtd killed at memory", "destination's libvirtd killed at switch", "asker killed at switch"]


def asked(word: str, seed: int) -> list[str]:
    if not word:
        return [SAMPLE[seed % len(SAMPLE)]]
    return [case for case in CASES if word == "all" or word in case]


@pytest.fixture(name="seen")
def what_was_seen(case: str) -> t.Iterator[list[str]]:
    """What a case came to is put into it; one that did not come to its end has failed."""
    found: list[str] = []
    yield found
    if os.environ.get("KVM_FAULTS"):
        fault, _at, phase = case.partition(" at ")
        TABLE.keep(fault, phase, ", ".join(found) or "**FAILED**")


def test_a_move_that_is_called_off(guests: Guests) -> None:
    (name,) = guests.running_on("own")
    play = guests.begin("own", name, kvm_migrate_storage="copy", kvm_migrate_bandwidth=SLOW)
    scene = Scene(guests, guests.hosts[name], guests.hosts[guests.other(name)], play)
    try:
        reach_memory(scene)
        # On a busy machine it takes longer to ask for that than what is left takes.
        scene.source.run("virsh migrate-setspeed own 1")
        off = guests.begin("own", name, kvm_migrate_state="cancelled")
        assert off.end() == 0, off.text[-4000:]
        assert "own: the guest runs on the source as before." in off.text
        assert scene.play.end() != 0
    finally:
        scene.play.kill()
    assert guests.standing("own") == {name: "running"}
    assert guests.left_over() == {"kn1": {}, "kn2": {}}
    guests.is_whole("own")


@pytest.mark.parametrize("case", asked(os.environ.get("KVM_FAULTS", ""), int(os.environ.get("KVM_FAULTS_SEED", "1"))))
def test_a_move_that_is_struck(guests: Guests, case: str, seen: list[str]) -> None:
    fault, _at, phase = case.partition(" at ")
    (name,) = guests.running_on("own")
    source, destination = guests.hosts[name], guests.hosts[guests.other(name)]
    asked_for = {"kvm_migrate_storage": "copy", "kvm_migrate_remove_source": True, "kvm_migrate_bandwidth": SLOW, "kvm_migrate_timeout": 180}
    scene = Scene(guests, source, destination, guests.begin("own", name, **asked_for))
    try:
        PHASES[phase](scene)
        assert scene.play.process.poll() is None, scene.play.text[-4000:]
        FAULTS[fault](scene)
        source.ask(f"pkill --signal CONT --full '{MODULE}'")
        status = scene.play.end() if fault != "asker killed" else -9
        assert len(guests.running_on("own")) <= 1
        if status != 0 and fault.endswith("libvirtd killed"):
            assert guests.running_on("own") == [name], "what fails leaves the guest where it was"
    finally:
        source.ask(f"pkill --signal CONT --full '{MODULE}'")
        heal_connection(scene)
        scene.play.kill()
    where = {(name,): "stayed", (destination.name,): "moved", (): "held"}[tuple(guests.running_on("own"))]
    if status != 0:
        again = guests.begin("own", name, **{**asked_for, "kvm_migrate_bandwidth": 0})
        assert again.end() == 0, f"{scene.play.text[-3000:]}\n{again.text[-5000:]}"
    assert guests.standing("own") == {destination.name: "running"}
    assert guests.left_over() == {source.name: {}, destination.name: {}}
    guests.is_whole("own")
    numbers = guests.numbers("own")
    assert not set(numbers[source.name]) & set(numbers[destination.name]), "it ran on both"
    seen += [where] if status == 0 else [where, "again: moved"]
