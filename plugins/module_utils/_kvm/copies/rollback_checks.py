# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What stands in the way of a guest that is to go back to a snapshot of its own: tables of sentences. Nothing is touched before all of them are silent."""

from __future__ import annotations

import json
import os
import typing as t
from xml.etree import ElementTree

from ..._core import host
from ..._core.move import SPARE_DISK
from ..._core.runtime import HandoverError
from ..._core.sizes import format_size
from . import guest_checks, restore_checks
from .guest_look import GuestFacts
from .guest_restorer import places_of
from .guest_rollback import AWAY, GuestRollback

Check = t.Callable[[GuestFacts, GuestRollback], t.Optional[str]]


def demand(facts: GuestFacts, back: GuestRollback, states: t.Container[str]) -> None:
    """An error with all that is in the way. `states` are those in which the guest may be."""
    found = [] if facts.state in states else [f"it is '{facts.state}': end it first (`virsh shutdown {facts.name}`), or resume it"]
    found += [sentence for check in CHECKS if (sentence := check(facts, back))]
    if not found:
        places = tuple(each["path"] for each in back.files)
        sources = ElementTree.fromstring(back.definition).findall("devices/disk/source[@file]")
        images = {drive["image"] for drive in back.record["drives"]}
        read_only = tuple(path for source in sources if (path := source.get("file", "")) not in images)
        here = restore_checks.look(back.libvirt, back.names, places_of)
        coming = restore_checks.Coming(back.names, back.definition, places, {}, read_only)
        found = restore_checks.obstacles(here, coming, back.libvirt, restore_checks.IN_PLACE)
    if found:
        raise HandoverError(f"{facts.name} cannot go back to {back.record['name']}: " + "; ".join(found))


def _guest(facts: GuestFacts, back: GuestRollback) -> str | None:
    if facts.uuid == back.record["container"]:
        return None
    return f"the {facts.name} of this host is another guest (UUID {facts.uuid}, and {back.record['container']} in the snapshot): {CLONE}"


def _taken(facts: GuestFacts, back: GuestRollback) -> str | None:
    """The checks of a snapshot that are of the guest, and not of its disks."""
    found = [sentence for check in guest_checks.CHECKS if check not in OF_THE_SNAPSHOT and (sentence := check(facts))]
    return "; ".join(found) or None


# The files beside the disks are those of the snapshot, and may be gone here.
OF_THE_SNAPSHOT = (guest_checks.missing_files,)


def _drives(facts: GuestFacts, back: GuestRollback) -> str | None:
    """Another image in a disk's place is of another history, and a disk that was added has no such moment."""
    now = {disk.target: (disk.path, disk.format) for disk in guest_checks.kept(facts)}
    then = {drive["name"]: (drive["image"], drive["format"]) for drive in back.record["drives"]}
    differ = sorted(name for name in {*now, *then} if now.get(name) != then.get(name))
    if not differ:
        return None
    told = "; ".join(f"{name} is {_image(now.get(name))} now, and was {_image(then.get(name))}" for name in differ)
    return f"its disks are others than in the snapshot ({told}): {CLONE}"


def _image(found: tuple[str, str] | None) -> str:
    return f"{found[0]} ({found[1]})" if found else "none"


def _places(facts: GuestFacts, back: GuestRollback) -> str | None:
    for drive in back.record["drives"]:
        there = [path for path in (drive["image"], drive["image"] + AWAY) if os.path.lexists(path)]
        if not there:
            return f"the image {drive['image']} is gone: {CLONE}"
        if len(there) == 2:
            return f"{there[0]} and {there[1]} are both there, and the second one is of a rollback that was cut off: move the first one away"
    return None


def _sizes(facts: GuestFacts, back: GuestRollback) -> str | None:
    for drive in back.record["drives"]:
        if not os.path.lexists(back.place(drive)):
            return None
        size = _virtual_size(back, drive)
        if size != drive["size"]:
            return f"the disk {drive['name']} has {format_size(size)} now, and had {format_size(drive['size'])} at the snapshot: {CLONE}"
    return None


def _virtual_size(back: GuestRollback, drive: t.Mapping[str, t.Any]) -> int:
    runtime = back.libvirt.runtime
    tool = runtime.tool("qemu-img", "qemu-utils")
    said = runtime.run([tool, "info", "--force-share", "--output=json", "-f", drive["format"], back.place(drive)]).stdout
    return int(json.loads(said)["virtual-size"])


def _room(facts: GuestFacts, back: GuestRollback) -> str | None:
    """They are written in place, and take what they have no blocks for."""
    data = back.backups.store.data(back.record["name"])
    need: dict[str, int] = {}
    for drive in back.record["drives"]:
        folder, place = os.path.dirname(drive["image"]), back.place(drive)
        more = max(0, data[drive["name"]] - (host.allocated(place) if os.path.exists(place) else 0))
        need[folder] = need.get(folder, 0) + more
    for folder, bytes_ in need.items():
        free = host.free_space(folder)
        if bytes_ + SPARE_DISK > free:
            return f"it takes {format_size(bytes_)} more in {folder}, and {format_size(free)} is free: free {format_size(bytes_ + SPARE_DISK - free)} there"
    return None


CLONE = "make another guest of the snapshot (playbook backup_restore with handover_clone)"
CHECKS: tuple[Check, ...] = (_guest, _taken, _drives, _places, _sizes, _room)
