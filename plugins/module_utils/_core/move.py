# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The requested move of a container, and the facts about both hosts, whatever engine runs it."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

LIVE = "live"
OFFLINE = "offline"

# The playbooks' name for the list of checks that do not count.
IGNORE = "handover_ignore_checks"

# An ignore list names a key of the engine's that has no row in the inventory by this and the key.
UNACCOUNTED = "inventory:"

# Left free on a file system beside what is copied, so that the host itself keeps working.
SPARE_DISK = 64 * 2**20

PCOPY_CURE = "apply the role livefleet.handover.pcopy to it"

Facts = t.Mapping[str, t.Any]


@dataclass(frozen=True)
class Move:
    """The workload, its source and destination, and the facts about both."""

    workload: str
    source: str
    destination: str
    mode: str
    here: Facts  # workload_info of the source
    there: Facts  # workload_info of the destination
    session: str = ""  # our own, which is no obstacle
    asked_within: float = 0.0  # seconds in which first the destination was asked, and then the source
    lazy_pages: bool = False  # it is to run on the destination before its memory is there
    place_memory: bool = False  # CRIU is to leave its memory out, where it can
    auto_converge: bool = False  # it is to be slowed down where the pause would be too long
    bind_mounts: str = "refuse"  # the fate of bind mounts: carry, same, refuse
    binds_here: Facts = field(default_factory=dict)  # by path, what bind_mounts_info of the source says
    binds_there: Facts = field(default_factory=dict)
    problems: tuple[str, ...] = field(default=())
    beside: t.Sequence[str] = ()  # names of the containers that move at the same moment, each by itself
    floating_addresses: t.Sequence[str] = ()  # addresses of published ports that move along

    @property
    def live(self) -> bool:
        return self.mode == LIVE

    @property
    def container(self) -> Facts:
        return self.here["workload"]

    @property
    def known(self) -> bool:
        """Whether the engine told the container's details."""
        return bool(self.container["exists"]) and not self.container["held"]

    @property
    def members(self) -> t.Sequence[Facts]:
        """Those of several containers that move as one; none of a container alone."""
        return self.container.get("members") or []

    @property
    def names(self) -> list[str]:
        """Their names, without the infra container of a pod, which is called otherwise on each host."""
        return [member["name"] for member in self.members if not member["infra"]]

    @property
    def hosts(self) -> tuple[tuple[str, Facts], tuple[str, Facts]]:
        return (self.source, self.here["host"]), (self.destination, self.there["host"])

    @property
    def mounts(self) -> t.Sequence[Facts]:
        """All that it mounts, as far as the engine lists it."""
        return self.container.get("mounts", []) if self.known else []

    @property
    def directories(self) -> list[Facts]:
        """Its directory volumes, each once."""
        return list({mount["name"]: mount["directory_volume"] for mount in self.mounts if mount.get("directory_volume")}.values())


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong."""

    check: str
    sentence: str


def dotted(version: t.Sequence[int]) -> str:
    return ".".join(str(part) for part in version) or "unknown"


def out_of_reach(destination: str, said: str) -> str:
    """The sentence about a destination that did not answer at all; `said` is the connection's message, whose last line has the reason."""
    why = (said.strip().splitlines() or ["it gave no reason"])[-1].strip()
    why = why[len("Task failed: ") :] if why.startswith("Task failed: ") else why
    return "the destination {0} cannot be reached: see whether it is up and `ansible {0} -m ping` works ({1})".format(destination, why)


def verdict(move: Move, sentences: t.Sequence[str]) -> str:
    """The one sentence in which the check of a workload ends."""
    if not sentences:
        mode = move.mode if move.container["running"] else "as it is, stopped"
        with_all = ", with {0}".format(", ".join(move.names)) if move.names else ""
        return "{0} can move from {1} to {2} ({3}{4})".format(move.workload, move.source, move.destination, mode, with_all)
    if len(sentences) == 1:
        return "{0} cannot move from {1} to {2}: {3}".format(move.workload, move.source, move.destination, sentences[0])
    return "{0} cannot move from {1} to {2}: {3} things are in the way: {4}".format(
        move.workload,
        move.source,
        move.destination,
        len(sentences),
        "; ".join("({0}) {1}".format(number, sentence) for number, sentence in enumerate(sentences, 1)),
    )
