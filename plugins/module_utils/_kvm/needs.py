# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The needs of a guest's definition on a host: read from its XML, and not compared yet.

Disks that are written to are no part of it: they are looked at by themselves.
"""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass
from xml.etree import ElementTree

Element = ElementTree.Element

# Where libvirt puts files of its own making: it makes them again for each start.
LIBVIRTS_OWN = ("/var/lib/libvirt/qemu/", "/run/libvirt/", "/var/run/libvirt/")
# An address that every host has.
ANYWHERE = ("", "0.0.0.0", "::", "127.0.0.1", "::1", "localhost", "*")
# Names that libvirt itself gives; it makes those again.
MADE_NAMES = re.compile(r"(vnet|macvtap|macvlan|vif|tap)\d+")

MEDIA = ("cdrom", "floppy")


@dataclass(frozen=True)
class Need:
    """One thing that a host must have. `test` says in which way it is looked for, by its name in check."""

    check: str
    test: str
    value: str
    thing: str  # as a sentence names it
    extra: str = ""


def needs(root: Element, names: bool = True) -> list[Need]:
    """All of them, each once. `names`: of network devices, too; those of a guest that runs may be libvirt's own."""
    found: dict[Need, None] = {}
    for part in (_firmware, _files, _media, _processors, _hugepages, _filters, _secrets, _filesystems, _host_devices):
        found.update(dict.fromkeys(part(root)))
    for element in root.findall("devices/interface"):
        found.update(dict.fromkeys(_interface(element, names)))
    for element in root.findall("devices/graphics"):
        found.update(dict.fromkeys(_graphics(element)))
    for kind in ("channel", "console", "parallel", "serial", "redirdev", "smartcard"):
        for element in root.findall(f"devices/{kind}"):
            found.update(dict.fromkeys(_character(element, f"its {kind}")))
    for element in root.findall("devices/rng/backend"):
        found.update(dict.fromkeys(_random(element)))
    return list(found)


def wanted(found: t.Iterable[Need]) -> dict[str, list[str]]:
    """The things to look at on both hosts: places, and files whose digest is read."""
    found = list(found)
    places = {need.value for need in found if need.test in ("exists", "program", "socket", "shared", "size")}
    folders = {need.value.rpartition("/")[0] or "/" for need in found if need.test == "folder"}
    return {"places": sorted(places | folders), "files": sorted({need.value for need in found if need.test in ("same", "medium", "size")})}


def media(root: Element) -> list[tuple[str, str, str]]:
    """Target, device and file of a medium in a drive, or of a disk that is only read."""
    found = []
    for disk in root.findall("devices/disk"):
        path = _get(disk, "source", "file")
        device = disk.get("device", "disk")
        if path and (device in MEDIA or disk.find("readonly") is not None):
            found.append((_get(disk, "target", "dev"), device, path))
    return found


def _get(element: Element, path: str, name: str) -> str:
    found = element.find(path)
    return "" if found is None else found.get(name, "")


def _firmware(root: Element) -> t.Iterator[Need]:
    loader = (root.findtext("os/loader") or "").strip()
    if loader:
        yield Need("firmware", "size", loader, "the firmware")
    os = root.find("os")
    kind = "" if os is None else os.get("firmware", "")
    if kind:
        yield Need("firmware", "domcaps", f"os/enum[@name='firmware']/value={kind}", f"firmware of the kind {kind}")
    backend = root.find("devices/tpm/backend")
    if backend is not None and backend.get("type") in ("emulator", "external"):
        yield Need("tpm", "domcaps", f"devices/tpm/enum[@name='backendModel']/value={backend.get('type')}", "an emulated TPM (packages swtpm and swtpm-tools)")
    elif backend is not None:
        yield Need(
            "tpm", "never", backend.get("type", ""), f"a TPM of the kind {backend.get('type')} is this host's own, and its keys stay in it: use an emulated one"
        )


