# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Compares a guest's needs with the destination. Each test gives a sentence with the cure, or None where all is well.

Questions go to two places: to the look at both hosts (host_look), and to the destination's libvirt.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field
from xml.etree import ElementTree

from .._core.host import numbers
from .inventory import Finding
from .needs import ANYWHERE, Need

NOT_LOOKED = "and nobody has looked there: run the role kvm_migrate, which looks on both hosts"


@dataclass
class Sides:
    """The facts about both hosts."""

    libvirt: t.Any
    there: t.Any  # the destination's libvirt
    live: bool
    cdrom: str = "refuse"
    seen_here: t.Mapping[str, t.Any] | None = None
    seen_there: t.Mapping[str, t.Any] | None = None
    capabilities: ElementTree.Element | None = None  # of a guest of this kind, on the destination
    # Files that the move brings along, and so has to find missing there.
    brought: list[str] = field(default_factory=list)

    def ask(self, call: t.Callable[[], t.Any]) -> t.Any:
        """An answer of the destination's libvirt, or None where it knows no such thing."""
        try:
            return call()
        except self.libvirt.libvirtError as exc:
            names = ("VIR_ERR_NO_NETWORK", "VIR_ERR_NO_NWFILTER", "VIR_ERR_NO_SECRET")
            if exc.get_error_code() in [getattr(self.libvirt, name) for name in names]:
                return None
            raise


Test = t.Callable[[Need, Sides], t.Optional[str]]


def findings(needs: t.Iterable[Need], sides: Sides) -> list[Finding]:
    """All that is in the way."""
    found = []
    for need in needs:
        try:
            sentence = TESTS[need.test](need, sides)
        except sides.libvirt.libvirtError as exc:
            sentence = f"the destination's libvirt cannot tell whether it has {need.thing} ({exc}): look at its journal there"
        if sentence:
            found.append(Finding(need.check, sentence))
    return found


def _place(need: Need, sides: Sides, which: str = "there", path: str | None = None) -> t.Mapping[str, t.Any] | None:
    seen = sides.seen_there if which == "there" else sides.seen_here
    return None if seen is None else seen["places"].get(need.value if path is None else path, {"exists": False})


def _unseen(need: Need) -> str:
    return f"the destination has to have {need.thing} ({need.value}), {NOT_LOOKED}"


def _exists(need: Need, sides: Sides) -> str | None:
    there = _place(need, sides)
    if there is None:
        return _unseen(need)
    return None if there["exists"] else f"{need.thing}, {need.value}, is not on the destination: make it there, or take it out of the definition"


def _program(need: Need, sides: Sides) -> str | None:
    there = _place(need, sides)
    if there is None:
        return _unseen(need)
    return None if there["exists"] and there["kind"] == "file" else f"{need.thing}, {need.value}, is not on the destination: install its package there"


def _socket(need: Need, sides: Sides) -> str | None:
    there = _place(need, sides)
    if there is None:
        return _unseen(need)
    return None if there["exists"] and there["kind"] == "socket" else f"{need.thing}, {need.value}, is not on the destination: start its server there"


def _folder(need: Need, sides: Sides) -> str | None:
    folder = need.value.rpartition("/")[0] or "/"
    there = _place(need, sides, path=folder)
    if there is None:
        return _unseen(need)
    if there["exists"] and there["kind"] == "folder":
        return None
    return f"the folder {folder}, for {need.thing}, is not on the destination: make it there"


def _same(need: Need, sides: Sides) -> str | None:
    here, there = _place(need, sides, "here"), _place(need, sides)
    if here is None or there is None:
        return _unseen(need)
    if not there["exists"]:
        return f"{need.thing}, {need.value}, is not on the destination: copy it there"
    if here.get("digest") != there.get("digest") or not there.get("digest"):
        return f"{need.thing}, {need.value}, is another file on the destination than here (by its digest): make them the same"
    return None


