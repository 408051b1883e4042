# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The bitmaps in the images of a guest that is off, which have all that was written since the current point of a store.

QEMU vouches for them: each of its programs marks what it writes, and a bitmap that one has left open, as by a crash of the guest, is never given out. A
program that writes qcow2 and knows no bitmaps says so in the image, as the format demands, and QEMU drops them. The helper reads samples beside that.
"""

from __future__ import annotations

import typing as t

from ..._core.disk_store import DiskStore
from ..._core.runtime import Runtime

Document = t.Mapping[str, t.Any]

# Why the bitmap of a mark cannot be gone by, with the image as QEMU tells of it, and the bitmap.
REASONS: tuple[tuple[t.Callable[[Document, Document | None], t.Any], str], ...] = (
    (lambda image, bitmap: image.get("format") != "qcow2", "a {format} image keeps no bitmap"),
    (lambda image, bitmap: image.get("backing-filename"), "the image stands on another, and no bitmap has what is written to that"),
    (lambda image, bitmap: bitmap is None, "the image has no bitmap {mark} any more"),
    (lambda image, bitmap: "in-use" in (bitmap or {}).get("flags", ()), "the bitmap {mark} was left open, as by a crash of the guest"),
    (lambda image, bitmap: "auto" not in (bitmap or {}).get("flags", ()), "the bitmap {mark} does not record"),
)


def marks_of(store: DiskStore, listed: t.Sequence[Document]) -> dict[str, str]:
    """The checkpoint that the current point has left, by disk: the disks descend from that one."""
    if not listed:
        return {}
    current = next((each for each in listed if each.get("current")), listed[-1])
    shown = store.pcopy.call("snapshot", "show", "--json", store.folder, current["id"])
    return {volume["name"]: (volume.get("mark") or {}).get("tracker", "") for volume in shown["volumes"]}


def unusable(runtime: Runtime, path: str, kind: str, mark: str) -> str:
    """Why the bitmap of a mark in an image that nothing uses does not have all that was written; empty: it has."""
    if not mark:
        return "the current snapshot has left no checkpoint"
    image = runtime.run_json([runtime.tool("qemu-img", "qemu-utils"), "info", "--output=json", "--format=" + kind, path]) or {}
    bitmaps = ((image.get("format-specific") or {}).get("data") or {}).get("bitmaps") or []
    bitmap = next((each for each in bitmaps if each.get("name") == mark), None)
    return next((sentence.format(format=image.get("format"), mark=mark) for applies, sentence in REASONS if applies(image, bitmap)), "")
