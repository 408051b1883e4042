# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The program that a container starts with, and the folder that it starts in, where they lie in a volume that is still to come.

An OCI runtime looks for both when it creates a container, and refuses if they are not there. A container that is only initialised never
runs the program, so an empty file and an empty folder are enough until the volume arrives.
"""

from __future__ import annotations

import os
import posixpath
import typing as t

Document = t.Mapping[str, t.Any]
# What podman takes for an image that does not say.
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def folder_of(inspect: Document) -> str:
    """The folder in the container that it starts in."""
    return (inspect.get("Config") or {}).get("WorkingDir") or "/"


def programs_of(inspect: Document) -> list[str]:
    """The paths in the container at which the runtime looks for its program."""
    name = inspect.get("Path") or ""
    if not name:
        return []
    if "/" in name:
        return [posixpath.normpath(posixpath.join(folder_of(inspect), name))]
    variables = dict(word.partition("=")[::2] for word in (inspect.get("Config") or {}).get("Env") or [])
    return [posixpath.normpath(posixpath.join(folder, name)) for folder in variables.get("PATH", _PATH).split(":") if folder.startswith("/")]


def shown_at(path: str, shown: t.Mapping[str, str]) -> str | None:
    """Where a path in the container is on the host; `shown` are the folders there by the places where the container has them. None: in none."""
    below = [place for place in shown if path == place or path.startswith(place.rstrip("/") + "/")]
    if not below:
        return None
    place = max(below, key=len)
    return posixpath.normpath(posixpath.join(shown[place], posixpath.relpath(path, place)))


def make(inspect: Document, shown: t.Mapping[str, str]) -> None:
    """Makes those that are in these folders, which are empty. The container's user may be any."""
    old = os.umask(0o022)
    try:
        folder = shown_at(folder_of(inspect), shown)
        if folder:
            os.makedirs(folder, exist_ok=True)
        for program in filter(None, (shown_at(path, shown) for path in programs_of(inspect))):
            os.makedirs(os.path.dirname(program), exist_ok=True)
            os.close(os.open(program, os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW, 0o755))
    finally:
        os.umask(old)