def _size(need: Need, sides: Sides) -> str | None:
    here, there = _place(need, sides, "here"), _place(need, sides)
    if here is None or there is None:
        return _unseen(need)
    if not there["exists"]:
        return f"{need.thing}, {need.value}, is not on the destination: install its package there (ovmf)"
    if here.get("size") != there.get("size"):
        return f"{need.thing}, {need.value}, has another size on the destination than here: install the same package there"
    return None


def _medium(need: Need, sides: Sides) -> str | None:
    """The medium in a drive."""
    drive = not need.thing.startswith("the disk ")
    if sides.cdrom == "eject" and drive:
        return None
    here, there = _place(need, sides, "here"), _place(need, sides)
    if here is None or there is None:
        return f"{need.thing} holds {need.value}, {NOT_LOOKED}"
    if not here["exists"]:
        return f"{need.thing} names {need.value}, which is not on this host: eject it (`virsh change-media`)"
    if there["exists"]:
        same = here.get("digest") and here.get("digest") == there.get("digest")
        if same:
            return None
        return f"{need.thing} holds {need.value}, which is another file on the destination than here: " + _ways(drive, "move that one away")
    if sides.cdrom == "carry" and here["kind"] == "file":
        sides.brought.append(need.value)
        return None
    return f"{need.thing} holds {need.value}, which is not on the destination: " + _ways(drive, "copy it there (or kvm_migrate_cdrom=carry)")


def _ways(drive: bool, first: str) -> str:
    return first + (", or have it ejected (kvm_migrate_cdrom=eject)" if drive else "")


def _shared(need: Need, sides: Sides) -> str | None:
    here, there = _place(need, sides, "here"), _place(need, sides)
    if here is None or there is None:
        return _unseen(need)
    if not there["exists"]:
        return f"{need.thing} is {need.value}, which is not on the destination: mount it there"
    if here.get("shared") and here.get("shared") == there.get("shared"):
        return None
    return f"{need.thing} is {need.value}, and nothing proves that it holds the same on the destination: put it on storage that both hosts mount"


def _network(need: Need, sides: Sides) -> str | None:
    network = sides.ask(lambda: sides.there.networkLookupByName(need.value))
    if network is None:
        return f"{need.thing} does not exist on the destination: define and start it there"
    if not network.isActive():
        return f"{need.thing} is not active on the destination: start it there (`virsh net-start {need.value}`)"
    root = ElementTree.fromstring(network.XMLDesc(0))
    if need.extra and need.extra not in [group.get("name") for group in root.findall("portgroup")]:
        return f"{need.thing} has no port group {need.extra} on the destination: add it there"
    return None


def _link(need: Need, sides: Sides) -> str | None:
    if sides.seen_there is None:
        return _unseen(need)
    links = sides.seen_there["links"]
    if need.value not in links:
        return f"{need.thing} does not exist on the destination: make it there"
    if need.extra == "bridge" and links[need.value] != "bridge":
        return f"{need.thing} is no bridge on the destination: make it one there"
    if need.extra == "openvswitch" and "ovs-system" not in links:
        return f"{need.thing} is no bridge of Open vSwitch on the destination: make it one there"
    return None


def _no_link(need: Need, sides: Sides) -> str | None:
    if sides.seen_there is None:
        return _unseen(need)
    return f"{need.thing} is taken on the destination: choose another one, or leave it to libvirt" if need.value in sides.seen_there["links"] else None


def _address(need: Need, sides: Sides) -> str | None:
    if sides.seen_there is None:
        return _unseen(need)
    if need.value in sides.seen_there["addresses"]:
        return None
    return f"{need.thing} listens on {need.value}, which is no address of the destination: choose 0.0.0.0 or 127.0.0.1, or one that both hosts have"


def _port(need: Need, sides: Sides) -> str | None:
    if sides.seen_there is None:
        return _unseen(need)
    everywhere = need.extra in ("", "0.0.0.0", "::", "*")
    for entry in sides.seen_there["ports"]:
        address, _space, port = entry.partition(" ")
        if port == need.value and (everywhere or address in ("0.0.0.0", "::", need.extra) or (need.extra in ANYWHERE and address in ANYWHERE)):
            return f"{need.thing} listens on port {need.value}, which is taken on the destination: choose another one, or autoport"
    return None


