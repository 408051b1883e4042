# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The definition of a guest that comes back from a backup, under its own name or another one.

Under another name it must not be taken for the first: it has another UUID, other addresses of its interfaces, and files of its own.
"""

from __future__ import annotations

import os
import typing as t
from dataclasses import dataclass
from xml.etree import ElementTree

from ..domain_xml import NAMESPACES
from ..state import TPM_FOLDER
from .apart import tell_apart

# Outputs of a guest's ports, of which each guest needs its own.
OUTPUTS = ("serial", "console", "parallel", "channel")


@dataclass(frozen=True)
class Names:
    """Who comes back, and as whom."""

    old: str
    new: str
    uuid: str
    macs: tuple[str, ...] = ()  # of another guest's interfaces, in their order; libvirt draws those that are not named

    @property
    def is_another(self) -> bool:
        return self.old != self.new

    def disk(self, target: str, path: str, kind: str) -> str:
        """The place of a disk's image."""
        return os.path.join(os.path.dirname(path), f"{self.new}-{target}.{kind}") if self.is_another else path

    def file(self, kind: str, path: str) -> str:
        """The place of a file beside the disks."""
        if not self.is_another:
            return path
        return os.path.join(os.path.dirname(path), f"{self.new}_VARS.fd") if kind == "nvram" else f"{TPM_FOLDER}/{self.uuid}"


def restored(definition: str, names: Names, disks: t.Mapping[str, str]) -> str:
    """`disks` are the places of the images, by target."""
    for prefix, space in NAMESPACES.items():
        ElementTree.register_namespace(prefix, space)
    root = ElementTree.fromstring(definition)
    # A guest that goes back in time has to notice: libvirt makes a new one of an empty one.
    for each in root.findall("genid"):
        each.text = None
    for disk in root.findall("devices/disk"):
        target, source = disk.find("target"), disk.find("source")
        path = disks.get("" if target is None else target.get("dev", ""))
        if path and source is not None:
            source.set("file", path)
        # The image is whole now.
        for chain in disk.findall("backingStore"):
            if path:
                disk.remove(chain)
    if names.is_another:
        _tell_apart(root, names)
    return ElementTree.tostring(root, encoding="unicode")


def _tell_apart(root: ElementTree.Element, names: Names) -> None:
    for path, value in (("name", names.new), ("uuid", names.uuid), ("sysinfo/system/entry[@name='uuid']", names.uuid)):
        for element in root.findall(path):
            element.text = value
    for number, interface in enumerate(root.findall("devices/interface")):
        for element in interface.findall("mac"):
            interface.remove(element)
        for mac in names.macs[number : number + 1]:
            interface.insert(0, ElementTree.Element("mac", address=mac))
    tell_apart(root)
    for nvram in root.findall("os/nvram"):
        _move(nvram, names, "nvram")
    for backend in root.findall("devices/tpm/backend[@type='emulator']"):
        for source in backend.findall("source"):
            backend.remove(source)  # libvirt's own place, by the UUID
    for kind in OUTPUTS:
        for source in root.findall(f"devices/{kind}/source[@path]"):
            source.set("path", f"{source.get('path')}.{names.new}")


def outputs(definition: str, name: str) -> list[str]:
    """The files of another guest's ports, which it has by its own name."""
    root = ElementTree.fromstring(definition)
    found = {source.get("path", "") for kind in OUTPUTS for source in root.findall(f"devices/{kind}/source[@path]")}
    return sorted(path for path in found if path.endswith("." + name))


def _move(nvram: ElementTree.Element, names: Names, kind: str) -> None:
    source = nvram.find("source")
    if source is not None and source.get("file"):
        source.set("file", names.file(kind, source.get("file", "")))
    elif (nvram.text or "").strip():
        nvram.text = names.file(kind, (nvram.text or "").strip())
