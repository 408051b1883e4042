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

from ..._core.backups import CONTAINER, GUEST, RECORD, Backups, Row
from ..._core.disk_store import CONFIGURATION, DiskStore, is_elsewhere
from ..._core.pcopy import Pcopy
from ..._core.runtime import HandoverError, Runtime
from ..._core.snapshot_records import Snapshots
from .. import workload
from .engine import EngineOf, PodmanEngine, demand_same
from .memory_return import look_for_memory, unpack

# Below the folder of snapshots: backups from another host.
BROUGHT = ".brought"
# With its ID behind it the name that a backup has as a snapshot.
PREFIX = "backup-"


def adopt(module: AnsibleModule, engine_of: EngineOf = PodmanEngine) -> dict[str, t.Any]:
    """Makes the record, or forgets it."""
    params = module.params
    runtime = Runtime(module, params["timeout"])
    backups = Backups(Pcopy(runtime), params["repository"], params["workload"])
    snapshots = Snapshots(params["root"], params["workload"])
    point = backups.find(params["backup"])
    name = PREFIX + point["id"]
    told = {"snapshot": name, "backup": point["id"], "taken": point["taken"]}
    wanted, memory = params["state"] == "present", params["memory"]
    record = backups.document(point["id"], RECORD)
    if record.get("kind") == GUEST:
        if memory:
            raise HandoverError("{0} is a KVM guest, and its backup has no memory: leave handover_memory away".format(params["workload"]))
        return {"changed": False, **told, "kind": GUEST, "exists": False}
    engine = engine_of(runtime)
    demand_same("the backups of {0} in {1}".format(params["workload"], params["repository"]), record, engine, "or choose another backup")
    here = workload.find(engine.listed(), params["workload"])
    brought = os.path.join(params["root"], BROUGHT, params["workload"], point["id"]) if is_elsewhere(params["repository"]) else ""
    store = brought or backups.store.folder
    # One that a killed run has left may be of the place where the repository was mounted then.
    there = snapshots.has(name) and (not wanted or _is(snapshots.read(name), store, memory))
    if wanted and memory:
        look_for_memory(module, engine, backups, point, record, here, there)
    changed = wanted != there
    if changed and not module.check_mode:
        snapshots.forget(name)
        if brought:
            shutil.rmtree(brought, ignore_errors=True)
        if wanted:
            if brought:
                bring(backups, point["id"], brought)
            _record(backups, snapshots, point, as_snapshot(name, point, record, store, memory))
    return {"changed": changed, **told, "kind": CONTAINER, "exists": here is not None}


def _is(known: t.Mapping[str, t.Any], store: str, memory: bool) -> bool:
    return bool(known.get("store") == store and known["memory"] == memory)


def bring(backups: Backups, point: str, folder: str) -> None:
    """One backup of another host's repository, as a store of its own here: whole, or not at all."""
    os.makedirs(os.path.dirname(folder), mode=0o700, exist_ok=True)
    try:
        backups.pcopy.events("snapshot", "copy", backups.store.folder, point, folder)
    except HandoverError:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _record(backups: Backups, snapshots: Snapshots, point: Row, record: Row) -> None:
    folder = snapshots.begin(record["name"])
    try:
        descriptor = os.open(os.path.join(folder, CONFIGURATION), os.O_WRONLY | os.O_CREAT, 0o600)
        with open(descriptor, "w", encoding="utf-8") as target:
            json.dump(backups.configuration(point["id"]), target)
        if record["memory"]:
            unpack(backups.pcopy.runtime, DiskStore(backups.pcopy, record["store"]), point["id"], folder)
        snapshots.finish(record["name"], record)
    except BaseException:
        snapshots.forget(record["name"])
        raise


def as_snapshot(name: str, point: Row, record: Row, store: str, memory: bool) -> Row:
    """The record of a snapshot whose disks are in a store of backups."""
    return {
        "name": name,
        "taken": point["taken"],
        "container": record["container"],
        "memory": memory,
        "running": record["running"],
        "volumes": record["volumes"],
        "folders": record.get("folders") or [],
        "disks": True,
        "store": store,
        "point": point["id"],
        "paused_ms": round(point["frozen_ms"]),
        "size": point["stored"],
        **({"driver": record["driver"]} if "driver" in record else {}),
    }
