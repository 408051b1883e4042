# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The result of the rules about disks for a move: findings, the disks that libvirt is told to copy, and how an image is made on the destination."""

from __future__ import annotations

import typing as t

from . import disk_rules as rules
from .domain_xml import Guest
from .inventory import Finding
from .migration import Wish

Looked = t.Optional[t.Mapping[str, t.Any]]


def move(guest: str, wish: Wish, here: Looked, there: Looked) -> rules.Move | None:
    """None where the disks were not looked at."""
    if not here or not there or "disks" not in here or "disks" not in there:
        return None
    return rules.Move(guest, wish.mode, wish.storage, wish.disks, wish.shared_disks, here["disks"], there["disks"])


def findings(asked: rules.Move | None, guest: Guest) -> list[Finding]:
    """All that is in the way of the disks."""
    if asked is not None:
        return rules.findings(asked)
    unknown = [disk.target for disk in guest.disks if disk.source and not disk.read_only and disk.kind != "network" and disk.device not in ("cdrom", "floppy")]
    if not unknown:
        return []
    return [Finding(rules.CHECK, f"nobody has looked at the disks of {guest.name} ({', '.join(unknown)}) on both hosts: run the role kvm_migrate")]


def parameters(asked: rules.Move | None, wish: Wish) -> dict[str, t.Any]:
    """libvirt copies the disks that it is told, and with none all that it can, those on the network onto themselves."""
    if asked is None or wish.storage == "shared" or wish.mode == "offline":
        return {}
    return {"migrate_disks": rules.travelling(asked)}


def images(asked: rules.Move | None, found: t.Sequence[t.Mapping[str, t.Any]]) -> list[dict[str, t.Any]]:
    """The images that travel, each with its real kind, and how one like it is made."""
    if asked is None:
        return [dict(image) for image in found]
    travelling = rules.travelling(asked)
    return [{**image, **_like(asked, image["path"])} for image in found if image["target"] in travelling]


def _like(asked: rules.Move, path: str) -> dict[str, t.Any]:
    seen = asked.here["images"].get(path, {})
    top: dict[str, t.Any] = next((disk["chain"][0] for disk in asked.here["disks"] if disk["chain"] and disk["chain"][0]["path"] == path), {})
    made: dict[str, t.Any] = {"real": seen.get("real", path), "mode": seen.get("mode", "0600"), "options": _options(top)}
    if top.get("virtual_size"):
        made["size"] = top["virtual_size"]
    return made


def _options(top: t.Mapping[str, t.Any]) -> str:
    """For `qemu-img create -o`: the image is to stay as its owner made it."""
    if top.get("format") != "qcow2":
        return ""
    words = {
        "cluster_size": top.get("cluster_size"),
        "compat": top.get("compat"),
        "lazy_refcounts": "on" if top.get("lazy_refcounts") else "",
        "refcount_bits": top["refcount_bits"] if top.get("refcount_bits", 16) != 16 else "",
        "extended_l2": "on" if top.get("extended_l2") else "",
    }
    return ",".join(f"{name}={value}" for name, value in words.items() if value)
