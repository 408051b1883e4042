# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The file system below a directory that a container mounts."""

from __future__ import annotations

import os
import typing as t

from .._core import host, loop


def image_volume_below(directory: str, mounts: list[loop.Mount]) -> dict[str, t.Any] | None:
    """The image volume, a file system on a loop device, that a directory lies on; None if it lies on none."""
    below = [mount for mount in mounts if (directory + "/").startswith(mount.mountpoint.rstrip("/") + "/")]
    # The last of the longest: mounts stack, and a later one lies on top.
    mount = max(enumerate(below), key=lambda each: (len(each[1].mountpoint), each[0]))[1] if below else None
    if mount is None:
        return None
    kernel_name = os.path.basename(os.path.realpath("/sys/dev/block/" + mount.device))
    image = host.backing_file("/sys", kernel_name)
    if not image:
        return None
    name = os.path.basename(image)
    return {
        "name": name[: -len(".img")] if name.endswith(".img") else name,
        "image": image,
        "device": "/dev/" + kernel_name,
        "mountpoint": mount.mountpoint,
        "fstype": mount.fstype,
        "options": ",".join(host.mount_options(mount.mountpoint)),
        "size": host.block_device_size("/sys", kernel_name),
        "allocated": host.allocated(image),
    }
