# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Moves the definition of a guest that does not run.

libvirt's own offline migration removes the TPM's state with the definition, and says nothing of parts that the destination's libvirt does not
know. So the destination is given the definition, gives it back to be compared, and only then the source lets go, and keeps the guest's files.
Autostart comes after that (keep.py): while both hosts have the definition, no boot of the destination starts the guest.
"""

from __future__ import annotations

import contextlib
import typing as t
from xml.etree import ElementTree

from .._core.runtime import HandoverError
from . import releases
from .inventory import paths

# The parts that each libvirt writes in its own way: devices that every guest has, and the firmware that it chooses.
WRITTEN_FREELY = ("@id", "seclabel", "devices/controller", "devices/*/address", "devices/audio", "devices/memballoon", "devices/watchdog", "os/firmware")


def move(libvirt: t.Any, domain: t.Any, there: t.Any, forget: t.Container[str] = ()) -> None:
    """`domain` is the guest on the source, `there` the destination's connection. `forget` names the records that may be lost: snapshots, checkpoints."""
    text, _refused = releases.sent(libvirt, domain, there)
    # Not held against its schema: it may lack a word that says what is meant anyway, and whatever else it leaves out is seen.
    arrived = there.defineXML(text)
    try:
        lacking = left_out(text, arrived.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE | libvirt.VIR_DOMAIN_XML_SECURE))
        if lacking:
            raise HandoverError(
                f"the destination's libvirt leaves out <{lacking[0].replace('/', '> <')}> of the definition: upgrade it there, or take that out (`virsh edit`)"
            )
    except (HandoverError, libvirt.libvirtError):
        with contextlib.suppress(libvirt.libvirtError):
            arrived.undefineFlags(keeping(libvirt))
        raise
    metadata = {"snapshots": libvirt.VIR_DOMAIN_UNDEFINE_SNAPSHOTS_METADATA, "checkpoints": libvirt.VIR_DOMAIN_UNDEFINE_CHECKPOINTS_METADATA}
    # With a managed save libvirt refuses this, and nothing is ever resumed over a newer disk.
    domain.undefineFlags(keeping(libvirt) | sum(flag for name, flag in metadata.items() if name in forget))


def keeping(libvirt: t.Any) -> int:
    """A definition goes, and no file with it."""
    return int(libvirt.VIR_DOMAIN_UNDEFINE_KEEP_NVRAM | libvirt.VIR_DOMAIN_UNDEFINE_KEEP_TPM)


def left_out(sent: str, defined: str) -> list[str]:
    """Paths of one definition that the other does not have."""
    lacking = releases.telling(ElementTree.fromstring(sent)) - paths(ElementTree.fromstring(defined))
    return sorted(path for path in lacking if not _freely(path))


def _freely(path: str) -> bool:
    steps = path.split("/")
    for known in (each.split("/") for each in WRITTEN_FREELY):
        if len(steps) >= len(known) and all(one in ("*", other) for one, other in zip(known, steps)):
            return True
    return False
