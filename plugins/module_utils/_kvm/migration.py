# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The live migration of a KVM guest: libvirt's flags for a request, how to choose, and which side may run afterwards.

Nothing here talks to libvirt, so that all of it can be tried without one. Flags and parameters are named as libvirt names them
(https://libvirt.org/html/libvirt-libvirt-domain.html#virDomainMigrateFlags).
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

MIB = 1 << 20

# Compression methods that work on parallel connections (multifd), and the one that works on a single connection. The last three are
# hardware: QAT, IAA and the Kunpeng accelerators.
PARALLEL_METHODS = ("zstd", "zlib", "qatzip", "qpl", "uadk")
SINGLE_METHODS = ("xbzrle",)
METHODS = (*PARALLEL_METHODS, *SINGLE_METHODS)

# The rate at which one processor packs with zstd at QEMU's level, in bytes, and how much smaller a guest's memory gets: cautious figures
# (zstd's own benchmark; guests' memory packs to between a half and a tenth).
ZSTD_BYTES_PER_CPU = 250 * MIB
ZSTD_RATIO = 2.0
# A gain below this is not worth the processors.
WORTH = 1.15


@dataclass(frozen=True)
class Choice:
    """How memory travels, and why."""

    compression: str  # one of METHODS, or none
    connections: int  # 1: QEMU's ordinary single stream
    reason: str


def choose(link_mbit: int | None, idle_cpus: float) -> Choice:
    """Compression pays where the link is slower than idle processors pack; at 10 Gbit/s it costs time.

    `idle_cpus` is how many processors' worth of time was idle on the busier of the two hosts.
    """
    connections = max(1, min(8, int(idle_cpus)))
    if link_mbit is None:
        return Choice("none", connections, "the speed of the link is not known (set kvm_migrate_link_mbit), and packing on a fast link costs time")
    link = link_mbit * 1e6 / 8
    packed = min(connections * ZSTD_BYTES_PER_CPU, link * ZSTD_RATIO)
    described = f"{link_mbit} Mbit/s and {idle_cpus:.1f} idle processors"
    if idle_cpus < 0.5:
        return Choice("none", 1, f"{described}: no processor has time to pack")
    if packed >= link * WORTH:
        return Choice("zstd", connections, f"{described}: {connections} threads of zstd fill more than the link")
    return Choice("none", connections, f"{described}: the link is faster than the processors pack")


@dataclass(frozen=True)
class Wish:
    """The request. Rates in MiB/s, times in milliseconds; 0 is libvirt's own default."""

    mode: str = "live"  # live, offline, postcopy
    storage: str = "shared"  # shared, copy, incremental
    disks: tuple[str, ...] = ()
    compression: str = "none"
    connections: int = 1
    bandwidth: int = 0
    auto_converge: bool = False
    tls: bool = False
    synchronous_writes: bool = False
    hold: bool = True
    listen: str | None = None
    migrate_uri: str | None = None
    require: tuple[str, ...] = ()
    zero_pages: str = "default"  # the part that looks for them: multifd, legacy, none
    shared_disks: tuple[str, ...] = ()  # those that the operator says both hosts reach


@dataclass
class Plan:
    """libvirt's flags by name, and its typed parameters."""

    flags: list[str] = field(default_factory=list)
    parameters: dict[str, t.Any] = field(default_factory=dict)


# Wish → flags. The guest's definition goes along, and leaves the source in the same step as the guest: a source that boots again finds
# nothing to start.
MODE_FLAGS = {
    "live": ["VIR_MIGRATE_LIVE"],
    "postcopy": ["VIR_MIGRATE_LIVE", "VIR_MIGRATE_POSTCOPY"],
    "offline": ["VIR_MIGRATE_OFFLINE"],
}
STORAGE_FLAGS = {"shared": [], "copy": ["VIR_MIGRATE_NON_SHARED_DISK"], "incremental": ["VIR_MIGRATE_NON_SHARED_INC"]}
ALWAYS_FLAGS = ["VIR_MIGRATE_PEER2PEER", "VIR_MIGRATE_PERSIST_DEST", "VIR_MIGRATE_UNDEFINE_SOURCE"]


# Features of QEMU that no flag of libvirt turns on or off (libvirt 11.3): None where a migration always has it, else why it cannot be had.
FEATURES: dict[str, str | None] = {
    "zero_page_detection": None,
    "pause_before_switchover": None,
    "dirty_limit": "libvirt has no way to ask QEMU for its dirty limit: choose kvm_migrate_auto_converge, which slows the guest down as well",
    "free_page_hinting": (
        "libvirt has no way to have a guest name its free pages for a migration: give its memballoon freePageReporting='on', and they are given "
        "back while it runs, so that they are zero pages in the migration"
    ),
}


def refusal(wish: Wish) -> str | None:
    """Why no plan can be made of a wish; None where one can."""
    for feature in wish.require:
        if FEATURES[feature]:
            return f"{feature} cannot be had: {FEATURES[feature]}"
    if wish.zero_pages == "none" and "zero_page_detection" in wish.require:
        return "zero_page_detection is required, and kvm_migrate_zero_pages=none turns it off: leave one of them out"
    if wish.zero_pages != "default" and wish.mode == "offline":
        return "kvm_migrate_zero_pages is about the memory of a guest that runs: leave it out with kvm_migrate_mode=offline"
    if wish.compression in SINGLE_METHODS and wish.connections > 1:
        return f"compression {wish.compression} works on one connection: set kvm_migrate_connections to 1, or choose {PARALLEL_METHODS[0]}"
    if wish.mode == "postcopy" and wish.connections > 1 and wish.compression != "none":
        return "QEMU packs no pages that are fetched after the switch: with kvm_migrate_mode=postcopy choose kvm_migrate_compression=none"
    if wish.mode == "postcopy" and wish.storage != "shared":
        return "QEMU does not copy disks and fetch memory afterwards in one migration: with kvm_migrate_mode=postcopy choose kvm_migrate_storage=shared"
    if wish.synchronous_writes and wish.storage == "shared":
        return "kvm_migrate_synchronous_writes is about disks that are copied: choose kvm_migrate_storage=copy or incremental, or leave it out"
    return None


def plan(wish: Wish) -> Plan:
    """Flags and parameters for libvirt's migrateToURI3."""
    made = Plan(flags=[*ALWAYS_FLAGS, *MODE_FLAGS[wish.mode]])
    if wish.mode == "offline":
        return made
    made.flags += STORAGE_FLAGS[wish.storage]
    if wish.hold:
        made.flags.append("VIR_MIGRATE_PAUSED")
    if wish.storage != "shared":
        if wish.disks:
            made.parameters["migrate_disks"] = list(wish.disks)
        if wish.synchronous_writes:
            made.flags.append("VIR_MIGRATE_NON_SHARED_SYNCHRONOUS_WRITES")
    if wish.connections > 1 or wish.compression in PARALLEL_METHODS:
        made.flags.append("VIR_MIGRATE_PARALLEL")
        made.parameters["parallel.connections"] = wish.connections
    if wish.compression != "none":
        made.flags.append("VIR_MIGRATE_COMPRESSED")
        made.parameters["compression"] = wish.compression
    if wish.auto_converge:
        made.flags.append("VIR_MIGRATE_AUTO_CONVERGE")
    if wish.tls:
        made.flags.append("VIR_MIGRATE_TLS")
    if wish.bandwidth:
        made.parameters["bandwidth"] = wish.bandwidth
    if wish.listen:
        made.parameters["listen_address"] = wish.listen
    if wish.migrate_uri:
        made.parameters["migrate_uri"] = wish.migrate_uri
    return made


# --- which side may run -------------------------------------------------------------

# A side's answer about a guest: it runs, it stands still for the migration's sake, a person paused it, it is defined and does not run, it is
# not there, the side gives no answer.
RUNNING, PAUSED, HALTED, OFF, ABSENT, SILENT = "running", "paused", "halted", "off", "absent", "silent"
ALIVE = (RUNNING, PAUSED, HALTED)


# The message about a guest that runs nowhere: whether it should is for an operator, who knows whether it ran.
STANDS_STILL = {
    (OFF, ABSENT): "the guest is on the source and does not run, and the destination has none",
    (OFF, OFF): "both sides have the guest's definition, and it runs on neither: the source's is the one that counts",
    (ABSENT, ABSENT): "neither side has the guest: it was removed, or ended and had no definition: see libvirt's log on both hosts",
}
ENDED = "it ran when the migration began, and was shut down meanwhile, or ended with an error: see libvirt's log on both hosts"


@dataclass(frozen=True)
class Decision:
    """The next step, its side, and the migration's result by it."""

    act: str  # resume_destination, destroy_destination, resume_source, none, wait, ask
    moved: bool
    sentence: str


def decide(source: str, destination: str, migrating: bool) -> Decision:
    """Which side may run, by the answers of both.

    The destination's guest is held paused until the source's is gone: so a source that still has the guest owns it, and a destination
    may resume only when the source has none. Nothing is decided while a side is silent, or while libvirt still works on it.
    """
    if SILENT in (source, destination):
        which = "the source" if source == SILENT else "the destination"
        return Decision("ask", False, f"{which} does not answer: nothing is decided without it, so that the guest never runs twice")
    if migrating:
        return Decision("wait", False, "libvirt is still at work on the migration")
    here, there = source in ALIVE, destination in ALIVE
    if here and there:
        if destination == RUNNING:
            return Decision("ask", False, "the guest is live on both sides: stop one of them by hand, after looking which has the newer data")
        return Decision("destroy_destination", False, "the source still has the guest, and the destination's was never let run")
    if there:
        return Decision("none" if destination == RUNNING else "resume_destination", True, "the source has let the guest go, and the destination has it")
    if source == PAUSED:
        return Decision("resume_source", False, "the source has the guest, paused, and the destination has none")
    if source == HALTED:
        return Decision("none", False, "the source has the guest, paused as it was before, and the destination has none")
    if here:
        return Decision("none", False, "the guest runs on the source as before")
    if source == ABSENT and destination == OFF:
        return Decision("none", True, "the destination has the guest, which does not run, and the source has none")
    return Decision("none", False, STANDS_STILL[(source, destination)])


# --- the features in effect ---------------------------------------------------


def effects(made: Plan, stats: t.Mapping[str, t.Any], switched: bool) -> list[str]:
    """The features in effect: as libvirt counted them, and where it counts nothing, as it accepted it."""
    connections = made.parameters.get("parallel.connections", 1)
    packed = made.parameters.get("compression", "")
    throttle, deltas, zeroes = (stats.get(key) or 0 for key in ("auto_converge_throttle", "compression_bytes", "memory_constant"))
    said = {
        f"{connections} connections": connections > 1,
        f"pages packed with {packed}": packed in PARALLEL_METHODS,
        f"{deltas} bytes sent as differences (xbzrle)": deltas > 0,
        f"{zeroes} zero pages left out": zeroes > 0,
        f"the guest's processors slowed down by up to {throttle} % (auto-converge)": throttle > 0,
        "switched early, and pages fetched afterwards (postcopy)": switched,
        "encrypted (TLS)": "VIR_MIGRATE_TLS" in made.flags,
        "writes waited for the destination": "VIR_MIGRATE_NON_SHARED_SYNCHRONOUS_WRITES" in made.flags,
    }
    return [sentence for sentence, so in said.items() if so]


# --- figures -----------------------------------------------------------------


def figures(stats: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """libvirt's job statistics (virDomainGetJobStats) under names that say their unit. Figures that libvirt does not give are None."""
    found = {name: stats.get(key) for name, key in FIGURES.items()}
    # libvirt's "processed" are the bytes on the wire.
    found["ram_transferred"], found["disk_transferred"] = found.pop("ram_processed"), found.pop("disk_processed")
    return found


FIGURES = {
    "total_ms": "time_elapsed",
    "downtime_ms": "downtime",
    "setup_ms": "setup_time",
    "ram_total": "memory_total",
    "ram_processed": "memory_processed",
    "ram_remaining": "memory_remaining",
    "ram_rate": "memory_bps",
    "ram_zero_pages": "memory_constant",
    "ram_normal_bytes": "memory_normal_bytes",
    "dirty_pages_per_s": "memory_dirty_rate",
    "page_size": "memory_page_size",
    "iterations": "memory_iteration",
    "disk_total": "disk_total",
    "disk_processed": "disk_processed",
    "disk_remaining": "disk_remaining",
    "xbzrle_cache": "compression_cache",
    "xbzrle_bytes": "compression_bytes",
    "auto_converge_throttle": "auto_converge_throttle",
}
