# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A guest's definition, as libvirt writes it, read into the parts that this collection uses.

The format is libvirt's: https://libvirt.org/formatdomain.html. Sizes are in bytes.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field
from xml.etree import ElementTree

from .._core.runtime import HandoverError

# The units of libvirt's <memory unit=…>.
UNITS = {
    "b": 1, "bytes": 1, "KB": 10**3, "k": 2**10, "KiB": 2**10, "MB": 10**6, "M": 2**20, "MiB": 2**20,
    "GB": 10**9, "G": 2**30, "GiB": 2**30, "TB": 10**12, "T": 2**40, "TiB": 2**40,
}  # fmt: skip

# Of elements that go past libvirt to the hypervisor.
NAMESPACES = {"qemu": "http://libvirt.org/schemas/domain/qemu/1.0"}

# libvirt's "default" is QEMU's, and that is writeback.
DEFAULT_CACHE = "writeback"


@dataclass(frozen=True)
class Disk:
    """One disk of a guest."""

    target: str
    bus: str
    device: str  # disk, cdrom, floppy, lun
    kind: str  # file, block, network, nvme, volume, …
    source: str | None  # path, or protocol:name; None where nothing is in the drive
    format: str
    cache: str  # as it takes effect
    cache_set: bool  # whether the definition names it
    io: str
    discard: str
    read_only: bool
    shareable: bool
    backing: tuple[str, ...] = ()  # the image's backing files, nearest first
    backing_format: str | None = None  # of the nearest


@dataclass(frozen=True)
class Interface:
    """One network interface of a guest."""

    kind: str  # network, bridge, direct, …
    source: str | None
    mac: str | None
    model: str | None


@dataclass(frozen=True)
class Guest:
    """One guest, as defined or as it runs."""

    name: str
    uuid: str
    kind: str  # kvm or qemu
    memory: int
    vcpus: int
    machine: str | None
    cpu: str | None  # model, or the mode where no model is named
    disks: tuple[Disk, ...]
    interfaces: tuple[Interface, ...]
    has_agent: bool
    pools: tuple[str, ...] = field(default=())


def parse(text: str) -> Guest:
    """Raises HandoverError for a text that is no guest's definition."""
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as exc:
        raise HandoverError(f"libvirt's definition of a guest cannot be read ({exc}): see `virsh dumpxml`") from exc
    if root.tag != "domain":
        raise HandoverError(f"a guest's definition begins with <domain>, and this one with <{root.tag}>")
    disks = root.findall("devices/disk")
    return Guest(
        name=root.findtext("name", ""),
        uuid=root.findtext("uuid", ""),
        kind=root.get("type", ""),
        memory=_memory(root),
        vcpus=int(root.findtext("vcpu", "1")),
        machine=_attribute(root, "os/type", "machine"),
        cpu=root.findtext("cpu/model") or _attribute(root, "cpu", "mode"),
        disks=tuple(_disk(disk) for disk in disks),
        interfaces=tuple(_interface(interface) for interface in root.findall("devices/interface")),
        has_agent=any(
            target.get("name") == "org.qemu.guest_agent.0" for target in root.findall("devices/channel/target")
        ),
        pools=tuple(sorted({source.get("pool", "") for disk in disks if disk.get("type") == "volume" for source in disk.findall("source")})),
    )


def set_driver(text: str, options: t.Mapping[str, t.Mapping[str, str]]) -> str:
    """The definition with other options of its disks' drivers: target → option → value. All else stays as it is."""
    for prefix, space in NAMESPACES.items():
        ElementTree.register_namespace(prefix, space)
    root = ElementTree.fromstring(text)
    for disk in root.findall("devices/disk"):
        wanted = options.get(_attribute(disk, "target", "dev") or "")
        if not wanted:
            continue
        driver = disk.find("driver")
        if driver is None:
            driver = ElementTree.SubElement(disk, "driver", {"name": "qemu"})
        driver.attrib.update(wanted)
    return ElementTree.tostring(root, encoding="unicode")


def _memory(root: ElementTree.Element) -> int:
    element = root.find("memory")
    if element is None or not element.text:
        return 0
    return int(element.text) * UNITS.get(element.get("unit", "KiB"), 2**10)


def _attribute(root: ElementTree.Element, path: str, name: str) -> str | None:
    element = root.find(path)
    return None if element is None else element.get(name)


def _disk(element: ElementTree.Element) -> Disk:
    driver = element.find("driver")
    options = {} if driver is None else driver.attrib
    cache = options.get("cache", "default")
    return Disk(
        target=_attribute(element, "target", "dev") or "",
        bus=_attribute(element, "target", "bus") or "",
        device=element.get("device", "disk"),
        kind=element.get("type", ""),
        source=_source(element),
        format=options.get("type", "raw"),
        cache=DEFAULT_CACHE if cache == "default" else cache,
        cache_set=cache != "default",
        io=options.get("io", "threads"),
        discard=options.get("discard", "ignore"),
        read_only=element.find("readonly") is not None,
        shareable=element.find("shareable") is not None,
        backing=tuple(_chain(element)),
        backing_format=_attribute(element, "backingStore/format", "type"),
    )


def _chain(element: ElementTree.Element) -> t.Iterator[str]:
    """The backing files of a disk's image, nearest first."""
    below = element.find("backingStore")
    while below is not None and len(below):
        source = _source(below)
        if source is not None:
            yield source
        below = below.find("backingStore")


def _source(element: ElementTree.Element) -> str | None:
    source = element.find("source")
    if source is None:
        return None
    for name in ("file", "dev", "dir"):
        if source.get(name):
            return source.get(name)
    if source.get("protocol"):
        return f"{source.get('protocol')}:{source.get('name', '')}"
    if source.get("volume"):
        return f"{source.get('pool', '')}/{source.get('volume')}"
    return None


def _interface(element: ElementTree.Element) -> Interface:
    source = element.find("source")
    named = None if source is None else next((source.get(name) for name in ("network", "bridge", "dev") if source.get(name)), None)
    return Interface(
        kind=element.get("type", ""),
        source=named,
        mac=_attribute(element, "mac", "address"),
        model=_attribute(element, "model", "type"),
    )
