# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The fate of each disk of a guest: carried, the same on both hosts, or in the way. Pure: facts of both hosts in, findings out.

Shared is never believed. A file is shared where a stamp that one host put beside it is seen by the other; a device where both name one identity that
is unique in the world; and the operator names the unproven ones in kvm_migrate_shared_disks.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from .inventory import Finding

# The checks that may be ignored by name, and those that may not: other users' contents are no matter of taste.
CHECK, INSIDE = "disks", "inside_snapshots"
Facts = t.Mapping[str, t.Any]
Disk = t.Mapping[str, t.Any]


@dataclass(frozen=True)
class Move:
    """The request, and the findings of both hosts."""

    guest: str
    mode: str
    storage: str
    disks: t.Sequence[str]
    shared: t.Sequence[str]
    here: Facts
    there: Facts

    def travels(self, disk: Disk) -> bool:
        if self.storage == "shared" or disk["read_only"] or disk["kind"] == "network" or disk["target"] in self.shared:
            return False
        return not self.disks or disk["target"] in self.disks

    def layers(self, disk: Disk) -> list[Facts]:
        return list(disk["chain"])

    def thing(self, disk: Disk, path: str | None = None) -> str:
        name = disk["path"] or (f"{disk['pool']}/{disk['volume']}" if disk["volume"] else disk["kind"])
        return f"the disk {disk['target']} of {self.guest} ({name})" + (f" stands on {path}, which" if path and path != disk["path"] else "")


def findings(move: Move) -> list[Finding]:
    """All obstacles, and the remarks."""
    found = [*_named(move)]
    for disk in move.here["disks"]:
        for rule in RULES:
            sentence = rule(move, disk)
            if sentence:
                found.append(sentence if isinstance(sentence, Finding) else Finding(CHECK, sentence))
                break  # one sentence a cause
    return [*found, *_room(move)]


def travelling(move: Move) -> list[str]:
    """Targets of the disks that are copied. libvirt is told each of them: left alone it copies network disks onto themselves."""
    return [disk["target"] for disk in move.here["disks"] if move.travels(disk)]


def _named(move: Move) -> t.Iterator[Finding]:
    known = [disk["target"] for disk in move.here["disks"]]
    for variable, names in (("kvm_migrate_disks", move.disks), ("kvm_migrate_shared_disks", move.shared)):
        for name in sorted(set(names) - set(known)):
            yield Finding(CHECK, f"{variable} names {name}, and {move.guest} has no disk {name}: it has {', '.join(known) or 'none'}")
    if move.storage != "shared" and known and not travelling(move):
        yield Finding(CHECK, f"none of the disks of {move.guest} is copied: choose kvm_migrate_storage=shared, or name others in kvm_migrate_disks")
    for name in sorted(set(move.disks) & set(move.shared)):
        yield Finding(CHECK, f"the disk {name} is in kvm_migrate_disks and in kvm_migrate_shared_disks: take it out of one of them")


# --- one disk: the first rule that has something to say ---


def _readable(_move: Move, disk: Disk) -> str | None:
    return disk["problem"] or None


KINDS = ("file", "block", "volume", "network")
LAST_WAY = "or, if both hosts reach the same storage there, name it (kvm_migrate_shared_disks={target})"


def _kind(move: Move, disk: Disk) -> str | None:
    if disk["target"] in move.shared or disk["kind"] in KINDS:
        return None
    return f"{move.thing(disk)} is of the kind {disk['kind']}, which is this host's own: detach it, " + LAST_WAY.format(target=disk["target"])


def _resolved(move: Move, disk: Disk) -> str | None:
    if disk["kind"] == "volume" and not disk["path"]:
        return f"{move.thing(disk)} cannot be found by libvirt: start its pool (`virsh pool-start {disk['pool']}`), or refresh it"
    return None


def _is_here(move: Move, disk: Disk) -> str | None:
    for layer in move.layers(disk):
        seen = move.here["images"].get(layer["path"])
        if seen and seen["kind"] == "nothing":
            return f"{move.thing(disk, layer['path'])} is not on this host: put it there, or detach the disk"
        if seen and seen["kind"] == "dangling":
            return f"{move.thing(disk, layer['path'])} is a link that leads nowhere: mend the link, or detach the disk"
    return None


def _carried(move: Move, disk: Disk) -> str | None:
    """A disk that is copied."""
    if not move.travels(disk):
        return None
    top, seen = disk["chain"][0], move.here["images"][disk["chain"][0]["path"]]
    if disk["kind"] != "file" or seen["kind"] != "file":
        kind = "a volume of a pool" if disk["kind"] == "volume" else "a device"
        return (
            f"{move.thing(disk)} is {kind}, and image files alone are copied: convert it to an image file (`qemu-img convert`), "
            + LAST_WAY.format(target=disk["target"])
        )
    if top.get("data_file"):
        return f"{move.thing(disk)} keeps its data in another file ({top['data_file']}): convert it to an image of its own (`qemu-img convert`)"
    others = _others(move.here, top["path"])
    if others:
        return f"{move.thing(disk)} is used by {others}, too, and would be taken from under it: give each its own image, or keep it on shared storage"
    holders = move.here["holders"].get(top["path"])
    if holders and move.mode == "offline":
        return f"{move.thing(disk)} is open in {', '.join(holders)}: end that first"
    return _nothing_there(move, disk, top["path"])


