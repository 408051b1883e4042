# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Devices that are a driver of the kernel's and no hardware: a container finds the same on every host that has them."""

from __future__ import annotations

import os
import stat

# Their numbers are the kernel's for ever (Documentation/admin-guide/devices.txt). By each, the module that brings it.
NUMBERS = {"/dev/fuse": (10, 229), "/dev/net/tun": (10, 200)}
MODULES = {"/dev/fuse": "fuse", "/dev/net/tun": "tun"}


def present() -> list[str]:
    """Those that this host has."""
    return sorted(path for path, number in NUMBERS.items() if _number_of(path) == number)


def _number_of(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return (os.major(status.st_rdev), os.minor(status.st_rdev)) if stat.S_ISCHR(status.st_mode) else None
