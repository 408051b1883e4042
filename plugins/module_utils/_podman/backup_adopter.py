# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A backup as a snapshot of this host: a record whose disks are in the repository. So all that a snapshot can do, a backup can.

Of a repository on another host the one backup is brought here first, as a store of its own that goes with the record.
"""

from __future__ import annotations

import json
import os
import shutil
import typing as t

from ansible.module_utils.basic import AnsibleModule

from .._core.backups import CONTAINER, GUEST, RECORD, Backups
from .._core.disk_store import CONFIGURATION, is_elsewhere
from .._core.pcopy import Pcopy
from .._core.runtime import HandoverError, Runtime
from .._core.snapshot_records import Snapshots
from . import workload
from .podman import Podman

# Below the folder of snapshots: backups from another host.
BROUGHT = ".brought"
# With its ID behind it the name that a backup has as a snapshot.
PREFIX = "backup-"


def adopt(module: AnsibleModule) -> dict[str, t.Any]:
    """Makes the record, or forgets it."""
    params = module.params
    runtime = Runtime(module, params["timeout"])
    backups = Backups(Pcopy(runtime), params["repository"], params["workload"])
    snapshots = Snapshots(params["root"], params["workload"])
    point = backups.find(params["backup"])
    name = PREFIX + point["id"]
    told = {"snapshot": name, "backup": point["id"], "taken": point["taken"]}
    if backups.document(point["id"], RECORD).get("kind") == GUEST:
        return {"changed": False, **told, "kind": GUEST, "exists": False}
    wanted = params["state"] == "present"
    brought = os.path.join(params["root"], BROUGHT, params["workload"], point["id"]) if is_elsewhere(params["repository"]) else ""
    store = brought or backups.store.folder
    # One that a killed run has left may be of the place where the repository was mounted then.
    there = snapshots.has(name) and (not wanted or snapshots.read(name).get("store") == store)
    changed = wanted != there
    if changed and not module.check_mode:
        snapshots.forget(name)
        if brought:
            shutil.rmtree(brought, ignore_errors=True)
        if wanted:
            if brought:
                bring(backups, point["id"], brought)
            _record(backups, snapshots, point, name, store)
    exists = workload.find(Podman(runtime).containers(), params["workload"]) is not None
    return {"changed": changed, **told, "kind": CONTAINER, "exists": exists}


def bring(backups: Backups, point: str, folder: str) -> None:
    """One backup of another host's repository, as a store of its own here: whole, or not at all."""
    os.makedirs(os.path.dirname(folder), mode=0o700, exist_ok=True)
    try:
        backups.pcopy.events("snapshot", "copy", backups.store.folder, point, folder)
    except HandoverError:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _record(backups: Backups, snapshots: Snapshots, point: t.Mapping[str, t.Any], name: str, store: str) -> None:
    record, configuration = backups.document(point["id"], RECORD), backups.configuration(point["id"])
    folder = snapshots.begin(name)
    try:
        descriptor = os.open(os.path.join(folder, CONFIGURATION), os.O_WRONLY | os.O_CREAT, 0o600)
        with open(descriptor, "w", encoding="utf-8") as target:
            json.dump(configuration, target)
    except BaseException:
        snapshots.forget(name)
        raise
    snapshots.finish(
        name,
        {
            "name": name,
            "taken": point["taken"],
            "container": record["container"],
            "memory": False,
            "running": record["running"],
            "volumes": record["volumes"],
            "folders": record.get("folders") or [],
            "disks": True,
            "store": store,
            "point": point["id"],
            "paused_ms": round(point["frozen_ms"]),
            "size": point["stored"],
        },
    )
