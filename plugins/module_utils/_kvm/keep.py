# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A guest's lasting properties beside its definition: started with its host or not, defined or transient.

libvirt forgets both in a migration. A note on the source outlives a module that is killed in the middle, and is read by the one that settles it.
"""

from __future__ import annotations

import contextlib
import json
import os
import typing as t
from dataclasses import asdict, dataclass

NOTES = "/var/lib/handover/guest-notes"


@dataclass(frozen=True)
class Kept:
    """As it was before."""

    autostart: bool = False
    persistent: bool = True
    media: tuple[tuple[bool, str], ...] = ()  # drives as they were before they were emptied: of the running guest or of its definition


def of(domain: t.Any) -> Kept:
    persistent = bool(domain.isPersistent())
    return Kept(bool(domain.autostart()) if persistent else False, persistent)


def flags(planned: t.Sequence[str], kept: Kept) -> list[str]:
    """A guest without a definition arrives without one, and leaves none to be removed."""
    return [flag for flag in planned if kept.persistent or flag not in ("VIR_MIGRATE_PERSIST_DEST", "VIR_MIGRATE_UNDEFINE_SOURCE")]


def note(uuid: str, kept: Kept, folder: str | None = None) -> None:
    """Written whole or not at all, and on the disk before anything is begun."""
    folder = folder or NOTES
    os.makedirs(folder, mode=0o700, exist_ok=True)
    path = os.path.join(folder, uuid)
    with open(f"{path}.new", "w", encoding="utf-8") as target:
        json.dump(asdict(kept), target)
        target.flush()
        os.fsync(target.fileno())
    os.replace(f"{path}.new", path)


def noted(uuid: str, folder: str | None = None) -> Kept | None:
    """The note about a guest that is on its way."""
    try:
        with open(os.path.join(folder or NOTES, uuid), encoding="utf-8") as source:
            found = json.load(source)
        return Kept(found["autostart"], found["persistent"], tuple((bool(running), text) for running, text in found["media"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def forget(uuid: str, folder: str | None = None) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(os.path.join(folder or NOTES, uuid))


def settle(libvirt: t.Any, source: t.Any, destination: t.Any, moved: bool) -> None:
    """Restores the guest's properties, where it is now. `source` and `destination` are the guest on each side, or None."""
    from . import findings

    domain = destination if moved else source
    if domain is None:
        return
    kept = noted(domain.UUIDString())
    if kept is None:
        return
    if moved and kept.autostart and domain.isPersistent():
        domain.setAutostart(1)
    if not moved:
        findings.insert(libvirt, domain, kept.media)
    forget(domain.UUIDString())
