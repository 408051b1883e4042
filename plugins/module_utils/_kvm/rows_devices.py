# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The rows of a guest's devices: see rows."""

from __future__ import annotations

import typing as t

from .inventory import ANEW, CARRIED, LIVE, REFUSED, SAME, TOLD, Row

DEFINITION = "the definition"
OWN_DEVICE = "a device of the host's cannot travel: detach it (`virsh detach-device`), or shut the guest down and move it offline"


def _character(kind: str) -> t.Iterator[Row]:
    """The parts of a device that bytes go through."""
    at = f"devices/{kind}"
    yield from (
        Row(f"{at}/@type", SAME, "its far end is one that the destination has", "channels"),
        Row(f"{at}/protocol/**", CARRIED, DEFINITION),
        Row(f"{at}/source", CARRIED, DEFINITION),
        Row(f"{at}/source/*", CARRIED, DEFINITION),
        Row(f"{at}/source/*/**", CARRIED, DEFINITION),
        Row(
            f"{at}/source/@path",
            SAME,
            "the destination has the device, or the folder that the file or socket is in; the content of such a file is told to stay",
            "channels",
        ),
        Row(f"{at}/source/@host", SAME, "an address that is listened on is the destination's, too", "channels"),
        Row(f"{at}/source/@service", SAME, "a port that is listened on is free on the destination", "channels"),
        Row(f"{at}/source/@channel", CARRIED, DEFINITION),
        Row(f"{at}/source/@master", CARRIED, DEFINITION),
        Row(f"{at}/source/@slave", CARRIED, DEFINITION),
        Row(f"{at}/source/@mode", CARRIED, DEFINITION),
        Row(f"{at}/source/@append", CARRIED, DEFINITION),
        Row(f"{at}/source/@tls", CARRIED, DEFINITION),
        Row(f"{at}/source/seclabel/**", ANEW, "the destination's libvirt labels it"),
        Row(f"{at}/source/reconnect/**", CARRIED, DEFINITION),
        Row(f"{at}/log", CARRIED, DEFINITION),
        Row(f"{at}/log/@append", CARRIED, DEFINITION),
        Row(f"{at}/log/@file", TOLD, "begins empty on the destination: the text so far stays on the source", "logs"),
    )


PLAIN = ("controller", "crypto", "hub", "iommu", "memballoon", "panic", "sound", "vsock", "watchdog")
CHARACTER = ("channel", "console", "parallel", "redirdev", "serial", "smartcard")
DISK = "devices/disk"
INTERFACE = "devices/interface"

DISKS = (
    *(Row(f"{DISK}/@{name}", CARRIED, DEFINITION) for name in ("device", "model", "rawio", "sgio", "snapshot")),
    Row(f"{DISK}/@type", SAME, "shared storage, or a copy: see the disks' own checks", "storage"),
    *(
        Row(f"{DISK}/{name}/**", CARRIED, DEFINITION)
        for name in ("blockio", "geometry", "iotune", "target", "throttlefilters", "readonly", "shareable", "serial", "wwn", "vendor", "product")
    ),
    Row(f"{DISK}/backenddomain/**", REFUSED, "this belongs to another hypervisor: take it out of the definition", "hypervisor"),
    Row(f"{DISK}/transient/**", REFUSED, "changes to the disk are in a file that libvirt throws away: shut the guest down first", "transient_disk", LIVE),
    Row(f"{DISK}/mirror/**", REFUSED, "a block job copies the disk: let it end first, or stop it (`virsh blockjob`)", "job"),
    Row(f"{DISK}/backingStore/**", SAME, "the destination has the chain, or it is copied", "storage"),
    Row(f"{DISK}/source/**", SAME, "shared storage, or a copy: see the disks' own checks", "storage"),
    *(
        Row(f"{DISK}/source/@{name}", SAME, "the same data on the destination (CD-ROM, floppy, shared storage), or a copy", "storage")
        for name in ("file", "dev", "dir", "path")
    ),
    Row(f"{DISK}/source/@startupPolicy", CARRIED, DEFINITION),
    Row(f"{DISK}/source/@index", ANEW, "libvirt numbers the images of a guest that runs"),
    Row(f"{DISK}/source/seclabel/**", ANEW, "the destination's libvirt labels it"),
    Row(f"{DISK}/source/privateData/**", ANEW, "libvirt's own note on a guest that runs"),
    Row(f"{DISK}/privateData/**", ANEW, "libvirt's own note on a guest that runs"),
    *(
        Row(f"{at}/secret/**", SAME, "the destination's libvirt has the secret", "secrets")
        for at in (f"{DISK}/auth", f"{DISK}/encryption", f"{DISK}/source/auth", f"{DISK}/source/encryption")
    ),
    *(Row(f"{DISK}/{name}/**", CARRIED, DEFINITION) for name in ("auth", "encryption", "source/auth", "source/encryption")),
)