def _nothing_there(move: Move, disk: Disk, path: str) -> str | None:
    there = move.there["images"].get(path, {})
    if not there.get("exists") or path in move.there["ours"]:
        return None
    return f"{path} is on the destination already, and {move.thing(disk)} would be written over it: move it away there, if nothing needs it"


def _others(side: Facts, path: str) -> str:
    return ", ".join(f"{use['guest']} ({'which runs' if use['running'] else 'which is off'})" for use in side["users"].get(path, []))


def _kept_whole(move: Move, disk: Disk) -> Finding | None:
    """QEMU copies a disk's present content, and not the snapshots kept inside of the image."""
    if not move.travels(disk) or move.mode == "offline" or not disk["chain"][0].get("snapshots"):
        return None
    names = ", ".join(disk["chain"][0]["snapshots"])
    return Finding(
        INSIDE,
        f"{move.thing(disk)} has snapshots inside ({names}), which a copy of a running guest leaves behind: shut it down and move it with "
        "kvm_migrate_mode=offline, or delete them (`qemu-img snapshot -d`)",
    )


def _base(move: Move, disk: Disk) -> str | None:
    """The backing files of an image that travels."""
    if not move.travels(disk) or len(disk["chain"]) < 2:
        return None
    if move.storage == "copy":
        if move.mode != "offline":
            return None  # QEMU reads through the chain, and the new image has no backing file
        return f"{move.thing(disk)} stands on another image ({disk['chain'][1]['path']}): choose kvm_migrate_storage=incremental, if the destination has that"
    for layer in disk["chain"][1:]:
        here, there = move.here["images"].get(layer["path"], {}), move.there["images"].get(layer["path"], {})
        if not there.get("exists"):
            return f"{move.thing(disk, layer['path'])} is not on the destination: copy it there, or choose kvm_migrate_storage=copy"
        if not here.get("digest") or here.get("digest") != there.get("digest"):
            return f"{move.thing(disk, layer['path'])} has other contents on the destination (by its digest): copy it there, or choose kvm_migrate_storage=copy"
    return None


def _same(move: Move, disk: Disk) -> str | None:
    """A disk that stays where it is."""
    if move.travels(disk) or disk["kind"] == "network" or (disk["read_only"] and disk["kind"] == "file"):
        return None
    named = disk["target"] in move.shared
    for layer in move.layers(disk):
        path = layer["path"]
        if not path.startswith("/"):
            continue  # QEMU reaches it over the network
        here, there = move.here["images"][path], move.there["images"].get(path, {"exists": False})
        if not there["exists"]:
            return f"{move.thing(disk, path)} is not on the destination: {_way(move, disk)}"
        others = "" if disk["shareable"] or path != disk["chain"][0]["path"] else _others(move.there, path) or _others(move.here, path)
        if others:
            return f"{move.thing(disk, path)} is used by {others}, too: two guests would write to it"
        if not named and not _proven(move, path, here, there):
            return (
                f"nothing proves that {path} is the same on the destination, and {move.thing(disk)} could be another guest's there: {_way(move, disk)}, "
                + LAST_WAY.format(target=disk["target"])
            )
        if here["kind"] == "block" and here["size"] != there.get("size"):
            return f"{move.thing(disk, path)} has {here['size']} bytes here and {there.get('size')} on the destination: they are two devices"
    return None


def _proven(move: Move, path: str, here: Facts, there: Facts) -> bool:
    if here["kind"] == "block":
        return bool(here["identity"]) and here["identity"] == there.get("identity")
    return path in move.there["stamped"] and here.get("inode") == there.get("inode")


def _way(move: Move, disk: Disk) -> str:
    if disk["kind"] == "file":
        return "put it on storage that both hosts mount, or have it copied (kvm_migrate_storage=copy)"
    return "give both hosts the same device"


Rule = t.Callable[[Move, Disk], t.Union[str, Finding, None]]
RULES: tuple[Rule, ...] = (_readable, _kind, _resolved, _is_here, _carried, _base, _kept_whole, _same)


# --- all disks together ---


def _room(move: Move) -> t.Iterator[Finding]:
    """Summed for each file system: disks that fit one by one may not fit together."""
    needed: dict[t.Any, int] = {}
    grown: dict[t.Any, int] = {}
    free: dict[t.Any, tuple[int, str]] = {}
    for disk in move.here["disks"]:
        if not move.travels(disk) or not disk["chain"] or disk["kind"] != "file":
            continue
        path = disk["chain"][0]["path"]
        there = move.there["images"].get(path)
        if there is None:
            continue
        layers = disk["chain"] if move.storage == "copy" else disk["chain"][:1]
        seen = [move.here["images"].get(layer["path"], {}) for layer in layers]
        place = there["file_system"]
        needed[place] = needed.get(place, 0) + sum(each.get("allocated", 0) for each in seen)
        grown[place] = grown.get(place, 0) + max([seen[0].get("size", 0), *(layer.get("virtual_size", 0) for layer in layers)])
        free[place] = (there["free"], path.rpartition("/")[0] or "/")
    for place, size in needed.items():
        room, folder = free[place]
        if size > room:
            yield Finding(CHECK, f"the disks of {move.guest} take {_mib(size)} in {folder} of the destination, which has {_mib(room)} free: make room there")
        elif grown[place] > room:
            sentence = f"the disks of {move.guest} may grow to {_mib(grown[place])} in {folder} of the destination, which has {_mib(room)} free"
            yield Finding(CHECK, sentence, refuses=False)


def _mib(size: int) -> str:
    return f"{size / 2**20:.0f} MiB"
