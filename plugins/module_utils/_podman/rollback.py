# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whole copies take the place of files and folders that a rollback replaces.

A kill at any step leaves the container unable to start: the images go aside first, and come last. Without its image a volume is not mounted, and the
helper's OCI hook starts no container on the folder underneath. The rollback once more ends it.
"""

from __future__ import annotations

import os
import shutil
import typing as t

from .._core.runtime import HandoverError
from .._core.sizes import format_size
from . import volume_files as files, volume_observer

STAGED = ".rollback"
ASIDE = volume_observer.ASIDE
# The end of a folder's name while the helper writes it in place.
AWAY = ".handover-rollback"
# The end of an image's name while the container's own layer and its disks are of two moments.
HELD = volume_observer.HELD


def is_half(image: str) -> bool:
    """Whether a rollback that was cut off has left no disk there, or one that is neither old nor new."""
    return not os.path.exists(image) or files.begins_with(image, volume_observer.ROLLBACK_BEGUN)


def place(image: str) -> str:
    """Where a disk is that a rollback may have taken the name of."""
    return image if os.path.lexists(image) else image + HELD


def look_at_names(images: t.Iterable[str]) -> None:
    """An error where an image was made while a rollback had the volume's own under another name: neither may take the place of the other."""
    for path in images:
        if os.path.lexists(path) and os.path.lexists(path + HELD):
            raise HandoverError(
                "{0} was made while a rollback that has not ended had the volume as {0}{1}: move the one away that is not needed, and go back once more".format(
                    path, HELD
                )
            )


def is_away(folder: str) -> bool:
    """Whether a rollback that was cut off has left a folder under another name, or none."""
    return os.path.lexists(folder + AWAY) or not os.path.isdir(folder)


def look_at_sizes(volumes: t.Iterable[t.Mapping[str, t.Any]]) -> None:
    """An error where a disk has been grown since: it is written in place, which would be refused when the container has been stopped."""
    for volume in volumes:
        image = place(volume["image"])
        if volume.get("size") and os.path.isfile(image) and os.path.getsize(image) != volume["size"]:
            raise HandoverError(
                "the volume {0} has {1} now, and had {2} at the snapshot: make a new container of the snapshot (clone), or mount it and copy files out".format(
                    volume["name"], format_size(os.path.getsize(image)), format_size(volume["size"])
                )
            )


def hold(images: t.Sequence[str], folders: t.Sequence[str]) -> None:
    """Takes the names of disks away before something else is put in place that has to fit them. The helper goes on from such a folder."""
    look_at_names(images)
    for path in images:
        if os.path.lexists(path):
            os.rename(path, path + HELD)
    for path in folders:
        if not os.path.lexists(path + AWAY):
            os.rename(path, path + AWAY)
    _sync((*images, *folders))


def let_go(images: t.Sequence[str], folders: t.Sequence[str] = ()) -> None:
    """Gives them their names back; folders, too, if nothing was written."""
    look_at_names(images)
    for path in folders:
        if os.path.lexists(path + AWAY) and not os.path.lexists(path):
            os.rename(path + AWAY, path)
    _sync(folders)
    for path in images:  # last, as the container can start with them
        if os.path.lexists(path + HELD):
            os.rename(path + HELD, path)
    _sync(images)


def swap(images: t.Sequence[str], others: t.Sequence[str]) -> None:
    """Puts the copies `<path>.rollback` in place. A path whose copy is in place already is left."""
    os.sync()  # the copies are whole on the disk before anything gives way to them
    for path in images:
        _put_aside(path)
    _sync(images)
    for path in others:
        _put_aside(path)
        _put_in_place(path)
    _sync(others)
    for path in images:
        _put_in_place(path)
    _sync(images)
    for path in (*images, *others):
        remove(path + ASIDE)


def _put_aside(path: str) -> None:
    """Also of an image that a rollback which was cut off has left held."""
    there = place(path)
    if os.path.lexists(path + STAGED) and os.path.lexists(there):
        remove(path + ASIDE)
        os.rename(there, path + ASIDE)


def _put_in_place(path: str) -> None:
    if os.path.lexists(path + STAGED):
        os.rename(path + STAGED, path)


def _sync(paths: t.Iterable[str]) -> None:
    for folder in {os.path.dirname(path) for path in paths}:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def remove(path: str) -> None:
    """A half removed file must not become part of a new one."""
    try:
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        elif os.path.lexists(path):
            os.unlink(path)
    except OSError as exc:
        raise HandoverError("{0} cannot be removed: {1}: remove it, and go back once more".format(exc.filename or path, exc.strerror)) from exc
