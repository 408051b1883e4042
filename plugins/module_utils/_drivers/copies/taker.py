# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A name is a container or a KVM guest of this host. Its backup is taken by the one that knows it."""

from __future__ import annotations

import typing as t

from ansible.module_utils.basic import AnsibleModule

from ..._core.runtime import HandoverError, Runtime
from ..._kvm.copies.copy_mode import PUSH
from ..._kvm.copies.guest_taker import GuestTaker
from ..._kvm.guests import URI, has_libvirt
from ..._kvm.libvirt import Libvirt
from ..._podman import workload
from ..._podman.copies.backup_taker import BackupTaker
from .engines import driver_of, engine_of


class Taker(t.Protocol):
    """Takes a backup."""

    def run(self) -> dict[str, t.Any]:
        """The result of the module."""


def taker(module: AnsibleModule) -> Taker:
    """An error where the name could be both."""
    name = module.params["workload"]
    runtime = Runtime(module, module.params["timeout"])
    if not has_libvirt(runtime):
        return _of_a_container(module)
    container = runtime.find(driver_of(module)) is not None and workload.find(engine_of(module)(runtime).listed(), name) is not None
    try:
        guest = name in Libvirt(runtime, URI).names()
    except HandoverError:
        # A container is backed up, though libvirt is down. Anything else may be a guest.
        if container:
            return _of_a_container(module)
        raise
    if guest and container:
        raise HandoverError(f"{name} is a container and a KVM guest on this host, and it is not known which is meant: rename one of them")
    if guest and module.params.get("memory"):
        raise HandoverError(f"{name} is a KVM guest, and backups have the memory of containers alone: leave handover_memory away")
    return GuestTaker(module) if guest else _of_a_container(module)


def _of_a_container(module: AnsibleModule) -> Taker:
    demand_no_push(module)
    return BackupTaker(module, engine_of(module))


def demand_no_push(module: AnsibleModule) -> None:
    """Of a container, which has no QEMU."""
    if module.params.get("mode") == PUSH:
        raise HandoverError(f"{module.params['workload']} is no KVM guest, and only QEMU pushes disks: leave mode away")
