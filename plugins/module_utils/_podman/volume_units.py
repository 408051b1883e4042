# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The systemd units that mount an image volume again after a reboot.

Two units a volume, both plain text that an administrator can read:

- `handover-loop-<name>.service` attaches the image to a loop device with direct I/O, which a mount option cannot ask for.
  It goes when nothing needs it any more, and takes the loop device along.
- `<mountpoint>.mount` requires it and mounts the image. mount(8) finds the loop device that is attached already and takes
  that one. As an ordinary mount unit it is what `RequiresMountsFor=` of other units refers to, and systemd sees it as
  active whoever did the mounting: this collection's module at run time, or the helper during a cutover.

The mount belongs to multi-user.target, not to local-fs.target: a damaged image must not keep a host from booting, and the
image may itself lie on a file system that is mounted late.
"""

from __future__ import annotations

import os
import typing as t

UNIT_DIRECTORY = "/etc/systemd/system"
# It is there on a host that systemd runs.
SYSTEMD_RUNS = "/run/systemd/system"
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789:_.")
_HEADER = "# Written by livefleet.handover.image_volume; changes made here are lost.\n"


def escape_path(path: str) -> str:
    """The name that systemd gives a path: `/` becomes `-`, what is not plain becomes `\\xHH`."""
    parts = [part for part in path.split("/") if part]
    if not parts:
        return "-"
    joined = "/".join(parts)
    escaped = []
    for index, byte in enumerate(joined.encode("utf-8")):
        character = chr(byte)
        if character == "/":
            escaped.append("-")
        elif character in _PLAIN and not (character == "." and index == 0):
            escaped.append(character)
        else:
            escaped.append(f"\\x{byte:02x}")
    return "".join(escaped)


def mount_unit_name(mountpoint: str) -> str:
    return escape_path(mountpoint) + ".mount"


def loop_unit_name(volume: str) -> str:
    return f"handover-loop-{volume}.service"


def volume_units(
    volume: str,
    image: str,
    mountpoint: str,
    fstype: str,
    options: t.Sequence[str],
    losetup: str,
    sector_size: int,
) -> dict[str, str]:
    """File name → text of the units of one volume. Paths are plain (no blanks, quotes, `%` or `$`): the module sees to that."""
    loop = loop_unit_name(volume)
    mount_options = ",".join(["loop", *options])
    return {
        loop: _HEADER
        + f"""\
[Unit]
Description=Loop device of the image volume {volume}
RequiresMountsFor={image}
Wants=modprobe@loop.service
After=modprobe@loop.service
StopWhenUnneeded=yes

[Service]
Type=oneshot
RemainAfterExit=yes
# Refused direct I/O is no failure: the device is attached then, and works through the page cache.
ExecStart=-{losetup} --find --nooverlap --direct-io=on --sector-size={sector_size} {image}
ExecStop=/bin/sh -c 'for device in $$({losetup} --noheadings --output NAME --associated "$$1"); do {losetup} --detach "$$device"; done' sh {image}
""",
        mount_unit_name(mountpoint): _HEADER
        + f"""\
[Unit]
Description=Image volume {volume}
DefaultDependencies=no
Requires={loop}
After={loop}
Conflicts=umount.target
Before=umount.target
# Containers that are started again at boot must find their volume, not the empty directory underneath it.
# And a move that a power cut has interrupted is recovered only with the volume in place.
Before=podman-restart.service podman.service handover-recover.service

[Mount]
What={image}
Where={mountpoint}
Type={fstype}
Options={mount_options}

[Install]
WantedBy=multi-user.target
""",
    }


def installed(units: t.Mapping[str, str], directory: str) -> dict[str, str | None]:
    """The text that each of these units has on this host now."""
    texts: dict[str, str | None] = {}
    for name in units:
        try:
            with open(os.path.join(directory, name), encoding="utf-8") as source:
                texts[name] = source.read()
        except FileNotFoundError:
            texts[name] = None
    return texts


def is_enabled(unit: str, directory: str) -> bool:
    return os.path.lexists(os.path.join(directory, "multi-user.target.wants", unit))