# Files that have to be the same on both hosts, and where a definition names them.
SAME_FILES = {
    "os/kernel": "the kernel", "os/initrd": "the initial RAM disk", "os/dtb": "the device tree", "os/shim": "the shim", "os/acpi/table": "an ACPI table",
}  # fmt: skip
SAME_FILE_ATTRIBUTES = {
    "devices/*/rom/@file": "a device's ROM", "sysinfo/entry/@file": "an entry of its firmware", "devices/interface/script/@path": "an interface's script",
    "devices/interface/downscript/@path": "an interface's script",
}  # fmt: skip
DEVICE_ATTRIBUTES = {
    "devices/graphics/gl/@rendernode": "the render node", "devices/video/model/acceleration/@rendernode": "the render node",
    "devices/interface/backend/@tap": "the tap device", "devices/interface/backend/@vhost": "the vhost device",
    "devices/audio/@path": "the folder of its sound",
    "devices/audio/@runtimeDir": "the folder of its sound",
}  # fmt: skip


def _files(root: Element) -> t.Iterator[Need]:
    for path, thing in SAME_FILES.items():
        for element in root.findall(path):
            if element.text and element.text.strip():
                yield Need("files", "same", element.text.strip(), thing)
    for table, test in ((SAME_FILE_ATTRIBUTES, "same"), (DEVICE_ATTRIBUTES, "exists")):
        for path, thing in table.items():
            place, _at, name = path.partition("/@")
            for element in root.findall(place):
                if element.get(name):
                    yield Need("files", test, element.get(name, ""), thing)
    for element in root.findall("blkiotune/device/path"):
        yield Need("files", "exists", (element.text or "").strip(), "a device whose rate is limited")
    for element in root.findall("devices/shmem/server"):
        if element.get("path"):
            yield Need("files", "folder", element.get("path", ""), "the socket of its shared memory")
    for element in root.findall("devices/filesystem/binary"):
        if element.get("path"):
            yield Need("programs", "program", element.get("path", ""), "the program that serves its folders")


def _media(root: Element) -> t.Iterator[Need]:
    for target, device, path in media(root):
        yield Need("cdrom", "medium", path, f"the {'disk' if device == 'disk' else device} {target}", target)


def _processors(root: Element) -> t.Iterator[Need]:
    places = [("vcpu", "cpuset"), *((f"cputune/{name}", "cpuset") for name in ("vcpupin", "emulatorpin", "iothreadpin"))]
    for path, name in places:
        for element in root.findall(path):
            if element.get(name):
                yield Need("numa", "processors", element.get(name, ""), "processors that it is bound to")
    for path in ("numatune/memory", "numatune/memnode"):
        for element in root.findall(path):
            if element.get("nodeset"):
                yield Need("numa", "nodes", element.get("nodeset", ""), "NUMA nodes that its memory is bound to")
    for element in root.findall("devices/memory/source/nodemask"):
        yield Need("numa", "nodes", (element.text or "").strip(), "NUMA nodes that its memory is bound to")


