# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What stands in the way of a guest that is to come back on this host: a table of sentences. Nothing is touched before all of them are silent."""

from __future__ import annotations

import os
import re
import typing as t
from dataclasses import dataclass
from xml.etree import ElementTree

from ..._core import host
from ..._core.move import SPARE_DISK
from ..._core.runtime import HandoverError
from ..._core.sizes import format_size
from ..libvirt import Libvirt
from ..state import TPM_FOLDER, saved
from . import apart
from .guest_look import OFF
from .restored_xml import Names


@dataclass(frozen=True)
class Here:
    """The guest of that name on this host, if there is one."""

    state: str  # empty: there is none
    uuid: str
    definition: str
    places: frozenset[str]  # its images and the files beside them
    snapshots: int
    name_of_uuid: str  # the guest here that has the UUID
    macs: frozenset[str] = frozenset()  # of all guests here, where some are asked for


@dataclass(frozen=True)
class Coming:
    """The guest that comes back."""

    names: Names
    definition: str
    places: tuple[str, ...]
    need: t.Mapping[str, int]  # bytes, by folder
    read_only: tuple[str, ...]  # images that it needs, and no backup has


def look(libvirt: Libvirt, names: Names, places_of: t.Callable[[ElementTree.Element], t.Iterable[str]]) -> Here:
    """Asks libvirt, and changes nothing."""
    known = libvirt.names()
    owner = libvirt.virsh("domname", "--domain", names.uuid, accept=(0, 1)).strip()
    if names.new not in known:
        return Here("", "", "", frozenset(), 0, owner, _macs_of(libvirt, known) if names.macs else frozenset())
    definition = libvirt.definition(names.new)
    root = ElementTree.fromstring(definition)
    snapshots = libvirt.virsh("snapshot-list", "--domain", names.new, "--name").split()
    return Here(libvirt.state(names.new), root.findtext("uuid", ""), definition, frozenset(places_of(root)), len(snapshots), owner)


def _macs_of(libvirt: Libvirt, known: t.Iterable[str]) -> frozenset[str]:
    definitions = (ElementTree.fromstring(libvirt.definition(name)) for name in known)
    return frozenset(mac.get("address", "").lower() for root in definitions for mac in root.findall("devices/interface/mac"))


def demand(here: Here, coming: Coming, libvirt: Libvirt) -> None:
    """An error with all that is in the way."""
    found = obstacles(here, coming, libvirt, CHECKS)
    if found:
        raise HandoverError(f"{coming.names.new} cannot be restored on this host: " + "; ".join(found))


def obstacles(here: Here, coming: Coming, libvirt: Libvirt, checks: t.Sequence[Check]) -> list[str]:
    """All that these checks and the needs of the definition find."""
    found = [sentence for check in checks if (sentence := check(here, coming))]
    return found + [sentence for need in NEEDS if (sentence := need(ElementTree.fromstring(coming.definition), libvirt))]


Check = t.Callable[[Here, Coming], t.Optional[str]]
Need = t.Callable[[ElementTree.Element, Libvirt], t.Optional[str]]


def _off(here: Here, coming: Coming) -> str | None:
    if here.state in ("", OFF) or coming.names.is_another:
        return None
    return f"it is '{here.state}' here and must not run twice: end it first (`virsh shutdown {coming.names.new}`), or give the restored one another name"


def _taken(here: Here, coming: Coming) -> str | None:
    if not coming.names.is_another or not here.state:
        return None
    return f"there is a guest {coming.names.new} already: choose another name"


def _same(here: Here, coming: Coming) -> str | None:
    if here.state and not coming.names.is_another and here.uuid != coming.names.uuid:
        return f"the {coming.names.new} of this host is another guest (UUID {here.uuid}, and {coming.names.uuid} in the backup): choose another name"
    if here.name_of_uuid and here.name_of_uuid != coming.names.new:
        return f"it is here by the name {here.name_of_uuid} (UUID {coming.names.uuid}): give the restored one another name (handover_clone)"
    return None


def _saved(here: Here, coming: Coming) -> str | None:
    path = saved(coming.names.new)
    if not os.path.exists(path):
        return None
    return f"libvirt has saved its memory ({path}), and would resume it over an older disk: `virsh managedsave-remove {coming.names.new}`"


def _snapshots(here: Here, coming: Coming) -> str | None:
    if not here.snapshots:
        return None
    return f"it has {here.snapshots} snapshots of libvirt's, which are of the disks as they are: delete them, or give the restored one another name"


def _places(here: Here, coming: Coming) -> str | None:
    others = [path for path in coming.places if os.path.lexists(path) and path not in here.places]
    return f"{', '.join(others)} is there and none of its files: move it away, if nothing needs it" if others else None


def _folders(here: Here, coming: Coming) -> str | None:
    # libvirt makes that of TPMs with the first one, and so does a restore.
    gone = sorted({folder for path in coming.places if not os.path.isdir(folder := os.path.dirname(path)) and folder != TPM_FOLDER})
    return f"the folder {', '.join(gone)} is missing: make it" if gone else None