INTERFACES = (
    Row(f"{INTERFACE}/@type", SAME, "the destination has its far end", "networks"),
    Row(f"{INTERFACE}/@managed", CARRIED, DEFINITION),
    Row(f"{INTERFACE}/@trustGuestRxFilters", CARRIED, DEFINITION),
    *(
        Row(f"{INTERFACE}/{name}/**", CARRIED, DEFINITION)
        for name in ("bandwidth", "coalesce", "ip", "link", "mac", "model", "mtu", "port", "route", "teaming", "tune", "virtualport", "vlan", "rom")
    ),
    Row(f"{INTERFACE}/rom/@file", SAME, "the destination has the same file, by its digest", "files"),
    Row(f"{INTERFACE}/backend/**", CARRIED, DEFINITION),
    Row(f"{INTERFACE}/backend/@tap", SAME, "the destination has the device", "files"),
    Row(f"{INTERFACE}/backend/@vhost", SAME, "the destination has the device", "files"),
    Row(f"{INTERFACE}/backend/@logFile", TOLD, "begins empty on the destination: the text so far stays on the source", "logs"),
    Row(f"{INTERFACE}/backenddomain/**", REFUSED, "this belongs to another hypervisor: take it out of the definition", "hypervisor"),
    Row(f"{INTERFACE}/filterref/**", SAME, "the destination's libvirt has the filter", "nwfilters"),
    Row(f"{INTERFACE}/guest/**", ANEW, "names within a container of another hypervisor; QEMU has none"),
    Row(f"{INTERFACE}/guest/@dev", ANEW, "names within a container of another hypervisor; QEMU has none"),
    Row(f"{INTERFACE}/guest/@actual", ANEW, "names within a container of another hypervisor; QEMU has none"),
    Row(f"{INTERFACE}/portForward/**", SAME, "a port that is forwarded is free on the destination", "networks"),
    Row(f"{INTERFACE}/portForward/@dev", SAME, "the destination has the device", "networks"),
    Row(f"{INTERFACE}/script/**", CARRIED, DEFINITION),
    Row(f"{INTERFACE}/script/@path", SAME, "the destination has the same file, by its digest", "files"),
    Row(f"{INTERFACE}/downscript/**", CARRIED, DEFINITION),
    Row(f"{INTERFACE}/downscript/@path", SAME, "the destination has the same file, by its digest", "files"),
    Row(f"{INTERFACE}/source/**", SAME, "the destination has it", "networks"),
    *(Row(f"{INTERFACE}/source/@{name}", SAME, "the destination has it", "networks") for name in ("dev", "name", "path", "portgroup", "bridge", "network")),
    Row(f"{INTERFACE}/target", CARRIED, DEFINITION),
    Row(f"{INTERFACE}/target/@managed", CARRIED, DEFINITION),
    Row(f"{INTERFACE}/target/@dev", SAME, "a name that is set by hand is free on the destination; libvirt's own are made anew", "networks"),
)

