# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The KVM guests of a host, as workloads to place, and the unfinished moves of guests.

A host has guests if it has one of libvirt's daemons; one that does not answer is an error, since a host must not count as empty on which
guests run unseen.
"""

from __future__ import annotations

import json
import os
import typing as t

from .._core.host import allocated, read_text
from .._core.loop import Mount
from .._core.placement import GUEST
from .._core.runtime import Runtime
from .cache import NO, is_shared
from .domain_xml import Disk
from .host import place_of
from .libvirt import Libvirt
from .needs import MEDIA

DAEMONS = ("libvirtd", "virtqemud")
URI = "qemu:///system"

# The notes that the role kvm_migrate writes before it begins and removes when all is done: a file for each guest.
MOVES = "/var/lib/handover/guests"


def has_libvirt(runtime: Runtime) -> bool:
    return any(runtime.find(daemon) for daemon in DAEMONS)


def state_of(runtime: Runtime, name: str) -> str:
    """Of a guest of this host, as virsh calls it; empty where there is none of that name."""
    if not has_libvirt(runtime):
        return ""
    libvirt = Libvirt(runtime, URI)
    return libvirt.state(name) if name in libvirt.names() else ""


def workloads(runtime: Runtime, mounts: t.Sequence[Mount]) -> list[dict[str, t.Any]]:
    """Every guest, running or not."""
    libvirt = Libvirt(runtime, URI)
    return [_workload(libvirt, name, mounts) for name in sorted(libvirt.names())]


def _workload(libvirt: Libvirt, name: str, mounts: t.Sequence[Mount]) -> dict[str, t.Any]:
    guest, state = libvirt.guest(name), libvirt.state(name)
    own = [disk for disk in guest.disks if _is_of_this_host(disk, mounts)]
    return {
        "name": name,
        "kind": GUEST,
        "running": state == "running",
        "state": state,
        "labels": {},
        "memory": guest.memory if state == "running" else 0,
        "disk": sum(allocated(t.cast(str, disk.source)) for disk in own),
        "storage": "copy" if own else "shared",
        "disks": [disk.target for disk in own],
    }


def _is_of_this_host(disk: Disk, mounts: t.Sequence[Mount]) -> bool:
    if disk.source is None or disk.read_only or disk.kind != "file" or disk.device in MEDIA:
        return False
    return is_shared(disk, place_of(disk.source, mounts)) == NO


def unfinished(names: t.Container[str], folder: str = MOVES) -> list[dict[str, t.Any]]:
    """The moves that were begun and not ended, like the sessions of the helper; `names` are the guests that are still here."""
    found = []
    for file in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
        try:
            move = json.loads(read_text(os.path.join(folder, file)))
            guest, destination = move["guest"], move["destination"]
        except (ValueError, KeyError, TypeError):
            continue  # cut off while it was written: nothing had begun
        found.append(
            {
                "id": guest,
                "role": "source",
                "workload": guest,
                "kind": GUEST,
                "storage": move.get("storage", ""),
                "disks": move.get("disks", []),
                "state": "presync" if guest in names else "in_doubt",
                "ended": False,
                "running": False,
                "destination": destination,
            }
        )
    return found
