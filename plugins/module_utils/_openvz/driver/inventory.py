# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The fate of each parameter of a container's configuration in a move: OpenVZ's inventory. The rows' form is that of every engine."""

from __future__ import annotations

import typing as t

from ..._core import inventory
from ..._core.inventory import ANEW, CARRIED, REFUSED, SAME, TOLD, Row, rows
from ..translation import RULES

FILE = "by its line in the configuration, which the twin has word for word"

_OWN: dict[str, Row] = {
    **rows(ANEW, "the destination's own place, by its vz.conf", "VE_PRIVATE", "VE_ROOT"),
    **rows(CARRIED, FILE + "; no other container there has it", "NAME", check="names"),
    **rows(CARRIED, FILE + "; no other container there has one of them", "IP_ADDRESS", check="addresses"),
    **rows(SAME, "the destination has the bridges", "NETIF", check="bridges"),
    **rows(TOLD, "the numbers are the destination's processors and nodes then", "CPUMASK", "NODEMASK", check="masks"),
    **rows(REFUSED, "give it back to the host with `vzctl set --netdev_del`", "NETDEV", check="devices"),
    **rows(REFUSED, "take it away with `prlctl set --device-del`", "PCI", check="devices"),
    **rows(REFUSED, "a device of the host other than net/tun, fuse and ppp: take it away with `vzctl set --devnodes NAME:none`", "DEVNODES", check="devices"),
    **rows(REFUSED, "take its rights on devices of the host away with `vzctl set --devices`", "DEVICES", check="devices"),
    **rows(REFUSED, "a disk outside of its private area stays behind: detach it", "DISK", check="disks"),
    **rows(REFUSED, "a folder of the host stays behind: unmount it with `vzctl set --bindmount_del`", "BINDMOUNT", check="bind_mounts"),
    **rows(REFUSED, "take it out of the cluster", "HA_ENABLE", check="cluster"),
    **rows(CARRIED, FILE + "; of a directory container the limits and the account by `vzdqdump` and `vzdqload`", "QUOTAUGIDLIMIT", check="quota"),
}  # fmt: skip

# All that is known of either era.
PARAMETERS: dict[str, Row] = {name: _OWN.get(name) or Row(CARRIED, FILE) for name in sorted(RULES)}

STATE: dict[str, Row] = {
    "the files of a directory container (simfs, or the layout 4 of libvzctl)": Row(
        CARRIED, "by a tree of the session: once while it runs, and its changes after the stop"
    ),
    "the disk of a ploop container, with its snapshots": Row(
        CARRIED,
        "by a tree of the session: the kernel writes to it and tells no watcher. Offline it is sent once more as a whole after the stop; "
        "live its top layer is compared with the sent content, once more under the freeze",
        "disk",
    ),
    "a private area of another kind (VZFS), or of two kinds": Row(REFUSED, "convert it with `vzctl convert`", "layout"),
    "a private area that is a link": Row(REFUSED, "mount the folder there instead", "layout"),
    "its configuration": Row(CARRIED, "by the module, which compares it; of libvzctl in the private area. Nothing starts of it before the release"),
    "its action scripts": Row(CARRIED, "by the module; those of libvzctl are in the private area"),
    "the mark of its owner (.owner), of libvzctl": Row(ANEW, "`vzctl register` writes that of the destination"),
    "a private area on storage that several hosts see": Row(REFUSED, "unregister it here and register it there", "layout"),
    "action scripts of the host (vps.*)": Row(TOLD, "they stay, and those of the destination count there", "host_scripts"),
    "its name (/etc/vz/names)": Row(CARRIED, "the link is made at its start there", "names"),
    "memory, processes and connections": Row(
        CARRIED,
        "live, by `vzctl chkpnt` and `vzctl restore`, of OpenVZ's kernel 2.6.32, or of CRIU on a stock kernel and for libvzctl; "
        "offline it is stopped and started",
        "live",
    ),
    "memory of one of libvzctl's with the feature nfsd, or with an encrypted disk": Row(REFUSED, "move it offline", "live"),
    "a disk of libvzctl's in the form qcow2": Row(REFUSED, "it has no DiskDescriptor.xml, and no move reads it", "layout"),
    "a database of SQLite's that is open, live": Row(REFUSED, "end the program, or move the container offline", "databases"),
    "the dump of one that is suspended": Row(REFUSED, "resume it, or remove the dump and start it", "running"),
    "counters of resources and traffic": Row(ANEW, "the kernel counts from its start there"),
}

_ABOUT = """\
# The fate of a container's state under OpenVZ

Made from the rows of `plugins/module_utils/_openvz/driver/inventory.py`; [container-inventory.md](container-inventory.md) explains the five fates. A
parameter that is set and has no row is refused as `inventory:NAME`. [openvz.md](openvz.md) says how such a container moves.

## State beside the configuration

| state | becomes | how, or the cure | check |
|---|---|---|---|
"""

_KEYS = """

## Parameters of CTID.conf

| parameter | becomes | how, or the cure | check |
|---|---|---|---|
"""


def unaccounted(workload: t.Mapping[str, t.Any]) -> list[str]:
    """The parameters that hold something and that no row is about."""
    return inventory.unaccounted(PARAMETERS, workload["parameters"])


def refusal(workload: str, source: str, key: str, name: str) -> str:
    """Why a parameter without a row is in the way."""
    return (
        "{0} has the parameter {2} in its configuration on {1}, and it is not known whether a move keeps it: see what it is for, and "
        "list '{3}' in handover_ignore_checks if it means the same on both hosts".format(workload, source, key, name)
    )


def page() -> str:
    """The page of the documentation."""
    return _ABOUT + inventory.lines(STATE) + _KEYS + inventory.lines({"`{0}`".format(key): row for key, row in PARAMETERS.items()}) + "\n"