GRAPHICS = (
    *(
        Row(f"devices/graphics/@{name}", CARRIED, DEFINITION)
        for name in (
            "type",
            "autoport",
            "connected",
            "defaultMode",
            "display",
            "fullscreen",
            "keymap",
            "multiUser",
            "p2p",
            "passwd",
            "passwdValidTo",
            "powerControl",
            "replaceUser",
            "sharePolicy",
            "username",
            "xauth",
        )  # fmt: skip
    ),
    *(Row(f"devices/graphics/@{name}", SAME, "a port that is set by hand is free on the destination", "graphics") for name in ("port", "tlsPort", "websocket")),
    *(Row(f"devices/graphics/@{name}", SAME, "the address is the destination's, too", "graphics") for name in ("listen", "address")),
    Row("devices/graphics/@socket", SAME, "the destination has the folder of a socket that is set by hand", "graphics"),
    Row("devices/graphics/listen", CARRIED, DEFINITION),
    Row("devices/graphics/listen/@type", CARRIED, DEFINITION),
    Row("devices/graphics/listen/@address", SAME, "the address is the destination's, too", "graphics"),
    Row("devices/graphics/listen/@network", SAME, "the destination has the network", "graphics"),
    Row("devices/graphics/listen/@socket", SAME, "the destination has the folder of a socket that is set by hand", "graphics"),
    Row("devices/graphics/gl/**", CARRIED, DEFINITION),
    Row("devices/graphics/gl/@rendernode", SAME, "the destination has the device", "files"),
    *(
        Row(f"devices/graphics/{name}/**", CARRIED, DEFINITION)
        for name in ("audio", "channel", "clipboard", "filetransfer", "image", "jpeg", "mouse", "playback", "streaming", "zlib")
    ),
    Row("devices/video/model/**", CARRIED, DEFINITION),
    Row("devices/video/model/acceleration/@rendernode", SAME, "the destination has the device", "files"),
    Row("devices/audio/**", CARRIED, DEFINITION),
    Row("devices/audio/@path", SAME, "the destination has the folder", "files"),
    Row("devices/audio/@runtimeDir", SAME, "the destination has the folder", "files"),
    Row("devices/audio/input/@dev", CARRIED, "the definition: sound is lost, not data, where the destination lacks it"),
    Row("devices/audio/output/@dev", CARRIED, "the definition: sound is lost, not data, where the destination lacks it"),
)

