# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A clone is a container or a KVM guest, as the snapshot is. It is made and removed by the one that knows it."""

from __future__ import annotations

import typing as t

from ansible.module_utils.basic import AnsibleModule

from ..._core.backups import GUEST, RECORD, Backups
from ..._core.clones import Clones
from ..._core.pcopy import Pcopy
from ..._core.placement import CONTAINER, DOCKER, DRIVERS
from ..._core.runtime import HandoverError, Runtime
from ..._core.snapshot_records import Snapshots
from ..._kvm.copies.guest_cloner import GuestCloner
from ..._kvm.guests import state_of
from ..._podman import workload
from ..._podman.copies.clone_maker import CloneMaker
from ..._podman.podman import Podman
from .docker_maker import DockerMaker

MAKERS: t.Mapping[str, type[CloneMaker] | type[DockerMaker]] = {DRIVERS[CONTAINER]: CloneMaker, DRIVERS[DOCKER]: DockerMaker}


def clone(module: AnsibleModule) -> dict[str, t.Any]:
    """An error where the name is one of the other kind."""
    params = module.params
    runtime = Runtime(module, params["timeout"])
    if not _of_a_guest(runtime, params):
        if params["macs"]:
            raise HandoverError("{0} is a container, and podman draws its hardware addresses: leave clone_macs away".format(params["workload"]))
        return MAKERS[_driver(params)](module).run()
    if runtime.find("podman") is not None and workload.find(Podman(runtime).containers(), params["name"]) is not None:
        raise HandoverError("{0} is a container of this host, and a guest of that name could not be told from it: choose another name".format(params["name"]))
    return GuestCloner(module).run()


def _driver(params: t.Mapping[str, t.Any]) -> str:
    """By the record of a clone, or else by the snapshot."""
    record = Clones(params["root"]).read(params["name"])
    snapshots = Snapshots(params["root"], params["workload"] or params["name"])
    if record is None and params["state"] == "present" and snapshots.has(params["snapshot"]):
        record = snapshots.read(params["snapshot"])
    return (record or {}).get("driver") or DRIVERS[CONTAINER]


def _of_a_guest(runtime: Runtime, params: t.Mapping[str, t.Any]) -> bool:
    """By the snapshot; of a clone that goes by its record, or by the guest that has the name."""
    record = Clones(params["root"]).read(params["name"])
    if record is not None and (record["whole"] or params["state"] == "absent"):
        return record.get("kind") == GUEST  # the snapshot may be gone
    if params["state"] == "absent":
        return runtime.find("podman") is None or bool(state_of(runtime, params["name"]))
    if not params["repository"]:
        return Snapshots(params["root"], params["workload"]).read(params["snapshot"]).get("kind") == GUEST
    backups = Backups(Pcopy(runtime), params["repository"], params["workload"])
    if backups.document(backups.find(params["snapshot"])["id"], RECORD).get("kind") != GUEST:
        raise HandoverError(
            "{0} in {1} is a container, and this repository is for clones of guests: use the playbook backup_restore with handover_clone".format(
                params["workload"], params["repository"]
            )
        )
    return True
