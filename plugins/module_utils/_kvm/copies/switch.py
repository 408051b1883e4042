# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The files of a guest are exchanged for those of a backup: all of them, or none.

libvirt forgets the guest first, so it cannot be started on halves. A note says how far the exchange was meant to go. It is undone by that note after a
failure, and by the next restore after a kill.
"""

from __future__ import annotations

import json
import os
import typing as t
from xml.etree import ElementTree

from ..._core.runtime import HandoverError
from ..files import lasting, remove, rename
from ..libvirt import Libvirt

NOTES = "/var/lib/handover/guest-restores"

Item = t.Mapping[str, str]


class Switch:
    """Of one guest, by its name. An item has a `path`, the `new` file that takes its place, and the name by which the present one is `kept`."""

    def __init__(self, libvirt: Libvirt, name: str, folder: str | None = None) -> None:
        self.libvirt, self.name = libvirt, name
        self.note = os.path.join(folder or NOTES, name + ".json")

    def begun(self) -> bool:
        """Whether a run was killed in the middle."""
        return os.path.exists(self.note)

    def make(self, items: t.Sequence[Item], old: str, new: str) -> None:
        """`old` is the definition that libvirt has, or nothing, and `new` the one that it is to have."""
        if self.begun():  # its note may have the only copy of a definition
            raise HandoverError(f"a restore of {self.name} was cut off: run it again first")
        there = [item["path"] for item in items if os.path.lexists(item["path"])]
        ours = [_uuid(text) for text in (old, new) if text]
        self._write({"items": [dict(item) for item in items], "there": there, "old": old, "uuids": ours})
        try:
            if old:
                self.libvirt.virsh("undefine", "--domain", self.name, *keeping(old))
            for item in items:
                if item["path"] in there:
                    rename(item["path"], item["kept"])
                rename(item["new"], item["path"])
                lasting(item["path"])
            self.libvirt.define(new)
        except BaseException:
            self.undo()
            raise
        self._forget()

    def undo(self) -> None:
        """Has everything be as the note says that it was. To do it twice is the same as once."""
        with open(self.note, encoding="utf-8") as source:
            note = json.load(source)
        if self.name in self.libvirt.names():
            ours = note.get("uuids")  # a note of an earlier version has none
            if ours and _uuid(self.libvirt.definition(self.name)) not in ours:
                raise HandoverError(
                    f"a restore of {self.name} was cut off, and another guest has that name since: give this one another name (virsh domrename), and run that "
                    "again"
                )
            if self.libvirt.state(self.name) != "shut off":
                raise HandoverError(f"{self.name} was started in the middle of a restore: end it, and restore it again")
            self.libvirt.virsh("undefine", "--domain", self.name, *keeping(self.libvirt.definition(self.name)))
        for item in note["items"]:
            if os.path.lexists(item["kept"]):
                remove(item["path"])
                rename(item["kept"], item["path"])
            elif item["path"] not in note["there"]:
                remove(item["path"])
            remove(item["new"])
        if note["old"]:
            self.libvirt.define(note["old"])
        self._forget()

    def _write(self, note: t.Mapping[str, t.Any]) -> None:
        os.makedirs(os.path.dirname(self.note), mode=0o700, exist_ok=True)
        with open(os.open(self.note + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as target:
            json.dump(note, target)
            target.flush()
            os.fsync(target.fileno())
        os.replace(self.note + ".new", self.note)
        lasting(self.note)

    def _forget(self) -> None:
        os.unlink(self.note)


def _uuid(definition: str) -> str:
    return ElementTree.fromstring(definition).findtext("uuid", "")


def keeping(definition: str) -> list[str]:
    """A definition goes, and no file with it. Its checkpoints are of the images that go."""
    words = ["--checkpoints-metadata"]
    if "<nvram" in definition:
        words.append("--keep-nvram")
    if "<tpm" in definition:
        words.append("--keep-tpm")
    return words