HOST_BOUND = (
    Row("devices/hostdev/**", REFUSED, OWN_DEVICE, "hostdev", LIVE),
    Row("devices/hostdev/source/block", SAME, "the destination has the device", "hostdev"),
    Row("devices/hostdev/source/char", SAME, "the destination has the device", "hostdev"),
    Row("devices/hostdev/source/interface", SAME, "the destination has the device", "hostdev"),
    Row("devices/hostdev/rom/@file", SAME, "the destination has the same file, by its digest", "files"),
    Row("devices/filesystem/**", CARRIED, DEFINITION),
    *(
        Row(f"devices/filesystem/source/@{name}", SAME, "the folder is on storage that both hosts reach, or is named as shared", "filesystems")
        for name in ("dir", "dev", "file", "name", "socket")
    ),
    Row("devices/filesystem/binary/@path", SAME, "the destination has the program", "programs"),
    Row("devices/redirfilter/**", CARRIED, DEFINITION),
    Row("devices/shmem/**", CARRIED, DEFINITION),
    Row("devices/shmem/@name", REFUSED, "memory that guests of one host share cannot travel: detach it, or shut the guest down", "shmem", LIVE),
    Row("devices/shmem/server/@path", SAME, "the destination has the folder of the socket", "files"),
    Row("devices/lease/**", REFUSED, "a lease of sanlock is held by its host: shut the guest down and move it offline", "lease", LIVE),
    Row("devices/memory/**", CARRIED, DEFINITION),
    Row("devices/memory/source/path", REFUSED, "what an NVDIMM or virtio-pmem keeps is a file of this host's, and is not copied: detach it", "pmem"),
    Row("devices/memory/source/nodemask", SAME, "the destination has those NUMA nodes", "numa"),
    Row("devices/pstore/**", CARRIED, DEFINITION),
    Row("devices/pstore/path", REFUSED, "what the guest's kernel keeps there is a file of this host's, and is not copied: take it out", "pstore"),
    Row("devices/input/@type", CARRIED, DEFINITION),
    Row("devices/input/@bus", CARRIED, DEFINITION),
    Row("devices/input/@model", CARRIED, DEFINITION),
    Row("devices/input/source/**", CARRIED, DEFINITION),
    Row("devices/input/source/@dev", REFUSED, "an input device of this host's cannot travel: detach it", "input"),
    Row("devices/input/source/@evdev", REFUSED, "an input device of this host's cannot travel: detach it", "input"),
    Row("devices/tpm/@model", CARRIED, DEFINITION),
    Row("devices/tpm/backend/**", CARRIED, DEFINITION),
    Row("devices/tpm/backend/@type", CARRIED, "a TPM that is emulated; of another kind it is the host's, and refused", "tpm"),
    Row("devices/tpm/backend", CARRIED, "QEMU's migration, or with owner and mode, held against the digest", "tpm"),
    Row("devices/tpm/backend/device/**", REFUSED, "the TPM is this host's own, and its keys stay in it: take it out, or use an emulated one", "tpm"),
    Row("devices/tpm/backend/device/@path", REFUSED, "the TPM is this host's own, and its keys stay in it: take it out, or use an emulated one", "tpm"),
    Row("devices/tpm/backend/source/**", CARRIED, "with owner and mode, held against the digest", "tpm"),
    Row("devices/tpm/backend/source/@path", CARRIED, "with owner and mode, held against the digest", "tpm"),
    Row("devices/tpm/backend/encryption/**", SAME, "the destination's libvirt has the secret", "secrets"),
    Row("devices/rng/@model", CARRIED, DEFINITION),
    Row("devices/rng/rate/**", CARRIED, DEFINITION),
    Row("devices/smartcard/@mode", CARRIED, DEFINITION),
    Row("devices/smartcard/certificate", REFUSED, "certificates are this host's: have the guest's smart card passed through instead", "smartcard"),
    Row("devices/smartcard/database", REFUSED, "certificates are a folder of this host's: have the guest's smart card passed through instead", "smartcard"),
)

DEVICES = (
    Row("devices", CARRIED, DEFINITION),
    Row("devices/emulator", SAME, "the destination has the program, and its libvirt knows its features", "machine"),
    Row("devices/*", CARRIED, DEFINITION),
    *(Row(f"devices/*/{part}/**", CARRIED, DEFINITION) for part in ("address", "alias", "acpi", "boot", "driver")),
    *(Row(f"devices/{kind}/**", CARRIED, DEFINITION) for kind in PLAIN),
    *(row for kind in CHARACTER for row in _character(kind)),
    *(Row(f"devices/{kind}/@tty", ANEW, "the destination gives it a terminal") for kind in ("console", "parallel", "serial")),
    *(Row(f"devices/{kind}/target/**", CARRIED, DEFINITION) for kind in ("channel", "console", "parallel", "serial", "smartcard")),
    *(row for row in _character("rng/backend")),
    Row("devices/rng/backend", SAME, "the destination has the device, or the service", "channels"),
    Row("devices/rng/backend/@model", CARRIED, DEFINITION),
    Row("devices/redirdev/@bus", CARRIED, DEFINITION),
    *DISKS,
    *INTERFACES,
    *GRAPHICS,
    *HOST_BOUND,
)
