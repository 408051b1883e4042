# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How the disks of a guest that runs get into the store: QEMU serves them and the helper pulls them, or QEMU pushes them into the store's folder itself."""

from __future__ import annotations

import os
import typing as t

from ..._core import host
from ..._core.disk_store import is_elsewhere
from ..._core.move import SPARE_DISK
from ..._core.runtime import HandoverError
from ..._core.sizes import format_size
from ..libvirt import Libvirt
from .guest_checks import Kind, kept
from .guest_look import RUNNING, GuestFacts
from .guest_moment import folder_of

AUTO, PULL, PUSH = "auto", "pull", "push"
MODES = (AUTO, PULL, PUSH)
# What a guest overwrites during a backup is taken to be at most this part of a disk.
SCRATCH_PART = 20


def choose(libvirt: Libvirt, facts: GuestFacts, place: str, asked: str, kind: Kind, warn: t.Callable[[str], None]) -> str:
    """An error where it cannot be done. `place` is the folder of the stores."""
    if facts.state != RUNNING:
        return PULL  # no QEMU has them, and its server of images does
    if asked == PUSH:
        if is_elsewhere(place):
            raise HandoverError(f"{place} is on another host, and QEMU pushes into folders of this one: have the disks pulled (mode: {PULL}), or mount it here")
        return PUSH
    why = _no_pull(libvirt, facts, kind)
    if why and (asked == PULL or is_elsewhere(place)):
        raise HandoverError(why)
    if why:
        warn(f"QEMU pushes the disks of {facts.name}, and its writes wait for the store meanwhile: {why}, to have them pulled")
    return PUSH if why else PULL


def _no_pull(libvirt: Libvirt, facts: GuestFacts, kind: Kind) -> str:
    """Why they cannot be served, with the way out; empty: they can."""
    try:
        folder_of(libvirt, facts.name)
    except HandoverError as exc:
        return str(exc)
    for disk in kept(facts):
        folder = os.path.dirname(disk.path)
        need, free = SPARE_DISK + disk.size // SCRATCH_PART, host.free_space(folder)
        if need > free:
            return (
                f"{format_size(free)} is free in {folder}, and what {facts.name} overwrites during a {kind.noun} is kept there: free {format_size(need - free)}"
            )
    return ""
