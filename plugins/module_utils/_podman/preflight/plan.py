# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The requested move, and the facts about both hosts."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

LIVE = "live"
OFFLINE = "offline"

# podman's states of a container that nothing of is running.
STOPPED = ("created", "exited", "stopped")

# The playbooks' name for the list of checks that do not count.
IGNORE = "handover_ignore_checks"

# Left free on a file system beside what is copied, so that the host itself keeps working.
SPARE_DISK = 64 * 2**20

PCOPY_CURE = "apply the role livefleet.handover.pcopy to it"

EBPF, HASH = "ebpf", "hash"

Facts = t.Mapping[str, t.Any]


@dataclass(frozen=True)
class Plan:
    """The workload, its source and destination, and the facts about both."""

    workload: str
    source: str
    destination: str
    mode: str
    here: Facts  # workload_info of the source
    there: Facts  # workload_info of the destination
    session: str = ""  # our own, which is no obstacle
    tracker: str = "auto"
    hash_limit: int = 0  # bytes that may be compared in the pause, where writes cannot be tracked; 0 for any number
    auto_converge: bool = False  # it is to be slowed down where the pause would be too long
    lazy_pages: bool = False  # it is to run on the destination before its memory is there
    bind_mounts: str = "refuse"  # the fate of bind mounts: carry, same, refuse
    binds_here: Facts = field(default_factory=dict)  # by path, what bind_mounts_info of the source says
    binds_there: Facts = field(default_factory=dict)
    secrets: str = "same"  # what becomes of secrets: same, carry, refuse
    secrets_here: Facts = field(default_factory=dict)  # by name, what podman_secrets_info of the source says
    secrets_there: Facts = field(default_factory=dict)
    reserve_space: bool = False  # the destination takes all the room that its images can need
    place_memory: bool = False  # CRIU is to leave its memory out
    asked_within: float = 0.0  # seconds in which first the destination was asked, and then the source
    problems: tuple[str, ...] = field(default=())

    @property
    def live(self) -> bool:
        return self.mode == LIVE

    @property
    def container(self) -> Facts:
        return self.here["workload"]

    @property
    def known(self) -> bool:
        """Whether podman told the container's details."""
        return bool(self.container["exists"]) and not self.container["held"]

    @property
    def pod_name(self) -> str:
        """The name of the pod that the container is a member of."""
        listed = {each["name"]: each.get("pod") or "" for each in self.here["host"]["podman"]["containers"]}
        return listed.get(self.container["name"]) or str(self.container.get("pod") or "")[:12]

    @property
    def hosts(self) -> tuple[tuple[str, Facts], tuple[str, Facts]]:
        return (self.source, self.here["host"]), (self.destination, self.there["host"])

    @property
    def volumes(self) -> list[Facts]:
        """Its image volumes, each once."""
        found: dict[str, dict[str, t.Any]] = {}
        for mount in self.mounts:
            if mount["image_volume"]:
                volume = found.setdefault(mount["image_volume"]["image"], dict(mount["image_volume"], podman_volume=""))
                # The podman volume that image_volume made; one that is bound to a directory further down is the user's own.
                if mount["type"] == "volume" and mount["directory"] == volume["mountpoint"]:
                    volume["podman_volume"] = mount["name"]
        return list(found.values())

    @property
    def mounts(self) -> t.Sequence[Facts]:
        """All that it mounts, as far as podman lists it."""
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


Check = t.Callable[[Plan], t.Iterator[str]]


def dotted(version: t.Sequence[int]) -> str:
    return ".".join(str(part) for part in version) or "unknown"
