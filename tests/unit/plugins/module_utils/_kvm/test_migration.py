# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import itertools

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._kvm import migration

ALIVE = migration.ALIVE
EVERY = (*ALIVE, migration.OFF, migration.ABSENT, migration.SILENT)
# A guest that is held on the destination is for libvirt one that somebody paused.
THERE = tuple(word for word in EVERY if word != migration.HALTED)


@pytest.mark.parametrize(("source", "destination", "migrating"), list(itertools.product(EVERY, THERE, (False, True))))
def test_nothing_that_is_done_lets_two_run_or_destroys_the_only_one(source, destination, migrating):
    decision = migration.decide(source, destination, migrating)
    state = {"source": source, "destination": destination}
    if decision.act in ("resume_source", "resume_destination"):
        side = decision.act.removeprefix("resume_")
        assert state[side] == migration.PAUSED
        state[side] = migration.RUNNING
    elif decision.act == "destroy_destination":
        assert destination != migration.RUNNING and source in ALIVE
        state["destination"] = migration.ABSENT
    if decision.act not in ("ask", "wait"):
        assert list(state.values()).count(migration.RUNNING) <= 1
        assert not (state["source"] in ALIVE and state["destination"] in ALIVE)
    arrived = destination in ALIVE or (source, destination) == (migration.ABSENT, migration.OFF)
    assert decision.moved == (source not in (*ALIVE, migration.SILENT) and arrived and not migrating)


@pytest.mark.parametrize(("source", "destination"), [(migration.SILENT, migration.PAUSED), (migration.RUNNING, migration.SILENT)])
def test_a_side_that_is_silent_decides_nothing(source, destination):
    decision = migration.decide(source, destination, False)
    assert decision.act == "ask"
    assert "does not answer" in decision.sentence


@pytest.mark.parametrize(
    ("source", "destination", "words"),
    [
        (migration.OFF, migration.ABSENT, "is on the source and does not run"),
        (migration.OFF, migration.OFF, "both sides have the guest's definition"),
        (migration.ABSENT, migration.ABSENT, "neither side has the guest"),
    ],
)
def test_of_a_guest_that_runs_nowhere_it_is_said_where_it_is(source, destination, words):
    decision = migration.decide(source, destination, False)
    assert (decision.act, decision.moved) == ("none", False)
    assert words in decision.sentence


@pytest.mark.parametrize(
    ("link", "idle", "compression", "connections"),
    [
        (1000, 4.0, "zstd", 4),
        (10_000, 2.0, "none", 2),
        (1000, 0.2, "none", 1),
        (None, 8.0, "none", 8),
        (25_000, 64.0, "none", 8),
    ],
)
def test_packing_pays_on_slow_links_alone(link, idle, compression, connections):
    choice = migration.choose(link, idle)
    assert (choice.compression, choice.connections) == (compression, connections)


def test_a_plain_live_migration_is_held():
    made = migration.plan(migration.Wish())
    assert set(made.flags) == {"VIR_MIGRATE_PEER2PEER", "VIR_MIGRATE_PERSIST_DEST", "VIR_MIGRATE_UNDEFINE_SOURCE", "VIR_MIGRATE_LIVE", "VIR_MIGRATE_PAUSED"}
    assert made.parameters == {}


def test_everything_at_once():
    wish = migration.Wish(
        storage="copy", disks=("vda",), compression="zstd", connections=4, bandwidth=100, auto_converge=True, tls=True, synchronous_writes=True,
    )  # fmt: skip
    assert migration.refusal(wish) is None
    made = migration.plan(wish)
    for flag in ("NON_SHARED_DISK", "PARALLEL", "COMPRESSED", "AUTO_CONVERGE", "TLS", "NON_SHARED_SYNCHRONOUS_WRITES"):
        assert f"VIR_MIGRATE_{flag}" in made.flags
    assert made.parameters == {"migrate_disks": ["vda"], "parallel.connections": 4, "compression": "zstd", "bandwidth": 100}


def test_a_guest_that_does_not_run_takes_its_definition_alone():
    assert "VIR_MIGRATE_PAUSED" not in migration.plan(migration.Wish(mode="offline")).flags


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"compression": "xbzrle", "connections": 2}, "works on one connection"),
        ({"mode": "postcopy", "compression": "zstd", "connections": 2}, "choose kvm_migrate_compression=none"),
        ({"mode": "postcopy", "storage": "copy"}, "choose kvm_migrate_storage=shared"),
        ({"synchronous_writes": True}, "about disks that are copied"),
        ({"require": ("zero_page_detection", "dirty_limit")}, "dirty_limit cannot be had: libvirt has no way to ask QEMU for its dirty limit"),
        ({"require": ("free_page_hinting",)}, "give its memballoon freePageReporting='on'"),
        ({"require": ("zero_page_detection",), "zero_pages": "none"}, "kvm_migrate_zero_pages=none turns it off"),
        ({"mode": "offline", "zero_pages": "none"}, "about the memory of a guest that runs"),
    ],
)
def test_what_does_not_go_together_is_refused(change, text):
    assert text in migration.refusal(migration.Wish(**change))


@pytest.mark.parametrize(
    ("wish", "stats", "said"),
    [
        ({}, {}, []),
        ({"compression": "zstd", "connections": 2}, {"memory_constant": 7}, ["2 connections", "pages packed with zstd", "7 zero pages left out"]),
        # Asked for, and not needed.
        ({"compression": "xbzrle", "auto_converge": True}, {"compression_bytes": 0, "auto_converge_throttle": 0}, []),
        (
            {"compression": "xbzrle", "auto_converge": True},
            {"compression_bytes": 512, "auto_converge_throttle": 30},
            ["512 bytes sent as differences (xbzrle)", "the guest's processors slowed down by up to 30 % (auto-converge)"],
        ),
    ],
)
def test_what_took_effect(wish, stats, said):
    assert migration.effects(migration.plan(migration.Wish(**wish)), stats, False) == said
