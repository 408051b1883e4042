# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Guests that do not run. The last of the scenario: a guest that boots anew counts from one again."""

from __future__ import annotations

from conftest import Guests


def test_a_guest_that_does_not_run_takes_its_definition(guests: Guests) -> None:
    (source,) = guests.running_on("shared")
    guests.inside("shared", "sync")
    guests.hosts[source].run("virsh destroy shared")
    play = guests.begin("shared", source, kvm_migrate_mode="offline")
    assert play.end() == 0, play.text[-4000:]
    assert guests.standing("shared") == {guests.other(source): "shut off"}
    here = guests.hosts[guests.other(source)]
    assert "cache='writeback'" in here.run("virsh dumpxml shared"), "with what was changed in it"
    here.run("virsh start shared")


def test_and_its_disk(guests: Guests) -> None:
    (source,) = guests.running_on("own")
    beats = guests.beats("own")["beats"]
    # The last of these may not be on the disk yet, and what is not goes with the guest.
    guests.inside("own", "sync")
    guests.hosts[source].run("virsh destroy own")
    # Two operators at once: one of them moves it, and the other hears of that.
    plays = [guests.begin("own", source, kvm_migrate_mode="offline", kvm_migrate_storage="copy", kvm_migrate_remove_source=True) for _operator in range(2)]
    ended = {play.end(): " ".join(play.text.split()) for play in plays}
    assert sorted(ended) == [0, 2], [play.text[-4000:] for play in plays]
    assert "own is being moved" in ended[2]
    assert guests.standing("own") == {guests.other(source): "shut off"}
    assert guests.left_over() == {"kn1": {}, "kn2": {}}
    guests.hosts[guests.other(source)].run("virsh start own")
    assert guests.wakes("own")["beats"] >= beats
