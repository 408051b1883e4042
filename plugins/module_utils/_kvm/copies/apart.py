# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a guest that is made of another one cannot share with it: refused, or left out of its definition and told."""

from __future__ import annotations

import typing as t
from xml.etree import ElementTree

WAY_OUT = "take that out of the guest and take another snapshot, or bring it back under its own name"

# Of two guests only one can have it, or both would write to it.
ALONE = (
    ("devices/hostdev", "devices of the host (<hostdev>)"),
    ("devices/interface[@type='hostdev']", "a network card of the host (<interface type='hostdev'>)"),
    ("devices/interface[@type='vhostuser']", "an interface on a socket of another program (<interface type='vhostuser'>)"),
    ("devices/interface[@type='ethernet']/target[@managed='no']", "an interface that another program has made (<target managed='no'>)"),
    ("devices/tpm/backend[@type='passthrough']", "the TPM of the host"),
    ("devices/memory[@model='nvdimm']", "a file as its non-volatile memory (<memory model='nvdimm'>)"),
    ("devices/memory[@model='virtio-pmem']", "a file as its non-volatile memory (<memory model='virtio-pmem'>)"),
    ("{http://libvirt.org/schemas/domain/qemu/1.0}commandline", "words of its own for QEMU (<qemu:commandline>)"),
)
# Ports of the host that a guest may listen on, by its ports.
LISTENERS = ("serial", "console", "parallel", "channel")
# Of a screen.
PORTS = ("port", "tlsPort", "websocket")


def alone(root: ElementTree.Element) -> list[str]:
    """The parts of a definition that only one guest can have."""
    found = [what for path, what in ALONE if root.find(path) is not None]
    if any(folder.find("readonly") is None for folder in root.findall("devices/filesystem")):
        found.append("folders of the host that it may write to (<filesystem>)")
    if any(root.find(f"devices/{kind}/source[@mode='bind'][@service]") is not None for kind in LISTENERS):
        found.append("a port of the host on which its serial port listens (<source mode='bind'>)")
    return found


def left_out(root: ElementTree.Element, name: str) -> list[str]:
    """Parts that `tell_apart` takes away, for people."""
    found = [f"the port {graphics.get('port')} of {name}'s screen" for graphics in _screens(root)]
    found += [f"the name {target.get('dev')} of {name}'s interface on the host" for _interface, target in _named(root)]
    found += [f"the port {port.get('interfaceid')} of {name} on its virtual switch" for port in _switch_ports(root)]
    return found + [f"the address {cid.get('address')} of {name} for sockets to the host (vsock)" for cid in _addresses(root)]


def tell_apart(root: ElementTree.Element) -> None:
    """libvirt chooses all of it anew."""
    for graphics in _screens(root):
        for port in PORTS:
            graphics.attrib.pop(port, None)
        graphics.set("autoport", "yes")
    for interface, target in _named(root):
        interface.remove(target)
    for parameters in _switch_ports(root):
        parameters.attrib.pop("interfaceid")
    for cid in _addresses(root):
        cid.attrib.pop("address")
        cid.set("auto", "yes")


def _screens(root: ElementTree.Element) -> list[ElementTree.Element]:
    return [each for each in root.findall("devices/graphics[@port]") if each.get("autoport") != "yes" and each.get("port") != "-1"]


def _named(root: ElementTree.Element) -> t.Iterator[tuple[ElementTree.Element, ElementTree.Element]]:
    for interface in root.findall("devices/interface"):
        target = interface.find("target[@dev]")
        if target is not None and target.get("managed") != "no":
            yield interface, target


def _switch_ports(root: ElementTree.Element) -> list[ElementTree.Element]:
    """By its ID a controller such as OVN binds a port to one guest."""
    return root.findall("devices/interface/virtualport/parameters[@interfaceid]")


def _addresses(root: ElementTree.Element) -> list[ElementTree.Element]:
    return [each for each in root.findall("devices/vsock/cid[@address]") if each.get("auto") != "yes"]
