# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A name is a container or a KVM guest of this host. Its snapshots are the concern of the one that knows it, and of the engine that the driver names."""

from __future__ import annotations

import typing as t

from ansible.module_utils.basic import AnsibleModule

from ..._core.backups import GUEST
from ..._core.runtime import HandoverError, Runtime
from ..._core.snapshot_records import Snapshots
from ..._kvm.copies.guest_snapshot import GuestSnapshot
from ..._kvm.guests import URI, has_libvirt
from ..._kvm.libvirt import Libvirt
from ..._podman import groups, workload
from ..._podman.copies import snapshot_group
from ..._podman.copies.engine import demand_own
from . import engines
from .taker import demand_no_push

# The states in which the workload itself is needed, and not its snapshot alone.
WITH_THE_WORKLOAD = ("present", "staged", "placed", "restored")


def act(module: AnsibleModule) -> dict[str, t.Any]:
    """One snapshot of a guest, of a container, or of all containers that the word names."""
    runtime = Runtime(module, module.params["timeout"])
    word = module.params["workload"]
    engine_of = engines.engine_of(module)
    containers = _containers(runtime, module)
    names = groups.members(containers, word)
    demand_own(module.params["root"], names, engine_of(runtime))
    if len(names) > 1:
        mixed = [name for name in names if _is_guest(runtime, name, containers)]
        if mixed:
            raise HandoverError(f"{mixed[0]} is a KVM guest, and its snapshots are of a moment of its own: take it alone")
    elif _of_a_guest(module.params, lambda: _is_guest(runtime, word, containers)):
        return GuestSnapshot(module).run()
    demand_no_push(module)
    return snapshot_group.act(module, engine_of)


def members(module: AnsibleModule, seconds: int) -> list[str]:
    """The workloads that a word names."""
    return groups.members(_containers(Runtime(module, seconds), module), module.params["workload"])


def _containers(runtime: Runtime, module: AnsibleModule) -> list[dict[str, t.Any]]:
    """A host of guests alone has no engine."""
    return engines.engine_of(module)(runtime).listed() if runtime.find(engines.driver_of(module)) is not None else []


def _of_a_guest(params: t.Mapping[str, t.Any], is_guest: t.Callable[[], bool]) -> bool:
    """Where the workload itself is not needed it may be gone, and the record tells."""
    snapshots = Snapshots(params["root"], params["workload"])
    if params["state"] not in WITH_THE_WORKLOAD and snapshots.has(params["name"]):
        return snapshots.read(params["name"]).get("kind") == GUEST
    return is_guest()


def _is_guest(runtime: Runtime, name: str, containers: t.Sequence[t.Mapping[str, t.Any]]) -> bool:
    """An error where the name could be both."""
    if not has_libvirt(runtime):
        return False
    container = workload.find(containers, name) is not None
    try:
        guest = name in Libvirt(runtime, URI).names()
    except HandoverError:
        # It is a container, though libvirt is down. Anything else may be a guest.
        if container:
            return False
        raise
    if guest and container:
        raise HandoverError(f"{name} is a container and a KVM guest on this host, and it is not known which is meant: rename one of them")
    return guest
