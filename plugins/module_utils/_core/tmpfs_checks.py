# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A container's own tmpfs: those whose files the session carries, and why CRIU packs the others in the pause."""

from __future__ import annotations

import re
import typing as t

from .move import Facts, Move
from .sizes import format_size

# Bytes with which it begins to pay: below that, calling another tar takes as long as packing does.
WORTH_CARRYING = 4 * 2**20
# A place that is the same in the kernel's list of mounts, in a session's specification and in a path.
_PLAIN = re.compile(r"(/[A-Za-z0-9_.@:,+=-]+)+")


def _why_packed(move: Move, tmpfs: Facts) -> str:
    """Why CRIU has to carry it; empty: the session does."""
    if move.container.get("userns"):
        return "its user namespace is its own"
    if tmpfs.get("inside"):
        return "{0} is mounted in it".format(tmpfs["inside"])
    if not tmpfs.get("device"):
        return "another mount lies over it"
    if tmpfs["device"] in move.container.get("elsewhere", ()):
        return "another member has it mounted, too"
    if not _PLAIN.fullmatch(tmpfs["place"]):
        return "its path has unusual characters"
    return "" if tmpfs["size"] >= WORTH_CARRYING else "so little is not worth more"


def carried(move: Move, member: str = "") -> list[dict[str, t.Any]]:
    """The tmpfs of a container, or of a member of several, that the session carries, as the source's side is told of them. One that is mounted twice
    is one."""
    if not move.live or not move.container["running"]:
        return []
    found: dict[str, dict[str, t.Any]] = {}
    for tmpfs in move.container.get("tmpfs", []):
        if not _why_packed(move, tmpfs):
            found.setdefault(
                tmpfs["device"],
                {
                    "name": ":".join(("tmpfs", *filter(None, (member,)), tmpfs["place"])),
                    "path": "/proc/{0}/root{1}".format(move.container["pid"], tmpfs["place"]),
                    "size": tmpfs["size"],
                    "tmpfs": tmpfs["place"],
                    "device": tmpfs["device"],
                    **({"member": member} if member else {}),
                },
            )
    return list(found.values())


def told(move: Move) -> t.Iterator[str]:
    """The fate of the others, each in one sentence."""
    devices = {each["device"] for each in carried(move)}
    for tmpfs in move.container.get("tmpfs", []):
        size = format_size(tmpfs["size"])
        if not move.live:
            yield "the tmpfs {0} of {1} holds {2}, which are gone when it is stopped".format(tmpfs["place"], move.workload, size)
        elif tmpfs.get("device") not in devices:
            yield "the tmpfs {0} of {1} holds {2}, which CRIU packs in the pause: {3}".format(tmpfs["place"], move.workload, size, _why_packed(move, tmpfs))
