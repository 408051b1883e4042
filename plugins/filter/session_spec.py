# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

Rows = t.Sequence[t.Mapping[str, t.Any]]

# The keys that a side of a session is told of a volume or a directory.
SOURCE_VOLUME = ("name", "device", "size", "mountpoint", "same_device")
DESTINATION_VOLUME = ("name", "image", "size", "mountpoint", "fstype", "options", "device", "same_device", "folders")
DESTINATION_DIRECTORY = ("name", "file", "size")
DESTINATION_TMPFS = ("name", "size", "tmpfs", "member")
# The options by which image_volume knows one.
VOLUME = ("name", "image", "mountpoint", "fstype", "podman_volume")


def source_volumes(volumes: Rows, tracker: str) -> list[dict[str, t.Any]]:
    """The volumes as the source's side is told of them."""
    return [{**_only(volume, SOURCE_VOLUME), "tracker": tracker} for volume in volumes]


def destination_volumes(volumes: Rows, keep: bool) -> list[dict[str, t.Any]]:
    """The volumes as the destination's side is told of them. kept: the image of an earlier move, from which only the differences travel."""
    return [{**_only(volume, DESTINATION_VOLUME), "kept": volume["image"] + ".migrated" if keep else ""} for volume in volumes]


def destination_directories(directories: Rows, mounts: Rows, bind_paths: t.Sequence[str]) -> list[dict[str, t.Any]]:
    """The directories as the destination's side is told of them: where the twin has its volumes. A bind mount has the same path on both hosts."""
    path = {**{mount["name"]: mount["source"] for mount in mounts}, **{bind: bind for bind in bind_paths}}
    return [{**_only(directory, DESTINATION_DIRECTORY), "path": path[directory["name"]]} for directory in directories]


def destination_tmpfs(tmpfs: Rows, folder: str) -> list[dict[str, t.Any]]:
    """The tmpfs as the destination's side is told of them: their files wait in the session's folder."""
    return [{**_only(each, DESTINATION_TMPFS), "path": f"{folder}/tmpfs/{number}"} for number, each in enumerate(tmpfs)]


def volume_steps(volumes: Rows, state: str) -> list[dict[str, t.Any]]:
    """Steps of C(host_steps) that bring the image volumes to a state: as their home at each boot, or to nothing."""
    more = {"absent": lambda _volume: {"force": True}, "mounted": lambda volume: {"discard": "discard" in volume["options"].split(",")}}[state]
    return [{"image_volume": {**_only(volume, VOLUME), "state": state, **more(volume)}} for volume in volumes]


def _only(row: t.Mapping[str, t.Any], keys: t.Sequence[str]) -> dict[str, t.Any]:
    return {key: row[key] for key in keys if key in row}


class FilterModule:
    """What the sides of a session are told, and steps on their volumes."""

    def filters(self) -> dict[str, t.Callable]:
        """Name → filter."""
        return {
            "source_volumes": source_volumes,
            "destination_volumes": destination_volumes,
            "destination_directories": destination_directories,
            "destination_tmpfs": destination_tmpfs,
            "volume_steps": volume_steps,
        }
