# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A backup's volumes, or a guest's disks, mounted read-only on a host that needs to have neither the workload nor podman or libvirt.

They are mounted as those of a snapshot are, under the name that the backup would have as one. Once they are mounted nothing of the repository is needed any
more: the backup can be pruned, and the repository go.
"""

from __future__ import annotations

import glob
import os
import re
import shutil
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ..._core.backups import GUEST, RECORD, Backups
from ..._core.disk_store import DiskStore, is_elsewhere
from ..._core.pcopy import Pcopy
from ..._core.room import look_for_room
from ..._core.runtime import HandoverError, Runtime
from ..._core.snapshot_mounts import SnapshotMounts, VolumeMounts
from ..._kvm.copies.guest_mounts import GuestMounts
from ..._podman.copies.backup_adopter import BROUGHT, PREFIX, bring
from ..._podman.copies.snapshot_disks import FOLDER_FSTYPE

# With an ID, as the helper makes it: an operator's snapshot may be called backup-monday.
_MOUNTED = re.compile(PREFIX + "[0-9a-f]{16}")


class _Parts(t.Protocol):
    """What a backup has, to be mounted."""

    def missing(self) -> list[str]:
        """Those of its volumes that are not mounted."""

    def unwritten(self) -> list[str]:
        """Those of which no image is there yet."""

    def mount(self, write: t.Callable[[str, str], None]) -> None:
        """Mounts those that are missing; write makes the image of one, by its name and the path."""

    def told(self) -> list[str]:
        """A sentence for each part that cannot be mounted."""


def mount(module: AnsibleModule) -> dict[str, t.Any]:
    """Mounts those volumes of the backup that are not mounted."""
    params = module.params
    runtime = Runtime(module, params["timeout"])
    backups = Backups(Pcopy(runtime), params["repository"], params["workload"])
    point = backups.find(params["backup"])
    record = backups.document(point["id"], RECORD)
    name, mounts = PREFIX + point["id"], SnapshotMounts(params["root"], params["workload"])
    if record.get("kind") == GUEST:
        targets = [disk["target"] for disk in record["disks"]]
        parts: _Parts = GuestMounts(runtime, mounts, name, targets, backups.configuration(point["id"])["definition"])
    else:
        parts = VolumeMounts(
            runtime, mounts, name, [*record["volumes"], *({"name": folder["name"], "fstype": FOLDER_FSTYPE} for folder in record.get("folders") or [])]
        )
    missing = parts.missing()
    if missing and not module.check_mode:
        with mounts.held(module.check_mode):
            store = _store(backups, point["id"], parts.unwritten(), params["root"])
            try:
                parts.mount(lambda volume, path: store.write(point["id"], volume, path))
            finally:
                shutil.rmtree(_brought(params["root"], params["workload"], point["id"]), ignore_errors=True)
    return {
        "changed": bool(missing),
        "reasons": ["of the backup {0} these are not mounted: {1}".format(point["id"], ", ".join(missing))] if missing else [],
        "backup": point["id"],
        "taken": point["taken"],
        "mountpoints": mounts.places(name),
        "lines": parts.told(),
    }


def _brought(root: str, workload: str, point: str) -> str:
    """Where a backup of another host's repository is, for as long as its volumes are written."""
    return os.path.join(root, BROUGHT, workload, point + "-mounted")


def _store(backups: Backups, point: str, unwritten: t.Sequence[str], root: str) -> DiskStore:
    """The store that these volumes are written from, when there is room for them."""
    if not unwritten:
        return backups.store
    data, far = backups.store.data(point), is_elsewhere(backups.repository)
    # Of another host all of the backup comes here first.
    look_for_room(backups.workload, sum(data[name] for name in unwritten) + (sum(data.values()) if far else 0), root)
    if not far:
        return backups.store
    folder = _brought(root, backups.workload, point)
    shutil.rmtree(folder, ignore_errors=True)  # of a run that was killed
    bring(backups, point, folder)
    return DiskStore(backups.pcopy, folder)


def unmount(module: AnsibleModule) -> dict[str, t.Any]:
    """Unmounts all backups of the workload, or the one that is asked for. The repository is not asked."""
    params = module.params
    mounts = SnapshotMounts(params["root"], params["workload"])
    there = [name for name in mounts.names() if _MOUNTED.fullmatch(name)]
    found = [name for name in there if name.startswith(PREFIX + params["backup"])]
    if there and not found:
        raise HandoverError(
            "no backup of {0} with an ID that begins with {1} is mounted here: name one of {2}".format(
                params["workload"], params["backup"], ", ".join(name[len(PREFIX) :] for name in there)
            )
        )
    left = glob.glob(_brought(glob.escape(params["root"]), params["workload"], glob.escape(params["backup"]) + "*"))
    reasons = ["the backup {0} is mounted".format(name[len(PREFIX) :]) for name in found] + ["{0} is left of a mount".format(path) for path in left]
    if reasons and not module.check_mode:
        with mounts.held(module.check_mode):
            for name in found:
                mounts.unmount(Runtime(module, params["timeout"]), name)
            for path in left:
                if os.path.isdir(path):
                    shutil.rmtree(path)
    return {"changed": bool(reasons), "reasons": reasons, "mountpoints": {}, "lines": []}
