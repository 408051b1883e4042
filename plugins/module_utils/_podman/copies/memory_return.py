# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The memory of a backup, on its way back: whether it can be restored on this host, and its files as a snapshot with memory has them."""

from __future__ import annotations

import os
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ..._core.backups import MEMORY, Backups, Row
from ..._core.disk_store import DiskStore
from ..._core.room import look_for_room
from ..._core.runtime import HandoverError, Runtime
from .engine import Engine
from .memory_fit import WAY_OUT, misfits


def look_for_memory(
    module: AnsibleModule, engine: Engine, backups: Backups, point: Row, record: Row, here: t.Mapping[str, t.Any] | None, there: bool
) -> None:
    """An error where the container cannot run on from it on this host. Nothing has been touched then. there: it has been unpacked already."""
    of = "the backup {0} of {1}".format(point["name"] or point["id"], backups.workload)
    if not point["memory"]:
        raise HandoverError("{0} has no memory: restore the disks alone (handover_memory=false), or name one of those that have it (backup_list)".format(of))
    configuration = backups.configuration(point["id"])
    unit = (configuration.get("service") or {}).get("unit")
    if here is None and unit:
        raise HandoverError(
            "{0} was run by {1} at the backup, and neither is here: bring that unit to this host and start it, and restore then; or restore the disks alone "
            "(handover_memory=false)".format(backups.workload, unit)
        )
    if here is not None and here["Id"] != record["container"] and not engine.is_alike(configuration, here["Id"]):
        raise HandoverError(
            "the memory in {0} is of an earlier container of its name, made in another way: restore the disks alone (handover_memory=false)".format(of)
        )
    now = engine.host(module, backups.workload)
    reasons = misfits(backups.workload, record["memory"]["runtime"], engine.runtime_of(now), record["memory"]["host"], now)
    if reasons:
        raise HandoverError("the memory in {0} cannot be restored here: {1}: {2}".format(of, "; ".join(reasons), WAY_OUT))
    engine.look_for_restore(backups.workload)
    # As an archive, and unpacked; the rollback looks for the room of its own copies.
    if not there:
        look_for_room(of, 2 * point["memory_bytes"], module.params["root"])


def unpack(runtime: Runtime, store: DiskStore, point: str, folder: str) -> None:
    """The files are in the folder then. The archive is held against its digest before."""
    archive = os.path.join(folder, MEMORY)
    store.export(point, MEMORY, archive)
    whole = ("--numeric-owner", "--same-permissions", "--acls", "--xattrs", "--xattrs-include=*")
    runtime.run([runtime.tool("tar", "tar"), "--extract", "--file=" + archive, "--directory=" + folder, *whole])
    os.unlink(archive)
