# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The figures of this host by which libvirt's options are chosen: its idle processors, and the speed of a link."""

from __future__ import annotations

import os
import time

# How long idle processors are measured.
IDLE_SECONDS = 0.25


def idle_processors(seconds: float = IDLE_SECONDS, path: str = "/proc/stat") -> float:
    """How many processors' worth of time this host leaves idle."""

    def look() -> tuple[int, int]:
        with open(path, encoding="ascii") as source:
            fields = [int(word) for word in source.readline().split()[1:9]]
        return fields[3] + fields[4], sum(fields)  # idle and waiting for disks

    idle, total = look()
    time.sleep(seconds)
    idle_later, total_later = look()
    share = (idle_later - idle) / max(1, total_later - total)
    return share * (os.cpu_count() or 1)


def link_speed(address: str, sys_net: str = "/sys/class/net", route: str = "/proc/net/route") -> int | None:
    """Mbit/s of the interface that leads to an IPv4 address, or None where the kernel does not know: virtual interfaces make theirs up."""
    device = _device_to(address, route)
    if device is None or not os.path.exists(os.path.join(sys_net, device, "device")):
        return None
    try:
        with open(os.path.join(sys_net, device, "speed"), encoding="ascii") as source:
            speed = int(source.read())
    except (OSError, ValueError):
        return None
    return speed if speed > 0 else None


def _device_to(host: str, route: str) -> str | None:
    import socket
    import struct

    try:
        wanted = struct.unpack("<I", socket.inet_aton(socket.gethostbyname(host)))[0]
    except OSError:
        return None
    best: tuple[int, str] | None = None
    with open(route, encoding="ascii") as source:
        for fields in map(str.split, source.readlines()[1:]):
            target, mask = int(fields[1], 16), int(fields[7], 16)
            if wanted & mask == target:
                best = max(best or (-1, ""), (bin(mask).count("1"), fields[0]))
    return best[1] if best else None
