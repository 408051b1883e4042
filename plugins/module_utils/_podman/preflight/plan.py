# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The requested move, and the facts about both hosts."""

from __future__ import annotations

import posixpath
import typing as t
from dataclasses import dataclass, field, replace

from ..._core.bind_rules import FOLDER
from ..._core.databases import open_on
from ..._core.move import IGNORE, LIVE, OFFLINE, PCOPY_CURE, SPARE_DISK, Facts, Finding, Move, dotted

__all__ = ("EBPF", "HASH", "IGNORE", "LIVE", "OFFLINE", "PCOPY_CURE", "SPARE_DISK", "STOPPED", "Check", "Facts", "Finding", "Plan", "dotted")

# podman's states of a container that nothing of is running.
STOPPED = ("created", "exited", "stopped")

EBPF, HASH = "ebpf", "hash"

# The destination's word of a member: whether it has that is asked of all of them.
_NONE: Facts = {"exists": False, "running": False, "held": False}


@dataclass(frozen=True)
class Plan(Move):
    """The move of a container of podman's."""

    tracker: str = "auto"
    hash_limit: int = 0  # bytes that may be compared in the pause, where writes cannot be tracked; 0 for any number
    secrets: str = "same"  # what becomes of secrets: same, carry, refuse
    secrets_here: Facts = field(default_factory=dict)  # by name, what podman_secrets_info of the source says
    secrets_there: Facts = field(default_factory=dict)
    reserve_space: bool = False  # the destination takes all the room that its images can need

    @property
    def in_group(self) -> bool:
        """Whether it is a member of several that move as one."""
        return "infra" in self.container

    @property
    def in_wave(self) -> bool:
        """Whether it is a container of a project that moves beside all others of it that it needs."""
        return bool(self.container.get("wave")) and set(self.container["together"]) <= {self.workload, *self.beside}

    def member_plans(self) -> list[Plan]:
        """The same move, of each of them by itself."""
        return [
            replace(self, workload=member["name"], here={**self.here, "workload": self._alone(member)}, there={**self.there, "workload": _NONE})
            for member in self.members if not member["infra"]
        ]  # fmt: skip

    def _alone(self, member: Facts) -> Facts:
        """A member as a container by itself. elsewhere: the devices of the tmpfs that others have."""
        elsewhere = [tmpfs.get("device") for other in self.members if other is not member for tmpfs in other.get("tmpfs", [])]
        return dict(member, required_by=[], elsewhere=elsewhere)

    @property
    def pod_name(self) -> str:
        """The name of the pod that the container is a member of."""
        listed = {each["name"]: each.get("pod") or "" for each in self.here["host"]["podman"]["containers"]}
        return listed.get(self.container["name"]) or str(self.container.get("pod") or "")[:12]

    @property
    def volumes(self) -> list[Facts]:
        """Its image volumes, each once; same_device: a database is open on it, so its device must keep its number."""
        found: dict[str, dict[str, t.Any]] = {}
        known = set().union(*(open_on(each) for each in (self.container, *self.members))) if self.live and self.known else set[str]()
        for mount in self.mounts:
            if mount["image_volume"]:
                image = mount["image_volume"]["image"]
                volume = found.setdefault(image, dict(mount["image_volume"], podman_volume="", same_device=image in known))
                # The podman volume that image_volume made; one that is bound to a directory further down is the user's own.
                if mount["type"] == "volume" and mount["directory"] == volume["mountpoint"]:
                    volume["podman_volume"] = mount["name"]
                # An engine that begins to restore before the volume has come looks for them.
                below = posixpath.join(mount["directory"], mount.get("subpath") or "").rstrip("/")
                if below != volume["mountpoint"] and mount.get("subpath_kind", mount.get("kind", FOLDER)) == FOLDER:
                    volume["folders"] = sorted({*volume.get("folders", []), posixpath.relpath(below, volume["mountpoint"])})
        return list(found.values())


Check = t.Callable[[Plan], t.Iterator[str]]