def _numbers(need: Need, sides: Sides) -> str | None:
    if sides.seen_there is None:
        return _unseen(need)
    lacking = sorted(set(numbers(need.value)) - set(sides.seen_there[need.test]))
    if not lacking:
        return None
    return f"the destination has no {', '.join(map(str, lacking))} of the {need.thing} ({need.value}): change that first (`virsh edit`)"


def _hugepages(need: Need, sides: Sides) -> str | None:
    if sides.seen_there is None:
        return _unseen(need)
    pages = sides.seen_there["hugepages"].get(need.value)
    kib = pages.get("size", 0) if pages and need.value == "default" else int(need.value) if need.value.isdigit() else 0
    if not pages or not kib:
        return f"the destination has no huge pages of {need.value} KiB: reserve them there (vm.nr_hugepages)"
    count = -(-int(need.extra) // (kib * 1024))
    if pages["free"] >= count:
        return None
    return f"the guest takes {count} huge pages of {kib} KiB, and the destination has {pages['free']} free: reserve more there (vm.nr_hugepages)"


def _nwfilter(need: Need, sides: Sides) -> str | None:
    found = sides.ask(lambda: sides.there.nwfilterLookupByName(need.value))
    return None if found is not None else f"{need.thing} does not exist on the destination: define it there (`virsh nwfilter-define`)"


USAGES = {"volume": 1, "ceph": 2, "iscsi": 3, "tls": 4, "vtpm": 5}


def _secret(need: Need, sides: Sides) -> str | None:
    def found() -> t.Any:
        if need.extra == "uuid":
            return sides.there.secretLookupByUUIDString(need.value)
        return sides.there.secretLookupByUsage(USAGES.get(need.extra, 0), need.value)

    secret = sides.ask(found)
    if secret is None:
        return f"{need.thing} is not on the destination: define it there, and set its value (`virsh secret-define`, `virsh secret-set-value`)"
    if ElementTree.fromstring(secret.XMLDesc(0)).get("private") == "yes":
        return None  # libvirt never shows its value
    if sides.ask(lambda: secret.value(0)) is None:
        return f"{need.thing} has no value on the destination: set it there (`virsh secret-set-value`)"
    return None


def _domcaps(need: Need, sides: Sides) -> str | None:
    if sides.capabilities is None:
        return None  # the machine's own check has said it
    path, _equals, value = need.value.rpartition("=")
    if value in [element.text for element in sides.capabilities.findall(path)]:
        return None
    return f"the destination's libvirt does not offer {need.thing}: install what is missing there"


def _device(need: Need, sides: Sides) -> str | None:
    if sides.seen_there is None:
        return _unseen(need)
    if need.value in sides.seen_there[need.test]:
        return None
    return f"{need.thing} is not on the destination: attach it there, or detach it here (`virsh detach-device --config`)"


def _pci(need: Need, sides: Sides) -> str | None:
    if sides.seen_there is None or sides.seen_here is None:
        return _unseen(need)
    here, there = sides.seen_here["pci"].get(need.value), sides.seen_there["pci"].get(need.value)
    if there and there == here:
        return None
    return f"{need.thing} is {'another kind of device' if there else 'not there'} on the destination: detach it here (`virsh detach-device --config`)"


def _offline(need: Need, sides: Sides) -> str | None:
    return need.thing if sides.live else None


def _never(need: Need, _sides: Sides) -> str:
    return need.thing


TESTS: dict[str, Test] = {
    "exists": _exists, "program": _program, "socket": _socket, "folder": _folder, "same": _same, "size": _size, "medium": _medium, "shared": _shared,
    "network": _network, "link": _link, "no link": _no_link, "address": _address, "port": _port, "processors": _numbers, "nodes": _numbers,
    "hugepages": _hugepages, "nwfilter": _nwfilter, "secret": _secret, "domcaps": _domcaps, "usb": _device, "pci": _pci, "mdev": _device,
    "offline": _offline, "never": _never,
}  # fmt: skip
