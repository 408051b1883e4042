# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The facts about a plain volume that is to become an image volume: its folder, and the container that uses it."""

from __future__ import annotations

import json
import os
import typing as t
from dataclasses import dataclass

from .._core import host, loop, units as unit_facts
from .._core.pcopy import Pcopy
from . import book, conversion, service
from .bind_facts import users_of
from .podman import Podman
from .sessions import Sessions, moved_names

# Docker's own place of its volumes.
DOCKER_VOLUMES = "/var/lib/docker/volumes"
# Seconds that podman waits for a container's end where nobody has said.
_PATIENCE = 10


def record_of(image: str) -> dict[str, t.Any] | None:
    """The note of a conversion that was begun and has not ended."""
    try:
        with open(image + conversion.RECORD, encoding="utf-8") as source:
            return json.load(source)
    except FileNotFoundError:
        return None
    except ValueError:
        return {}  # it was killed before it had done anything


@dataclass(frozen=True)
class PlainLook:
    """Looks at one plain volume, and changes nothing."""

    podman: Podman
    name: str
    mountpoint: str  # of the image volume

    def find(self, begun: bool) -> conversion.Plain | None:
        """The volume, if podman keeps it in a plain folder, or did when a conversion was begun."""
        listed = next((volume for volume in self.podman.volumes() if volume["Name"] == self.name), None)
        if listed is None or (listed.get("Options") and not begun):
            return None
        own, bound = listed["Mountpoint"], bool(listed.get("Options"))
        aside = conversion.aside_of(self.name, own)
        at = aside if bound or not os.path.lexists(own) else own
        root = self.podman.root()
        containers, naming = self.podman.containers(), self.podman.users_of_volume(self.name)
        return conversion.Plain(
            name=self.name,
            folder=own,
            driver=listed.get("Driver") or "",
            anonymous=bool(listed.get("Anonymous")),
            used=host.allocated(at),
            files=_entries(at),
            users=tuple(self._user(each) for each in containers if each["Names"][0] in naming),
            bound=tuple(users_of(own, self.podman.inspect_many([each["Id"] for each in containers]))),
            mounts=() if bound else tuple(mount.mountpoint for mount in loop.read_mounts() if (mount.mountpoint + "/").startswith(own + "/")),
            missing=not os.path.lexists(own),
            kept=not begun and os.path.lexists(aside),
            unbindable=book.bound_to(root, self.name, self.mountpoint, write=False),
            root=root,
        )

    def is_dockers(self) -> bool:
        """Whether Docker has a volume of that name."""
        return os.path.isdir(os.path.join(DOCKER_VOLUMES, self.name))

    def _user(self, listed: t.Mapping[str, t.Any]) -> conversion.User:
        runtime, name, identifier = self.podman.runtime, listed["Names"][0], listed["Id"]
        inspect = self.podman.inspect(identifier)
        config, state = inspect.get("Config") or {}, inspect.get("State") or {}
        label = (config.get("Labels") or {}).get("PODMAN_SYSTEMD_UNIT", "")
        label = label if label and unit_facts.unit_exists(label) else ""
        units = service.units_there(label, unit_facts.acting(runtime, unit_facts.units_of("podman", name, identifier)))
        return conversion.User(
            name=name,
            identifier=identifier,
            pid=int(state.get("Pid") or 0),
            state=listed.get("State") or "",
            auto_remove=bool((inspect.get("HostConfig") or {}).get("AutoRemove")),
            units=tuple(units),
            active=bool(units) and unit_facts.show(runtime, units[0]).get("ActiveState") in ("active", "activating", "reloading"),
            session=self._session(name),
            service=service.facts(runtime, units, inspect, listed.get("State") == "running"),
            patience=int(config.get("StopTimeout") or _PATIENCE),
        )

    def _session(self, name: str) -> str:
        """The move of the container, or of a workload that it is a member of, that has not ended."""
        statuses = Sessions(Pcopy(self.podman.runtime)).statuses()
        return next((str(status.get("id")) for status in statuses if name in moved_names(status) and not status.get("ended")), "")


def cgroup_of(user: conversion.User) -> str:
    """The cgroup in which everything of a running container is, if it has one of its own."""
    return host.freezable_cgroup(user.pid, user.identifier, {"manage-cgroups": "ignore"}) if user.pid else ""


def _entries(folder: str) -> int:
    return sum(len(folders) + len(files) for _path, folders, files in os.walk(folder))
