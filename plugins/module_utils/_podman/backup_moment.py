# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Backups of containers at one moment, each into its store of a repository."""

from __future__ import annotations

import json
import os
import tempfile
import typing as t

from .._core.backups import Backups, Row, seconds
from .._core.disk_store import Part, take
from .snapshots import cgroup_of, folders, image_volumes


def take_all(
    backups: t.Sequence[Backups],
    containers: t.Sequence[t.Mapping[str, t.Any]],
    documents: t.Sequence[t.Mapping[str, t.Any]],
    name: str,
    options: t.Sequence[str],
    memory: t.Mapping[str, str] | None = None,
) -> list[Row]:
    """All volumes of containers at one moment, while they are in use, and documents beside them, by their names.

    `memory` is a file that is there when the moment has passed. The options halt the one container then, so nothing of it has to stand still.
    """
    with tempfile.TemporaryDirectory(prefix="handover-") as folder:
        parts = []
        for each, container, along in zip(backups, containers, documents):
            files = {word: os.path.join(folder, "{0}-{1}".format(each.workload, word)) for word in along}
            for word, path in files.items():
                with open(path, "w", encoding="utf-8") as target:
                    json.dump(along[word], target)
            cgroup = cgroup_of(container) if memory is None else ""
            parts.append(Part(each.store, image_volumes(container), {**files, **(memory or {})}, folders(container), cgroup))
        taken = take(parts, name, options)
    return [
        {**point, "workload": each.workload, "taken": seconds(point["taken"]), "volumes": _reasons(point["volumes"])} for each, point in zip(backups, taken)
    ]


def _reasons(volumes: t.Iterable[Row]) -> list[Row]:
    """The helper's way out is for a tracker that was begun by hand: here the next backup has begun another."""
    return [{**volume, "why": volume.get("why", "").partition(": `pcopy track")[0]} for volume in volumes]