def _hugepages(root: Element) -> t.Iterator[Need]:
    from .domain_xml import UNITS

    if root.find("memoryBacking/hugepages") is None:
        return
    memory = root.find("memory")
    size = 0 if memory is None or not memory.text else int(memory.text) * UNITS.get(memory.get("unit", "KiB"), 1024)
    pages: list[Element | None] = list(root.findall("memoryBacking/hugepages/page"))
    # With several sizes, libvirt gives each cell its own: all of them are looked for with all of the memory, which is the careful side.
    for page in pages or [None]:
        kib = "default" if page is None else str(int(page.get("size", "0")) * UNITS.get(page.get("unit", "KiB"), 1024) // 1024)
        yield Need("hugepages", "hugepages", kib, "huge pages", str(size))


def _filters(root: Element) -> t.Iterator[Need]:
    for element in root.findall("devices/interface/filterref"):
        yield Need("nwfilters", "nwfilter", element.get("filter", ""), f"the network filter {element.get('filter')}")


def _secrets(root: Element) -> t.Iterator[Need]:
    kinds = {"auth": None, "encryption": "volume"}
    for above in root.iter():
        kind = kinds.get(above.tag, "vtpm" if above.tag == "encryption" else None)
        for secret in above.findall("secret"):
            if secret.get("uuid"):
                yield Need("secrets", "secret", secret.get("uuid", ""), f"the secret {secret.get('uuid')}", "uuid")
            elif secret.get("usage"):
                usage = secret.get("type") if above.tag == "auth" else kind
                yield Need("secrets", "secret", secret.get("usage", ""), f"the secret for {secret.get('usage')}", usage or "")
    for element in root.findall("devices/tpm/backend/encryption"):
        if element.get("secret"):
            yield Need("secrets", "secret", element.get("secret", ""), f"the secret {element.get('secret')}", "uuid")


def _filesystems(root: Element) -> t.Iterator[Need]:
    for element in root.findall("devices/filesystem"):
        source = element.find("source")
        if source is None:
            continue
        thing = f"the folder {_get(element, 'target', 'dir')}"
        if source.get("socket"):
            yield Need("filesystems", "socket", source.get("socket", ""), thing)
        elif source.get("dir"):
            yield Need("filesystems", "shared", source.get("dir", ""), thing)
        elif source.get("usage") is None:
            yield Need("filesystems", "never", "", f"{thing} is of a kind that is not looked at: detach it")
        if element.get("type") == "mount":
            # QEMU itself refuses a live migration with a mounted 9p; virtiofsd is not asked for its state.
            yield Need(
                "filesystems", "offline", "", f"{thing} is served by a process of this host's: shut the guest down and move it with kvm_migrate_mode=offline"
            )


def _host_devices(root: Element) -> t.Iterator[Need]:
    for element in root.findall("devices/hostdev"):
        source = element.find("source")
        if source is None:
            continue
        kind = element.get("type", "")
        if kind == "usb" and source.find("vendor") is not None:
            identity = f"{_get(source, 'vendor', 'id')[2:]}:{_get(source, 'product', 'id')[2:]}"
            yield Need("hostdev", "usb", identity, f"the USB device {identity}")
        elif kind == "pci" and source.find("address") is not None:
            numbers = [int(_get(source, "address", name) or "0", 16) for name in ("domain", "bus", "slot", "function")]
            yield Need("hostdev", "pci", "{:04x}:{:02x}:{:02x}.{:x}".format(*numbers), "the PCI device {:04x}:{:02x}:{:02x}.{:x}".format(*numbers))
        elif kind == "mdev" and source.find("address") is not None:
            yield Need("hostdev", "mdev", _get(source, "address", "uuid"), f"the mediated device {_get(source, 'address', 'uuid')}")
        elif element.get("mode") == "capabilities" or kind in ("scsi", "scsi_host", "usb"):
            yield Need(
                "hostdev", "never", "", f"whether the destination has this host's device ({kind}) cannot be told: detach it, or give it by vendor and product"
            )


def _interface(element: Element, names: bool) -> t.Iterator[Need]:
    kind, mac = element.get("type", ""), _get(element, "mac", "address")
    source = element.find("source")
    where = {} if source is None else source.attrib
    thing = f"the interface {mac}".rstrip()
    virtual = _get(element, "virtualport", "type")
    if kind == "network":
        yield Need("networks", "network", where.get("network", ""), f"the network {where.get('network')}", where.get("portgroup", ""))
    elif kind == "bridge":
        yield Need("networks", "link", where.get("bridge", ""), f"the bridge {where.get('bridge')}", virtual or "bridge")
    elif kind == "direct":
        yield Need("networks", "link", where.get("dev", ""), f"the device {where.get('dev')}")
    elif kind == "vhostuser":
        server = where.get("mode") == "server"
        yield Need("networks", "folder" if server else "socket", where.get("path", ""), f"the socket of {thing}")
    elif kind == "vdpa":
        yield Need("networks", "exists", where.get("dev", ""), f"the vDPA device of {thing}")
    elif kind == "hostdev":
        if element.find("teaming") is None:
            yield Need(
                "hostdev", "offline", "", f"{thing} is a device of this host's: detach it, or shut the guest down and move it with kvm_migrate_mode=offline"
            )
        address = None if source is None else source.find("address")
        if address is not None and address.get("type", "pci") == "pci":
            numbers = [int(address.get(name, "0"), 16) for name in ("domain", "bus", "slot", "function")]
            yield Need("hostdev", "pci", "{:04x}:{:02x}:{:02x}.{:x}".format(*numbers), f"the PCI device of {thing}")
    elif kind in ("server", "udp"):
        yield from _listening(
            where.get("address", "") if kind == "server" else _get(element, "source/local", "address"),
            where.get("port", ""),
            thing,
            "networks",
            kind == "server",
        )
    elif kind == "user":
        for forward in element.findall("portForward"):
            for ports in forward.findall("range"):
                yield from _listening(forward.get("address", ""), ports.get("start", ""), thing, "networks", forward.get("proto", "tcp") == "tcp")
    elif kind not in ("ethernet", "null", "mcast", "client", "internal"):
        yield Need("networks", "never", kind, f"{thing} is of a kind that is not known ({kind}): use a bridge, a network or direct")
    named = _get(element, "target", "dev")
    managed = _get(element, "target", "managed") != "no"
    if names and named and not MADE_NAMES.fullmatch(named):
        yield Need("networks", "no link" if managed else "link", named, f"the name {named} of {thing}")


def _listening(address: str, port: str, thing: str, check: str, tcp: bool = True) -> t.Iterator[Need]:
    if address not in ANYWHERE:
        yield Need(check, "address", address, thing)
    if tcp and port.isdigit() and int(port) > 0:
        yield Need(check, "port", port, thing, address)


def _graphics(element: Element) -> t.Iterator[Need]:
    thing = f"its {element.get('type', '').upper()} server"
    addresses = {element.get("listen", ""), element.get("address", ""), *(listen.get("address", "") for listen in element.findall("listen"))}
    for listen in element.findall("listen"):
        if listen.get("type") == "network" and listen.get("network"):
            yield Need("graphics", "network", listen.get("network", ""), f"the network {listen.get('network')} of {thing}")
            addresses.discard(listen.get("address", ""))
    for address in sorted(addresses - set(ANYWHERE)):
        yield Need("graphics", "address", address, thing)
    where = sorted(addresses - {""})
    for name in ("port", "tlsPort", "websocket"):
        port = element.get(name, "")
        if element.get("autoport") != "yes" and port.isdigit() and int(port) > 0:
            yield Need("graphics", "port", port, thing, where[0] if where else "")
    for socket in {element.get("socket", ""), *(listen.get("socket", "") for listen in element.findall("listen"))}:
        if socket and not socket.startswith(LIBVIRTS_OWN):
            yield Need("graphics", "folder", socket, f"the socket of {thing}")


# Far ends of which nothing is needed: libvirt, QEMU or the guest makes them.
WITHOUT_NEED = ("null", "vc", "pty", "stdio", "spicevmc", "spiceport", "qemu-vdagent", "dbus", "host-certificates", "nmdm")


def _character(element: Element, thing: str) -> t.Iterator[Need]:
    kind = element.get("type", "")
    kind = element.get("mode", "") if element.tag == "smartcard" and kind == "" else kind
    sources = element.findall("source") or [ElementTree.Element("source")]
    for source in sources:
        path, mode = source.get("path", ""), source.get("mode", "")
        if kind in WITHOUT_NEED or (kind in ("unix", "file") and (not path or path.startswith(LIBVIRTS_OWN))):
            continue
        if kind in ("file", "unix") and mode != "connect":
            yield Need("channels", "folder", path, f"the {'socket' if kind == 'unix' else 'file'} of {thing}")
        elif kind == "unix":
            yield Need("channels", "socket", path, f"the socket of {thing}")
        elif kind == "pipe":
            yield Need("channels", "exists", path, f"the pipe of {thing}")
        elif kind == "dev":
            yield Need("channels", "exists", path, f"the device of {thing}")
        elif kind in ("tcp", "udp"):
            if mode == "bind":
                yield from _listening(source.get("host", ""), source.get("service", ""), thing, "channels", kind == "tcp")
        elif kind not in ("host", "passthrough"):
            yield Need("channels", "never", kind, f"the far end of {thing} is of a kind that is not known ({kind}): use pty, file, unix or tcp")
    log = _get(element, "log", "file")
    if log:
        yield Need("channels", "folder", log, f"the log of {thing}")


def _random(element: Element) -> t.Iterator[Need]:
    if element.get("model") == "random" and element.text and element.text.strip():
        yield Need("channels", "exists", element.text.strip(), "its source of random numbers")
    elif element.get("model") == "egd":
        yield from _character(element, "random numbers")
