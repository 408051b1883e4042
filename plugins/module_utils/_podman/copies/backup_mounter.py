# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A backup's volumes, mounted read-only on a host that needs to have neither the container nor podman.

They are mounted as those of a snapshot are, under the name that the backup would have as one. Once they are mounted nothing of the repository is needed any
more: the backup can be pruned, and the repository go.
"""

from __future__ import annotations

import os
import shutil
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ..._core.backups import GUEST, RECORD, Backups
from ..._core.disk_store import DiskStore, is_elsewhere
from ..._core.pcopy import Pcopy
from ..._core.runtime import HandoverError, Runtime
from ..backup_adopter import BROUGHT, PREFIX, bring
from ..snapshot_mounts import SnapshotMounts
from .snapshot_disks import FOLDER_FSTYPE, look_for_room


def mount(module: AnsibleModule) -> dict[str, t.Any]:
    """Mounts those volumes of the backup that are not mounted."""
    params = module.params
    runtime = Runtime(module, params["timeout"])
    backups = Backups(Pcopy(runtime), params["repository"], params["workload"])
    point = backups.find(params["backup"])
    record = backups.document(point["id"], RECORD)
    if record.get("kind") == GUEST:
        raise HandoverError(
            "{0} is a KVM guest, whose disks have partitions of their own: open the files that `pcopy snapshot show {1} {2}` names with guestmount, "
            "or restore it under another name (handover_clone)".format(params["workload"], backups.store.folder, point["id"])
        )
    name, mounts = PREFIX + point["id"], SnapshotMounts(params["root"], params["workload"])
    volumes = [*record["volumes"], *({"name": folder["name"], "fstype": FOLDER_FSTYPE} for folder in record.get("folders") or [])]
    missing = sorted({volume["name"] for volume in volumes} - set(mounts.places(name)))
    if missing and not module.check_mode:
        _lay(runtime, backups, point["id"], lambda write: mounts.mount(runtime, name, volumes, write), params["root"])
    return {
        "changed": bool(missing),
        "reasons": ["of the backup {0} these are not mounted: {1}".format(point["id"], ", ".join(missing))] if missing else [],
        "backup": point["id"],
        "taken": point["taken"],
        "mountpoints": mounts.places(name),
    }


def _lay(runtime: Runtime, backups: Backups, point: str, mount_by: t.Callable[[t.Callable[[t.Mapping[str, t.Any], str], None]], None], root: str) -> None:
    """Of a repository on another host the backup is here only for as long as its volumes are written."""
    far = is_elsewhere(backups.repository)
    folder = os.path.join(root, BROUGHT, backups.workload, point + "-mounted") if far else backups.store.folder
    store = DiskStore(backups.pcopy, folder)
    try:
        if far:
            shutil.rmtree(folder, ignore_errors=True)  # of a run that was killed
            bring(backups, point, folder)
        look_for_room(backups.workload, sum(store.data(point).values()), root)
        mount_by(lambda volume, path: store.write(point, volume["name"], path))
    finally:
        if far:
            shutil.rmtree(folder, ignore_errors=True)


def unmount(module: AnsibleModule) -> dict[str, t.Any]:
    """Unmounts all backups of the workload, or the one that is asked for. The repository is not asked."""
    params = module.params
    mounts = SnapshotMounts(params["root"], params["workload"])
    there = [name for name in mounts.names() if name.startswith(PREFIX)]
    found = [name for name in there if name.startswith(PREFIX + params["backup"])]
    if there and not found:
        raise HandoverError(
            "no backup of {0} with an ID that begins with {1} is mounted here: name one of {2}".format(
                params["workload"], params["backup"], ", ".join(name[len(PREFIX) :] for name in there)
            )
        )
    if not module.check_mode:
        for name in found:
            mounts.unmount(Runtime(module, params["timeout"]), name)
    return {"changed": bool(found), "reasons": ["the backup {0} is mounted".format(name[len(PREFIX) :]) for name in found], "mountpoints": {}}
