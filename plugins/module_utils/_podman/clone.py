# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""From the command that made a container to the command of a clone: another container, with volumes, a name and an address of its own.

Whatever the two would share is replaced, left out, or refused: two containers that write one folder, or have one address, destroy each other's work.
Everything here is a pure function.
"""

from __future__ import annotations

import dataclasses
import typing as t

from .create_command import CreateCommand

Option = t.Tuple[str, t.Optional[str]]

_SOURCE = ("source", "src")
_READ_ONLY = ("ro", "readonly")

# Of the first container alone: host ports that it has, names by which others find it, files that are written for it, its unit's cgroup.
_ITS_OWN = frozenset(("cidfile", "conmon-pidfile", "network-alias", "pidfile", "publish", "publish-all"))
_OWN_VALUES = (("cgroups", "split"), ("log-opt", "path="))
# Labels by which other programs take it for theirs, and would stop or remove the clone with it.
_CLAIMS = ("PODMAN_SYSTEMD_UNIT=", "com.docker.compose.", "io.podman.compose.", "io.containers.autoupdate=")

# Says of which snapshot a container is a clone.
LABEL = "livefleet.handover.clone"


class CloneError(ValueError):
    """There can be no clone; the text says why, and the way out."""


def cloned(parsed: CreateCommand, volumes: t.Mapping[str, str]) -> CreateCommand:
    """The command with each volume (name → name, and mount point → mount point) replaced by the clone's."""
    options = [_replaced(option, volumes) for option in parsed.options if not _is_its_own(option)]
    return dataclasses.replace(parsed, options=tuple(options))


def unclaimed(labels: t.Iterable[str]) -> tuple[str, ...]:
    """The labels without those by which other programs take a container for theirs, or that say of what it is a clone."""
    return tuple(label for label in labels if not label.startswith(_CLAIMS) and not is_origin(label))


def is_origin(label: str) -> bool:
    """Whether a label says of what a container is a clone."""
    return label.startswith(LABEL + "=")


def _is_its_own(option: Option) -> bool:
    name, value = option
    own_value = any(name == each and (value or "").startswith(start) for each, start in _OWN_VALUES)
    return name in _ITS_OWN or own_value or (name == "label" and not unclaimed([value or ""]))


def _replaced(option: Option, volumes: t.Mapping[str, str]) -> Option:
    name, value = option
    if name == "volume" and value and ":" in value:
        source, _colon, rest = value.partition(":")
        return name, "{0}:{1}".format(_other(source, rest.partition(":")[2].split(","), volumes), rest)
    if name == "mount" and value:
        return name, _mount(value, volumes)
    if name == "network" and value:
        network, colon, given = value.partition(":")
        return name, (network + colon + ",".join(part for part in given.split(",") if not part.startswith("alias="))).rstrip(":")
    return option


def _mount(value: str, volumes: t.Mapping[str, str]) -> str:
    parts = [part.partition("=") for part in value.split(",")]
    given = {key: text for key, _equals, text in parts}
    if given.get("type", "volume") not in ("volume", "bind", "glob"):
        return value
    read_only = ["ro"] if any(key in given and given[key] not in ("false", "0") for key in _READ_ONLY) else []
    return ",".join(key + equals + (_other(text, read_only, volumes) if key in _SOURCE and text else text) for key, equals, text in parts)


def _other(source: str, options: t.Sequence[str], volumes: t.Mapping[str, str]) -> str:
    if source in volumes:
        return volumes[source]
    for place in volumes:
        if place.startswith("/") and source.startswith(place + "/"):
            return volumes[place] + source[len(place) :]
    # Of an overlay (O) each container has a layer of its own, unless the layer has a place.
    if "ro" in options or "O" in options and not any(option.startswith("upperdir=") for option in options):
        return source
    raise CloneError(
        "{0} is no part of the snapshot, and the clone would write to it, too: mount it read-only in the container, or put it in a volume of its own".format(
            source
        )
    )