def _room(here: Here, coming: Coming) -> str | None:
    for folder, need in coming.need.items():
        free = host.free_space(folder)
        if need + SPARE_DISK > free:
            return f"it takes {format_size(need)} in {folder}, and {format_size(free)} is free: free {format_size(need + SPARE_DISK - free)} there"
    return None


def _read_only(here: Here, coming: Coming) -> str | None:
    gone = [path for path in coming.read_only if not os.path.exists(path)]
    return f"{', '.join(gone)} is missing, which it reads and which is in no backup: bring it here" if gone else None


def _alone(here: Here, coming: Coming) -> str | None:
    found = apart.alone(ElementTree.fromstring(coming.definition)) if coming.names.is_another else []
    return f"{coming.names.old} has {' and '.join(found)}, which two guests cannot have: {apart.WAY_OUT}" if found else None


def _shared(here: Here, coming: Coming) -> str | None:
    """The definition may have more than the disks of the moment: those that were to come with its next start, or had been taken out until then."""
    if not coming.names.is_another:
        return None
    disks = ElementTree.fromstring(coming.definition).findall("devices/disk")
    found = [_target(disk) for disk in disks if disk.get("device") != "cdrom" and disk.find("readonly") is None and _is_elsewhere(disk, coming.places)]
    return f"{', '.join(found)} of {coming.names.old} is no part of it, and both guests would write to that: {apart.WAY_OUT}" if found else None


def _target(disk: ElementTree.Element) -> str:
    target = disk.find("target")
    return "" if target is None else target.get("dev", "")


def _is_elsewhere(disk: ElementTree.Element, places: t.Container[str | None]) -> bool:
    """Whether it has a source that is none of these."""
    source = disk.find("source")
    return source is not None and source.get("file") not in places


def _macs(here: Here, coming: Coming) -> str | None:
    """Those that were asked for."""
    count = len(ElementTree.fromstring(coming.definition).findall("devices/interface"))
    if len(coming.names.macs) > count:
        return f"{len(coming.names.macs)} hardware addresses are given, and {coming.names.old} has {count} interfaces: give one for each"
    wrong = [mac for mac in coming.names.macs if not _MAC.fullmatch(mac)]
    if wrong:
        return f"'{wrong[0]}' is no hardware address that an interface can have: write it as in 52:54:00:12:34:56"
    given = [mac.lower() for mac in coming.names.macs]
    twice = next((mac for mac in given if given.count(mac) > 1), "")
    if twice:
        return f"the hardware address {twice} is given to two interfaces: give each its own"
    taken = sorted({*given} & here.macs)
    return f"the hardware address {taken[0]} is another guest's of this host: choose another" if taken else None


# The second digit is even: an odd one is a group's address.
_MAC = re.compile("[0-9A-Fa-f][02468ACEace](:[0-9A-Fa-f]{2}){5}")

CHECKS: tuple[Check, ...] = (_off, _taken, _same, _saved, _snapshots, _places, _folders, _room, _read_only, _alone, _shared, _macs)
# Of a guest whose images are written in place.
IN_PLACE: tuple[Check, ...] = (_same, _saved, _snapshots, _places, _folders, _read_only)


def _bridges(root: ElementTree.Element, libvirt: Libvirt) -> str | None:
    wanted = {source.get("bridge", "") for source in root.findall("devices/interface[@type='bridge']/source")}
    gone = sorted(name for name in wanted if name and not os.path.exists(f"/sys/class/net/{name}"))
    return f"its bridge {', '.join(gone)} is missing here: make it" if gone else None


def _networks(root: ElementTree.Element, libvirt: Libvirt) -> str | None:
    wanted = {source.get("network", "") for source in root.findall("devices/interface[@type='network']/source")}
    active = set(libvirt.virsh("net-list", "--name").split()) if wanted else set()
    gone = sorted(wanted - active)
    return f"its network {', '.join(gone)} is not active here: define and start it (`virsh net-start`)" if gone else None


def _files(root: ElementTree.Element, libvirt: Libvirt) -> str | None:
    wanted = [root.findtext(f"os/{name}", "").strip() for name in ("kernel", "initrd", "loader")]
    gone = [path for path in wanted if path.startswith("/") and not os.path.exists(path)]
    return f"{', '.join(gone)} is missing here, which it starts from: bring it here" if gone else None


def _secrets(root: ElementTree.Element, libvirt: Libvirt) -> str | None:
    wanted = {each.get("secret", "") for each in root.findall("devices/tpm/backend/encryption")}
    known = libvirt.virsh("secret-list") if wanted else ""
    gone = sorted(each for each in wanted if each not in known)
    return f"the secret {', '.join(gone)} is missing here, with which its TPM's state is encrypted: define it (`virsh secret-define`)" if gone else None


def _definition(root: ElementTree.Element, libvirt: Libvirt) -> str | None:
    """libvirt makes QEMU's command line of it, and starts nothing."""
    said = libvirt.runtime.run(
        [*libvirt.command, "domxml-to-native", "--format", "qemu-argv", "--xml", "/dev/stdin"],
        accept=range(256),
        stdin=ElementTree.tostring(root, encoding="unicode"),
    )
    return f"libvirt does not take its definition here ({said.last_words})" if said.rc else None


NEEDS: tuple[Need, ...] = (_bridges, _networks, _files, _secrets, _definition)
