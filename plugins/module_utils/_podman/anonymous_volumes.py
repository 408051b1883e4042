# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Anonymous volumes in a create command, pinned to the names that podman gave them.

`--volume /data`, `--mount type=volume,destination=/data` and an image's VOLUME make podman draw a name. The twin names the same volume, or
podman would draw another name there. Everything here is a pure function.
"""

from __future__ import annotations

import posixpath
import typing as t

Option = t.Tuple[str, t.Optional[str]]

_DESTINATION = ("destination", "dst", "target")
_SOURCE = ("source", "src")


def pinned(options: t.Sequence[Option], volumes: t.Mapping[str, str]) -> list[Option]:
    """The options with each of these volumes (destination → name) named; those of the image get an option of their own."""
    left = dict(volumes)
    written = [_named(option, left) for option in options]
    return written + [("volume", "{0}:{1}".format(name, destination)) for destination, name in sorted(left.items())]


def _named(option: Option, left: dict[str, str]) -> Option:
    """The option that names its volume, which is taken from those that are left."""
    name, value = option
    if name == "volume" and value and ":" not in value:
        volume = left.pop(posixpath.normpath(value), None)
        return (name, "{0}:{1}".format(volume, value)) if volume else option
    if name == "mount" and value:
        given = dict(part.partition("=")[::2] for part in value.split(","))
        destination = next((given[key] for key in _DESTINATION if key in given), "")
        if given.get("type", "volume") == "volume" and not any(given.get(key) for key in _SOURCE):
            volume = left.pop(posixpath.normpath(destination), None) if destination else None
            kept = [part for part in value.split(",") if part.partition("=")[0] not in _SOURCE]
            return (name, ",".join([*kept, "source=" + volume])) if volume else option
    return option
