# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""All snapshots of a container, on their way to the host that it goes to.

The host that has them offers them. The other one brings what it lacks, by ssh: first the disks, store to store, then the folder of each snapshot. One that
has its record is whole, and what came before a kill stays.
"""

from __future__ import annotations

import os
import platform
import shlex
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ..._core import host
from ..._core.backups import GUEST
from ..._core.disk_store import FOLDER, DiskStore
from ..._core.pcopy import Pcopy
from ..._core.room import look_for_room
from ..._core.runtime import HandoverError, Runtime
from ..._core.snapshot_records import Snapshots
from .. import groups, workload
from . import memory_fit
from .engine import EngineOf, PodmanEngine, demand_own

Row = t.Dict[str, t.Any]

# As the helper comes to another host.
_SSH = ("-T", "-o", "BatchMode=yes", "-o", "ControlMaster=no", "-o", "ControlPath=none", "-o", "ConnectTimeout=10", "-o", "ServerAliveInterval=10",
        "-o", "ServerAliveCountMax=3", "-o", "LogLevel=ERROR", "--")  # fmt: skip
_PACK = ("tar", "--create", "--numeric-owner", "--acls", "--xattrs", "--xattrs-include=*", "--sparse")
_UNPACK = ("--extract", "--numeric-owner", "--same-permissions", "--acls", "--xattrs", "--xattrs-include=*")
# The archive of one snapshot's folder, while it comes.
ARCHIVE = ".coming.tar"
_INTO = 'archive=$1; shift; exec "$@" >"$archive"'


class SnapshotTree:
    """The snapshots of one container, on this host."""

    def __init__(self, module: AnsibleModule, engine_of: EngineOf = PodmanEngine) -> None:
        self.module = module
        self.params = module.params
        self.workload: str = module.params["workload"]
        self.runtime = Runtime(module, module.params["timeout"])
        self.engine = engine_of(self.runtime)
        self.snapshots = Snapshots(module.params["root"], self.workload)
        self.disks = DiskStore.of(Pcopy(self.runtime), module.params["root"], self.workload)
        self.source: str = module.params["source"].strip("[]")

    def run(self) -> Row:
        """Brings it to the state asked for."""
        return {"offered": self.offer, "brought": self.bring}[self.params["state"]]()

    # offered

    def offer(self) -> Row:
        """Its snapshots, but for backups: those have their data elsewhere."""
        rows = [record for record in self.snapshots.all() if not record.get("store")]
        listed = workload.find(self.engine.listed(), self.workload) if any(record["memory"] for record in rows) else None
        return {"changed": False, "snapshots": [self._row(record, listed["Id"] if listed else "") for record in rows], "bytes": 0}

    def _row(self, record: Row, identifier: str) -> Row:
        """With the bytes beside the store, and whether it will be known of its memory on another host that it is of this container."""
        fits = bool(record["memory"] and identifier and self.engine.is_alike(self.snapshots.configuration(record["name"]), identifier))
        return {**record, "beside": host.allocated(self.snapshots.path(record["name"])), "fits": fits}

    # brought

    def bring(self) -> Row:
        """All that are offered and are not here."""
        offered: t.Sequence[Row] = self.params["snapshots"]
        here = {record["name"]: record for record in self.snapshots.all()}
        self._look_for_others(offered, here)
        lacking = [row for row in offered if row["name"] not in here]
        points = [row["name"] for row in offered if row.get("disks")]
        if lacking:
            self._ssh("tar", "--version")
        come = self._join(points, "--dry-run")
        need = come["bytes"] + sum(row["beside"] for row in lacking) + max((row["beside"] for row in lacking), default=0)
        self._look_for_room(need)
        self._look_for_memory()
        # Without a change the store may have to learn which of them the disks descend from.
        if not self.module.check_mode and (lacking or points):
            self._join(points)
            for row in lacking:
                self._bring(row)
        names = sorted({*(row["name"] for row in lacking), *(point.get("name") or point["id"] for point in come["points"])})
        return {"changed": bool(names), "reasons": ["{0} is not here".format(name) for name in names], "snapshots": lacking, "bytes": need}

    def _look_for_others(self, offered: t.Sequence[Row], here: t.Mapping[str, Row]) -> None:
        """An error where a name is another snapshot's, or the snapshots are another container's."""
        if any(record.get("kind") == GUEST for record in here.values()):
            raise HandoverError("{1} has snapshots of a KVM guest named {0}: remove them, or rename one of the two".format(self.workload, platform.node()))
        for row in offered:
            if row["name"] in here and not _same(row, here[row["name"]]):
                raise HandoverError(
                    "{4} has another snapshot {0} of {1}, of {2}, and the one that would come is of {3}: remove one of them (state: absent)".format(
                        row["name"], self.workload, here[row["name"]]["taken"], row["taken"], platform.node()
                    )
                )
        known = [_volumes(row) for row in offered]
        strange = sorted(name for name, record in here.items() if not record.get("store") and _volumes(record) not in known)
        if strange and len(strange) == len(here):
            raise HandoverError(
                "{2} has snapshots of another container named {0} ({1}), with other volumes: remove them there (state: absent), or rename one of the "
                "two".format(self.workload, ", ".join(strange), platform.node())
            )

    def _join(self, points: t.Sequence[str], *words: str) -> Row:
        if not points:
            return {"points": [], "bytes": 0}
        place = "[{0}]:{1}" if ":" in self.source else "{0}:{1}"
        source = place.format(self.source, os.path.join(self.params["root"], FOLDER, self.workload))
        current = ["--current"] if self.params["current"] else []
        return self.disks.pcopy.call("snapshot", "join", "--json", *current, *words, source, self.disks.folder, *points)

    def _look_for_room(self, need: int) -> None:
        """Together with what the container itself takes, where that is laid down on the same disk."""
        root = self.params["root"]
        beside = sum(each["allocated"] for each in self.params["beside"] if _device(each["image"]) == _device(root))
        if need:
            look_for_room("the snapshots of {0}{1}".format(self.workload, ", and its volumes," if beside else ""), need + beside, root)

    def _look_for_memory(self) -> None:
        then = self.params["memory_from"]
        if not then:
            return
        now = self.engine.host(self.module, self.workload)
        reasons = memory_fit.misfits(self.workload, self.engine.runtime_of(then), self.engine.runtime_of(now), then, now, then["name"])
        if reasons:
            raise HandoverError(
                "the memory of {0} cannot be restored on {1}: {2}: {3}".format(self.workload, platform.node(), "; ".join(reasons), memory_fit.WAY_OUT)
            )
        self.engine.look_for_restore(self.workload)

    def _bring(self, row: Row) -> None:
        """The folder of one snapshot. Its disks are in the store."""
        folder, archive = self.snapshots.begin(row["name"]), os.path.join(self.snapshots.folder, ARCHIVE)
        try:
            there = self.snapshots.path(row["name"])
            self.runtime.run([self.runtime.tool("sh", "dash"), "-c", _INTO, "sh", archive, *self._words(*_PACK, "--directory=" + there, ".")])
            self.runtime.run([self.runtime.tool("tar", "tar"), *_UNPACK, "--file=" + archive, "--directory=" + folder])
            os.unlink(archive)
            record = {key: value for key, value in row.items() if key not in ("beside", "fits")}
            self.snapshots.finish(row["name"], record)
        except BaseException:
            if os.path.exists(archive):
                os.unlink(archive)
            self.snapshots.forget(row["name"])
            raise

    def _words(self, *words: str) -> list[str]:
        return [self.runtime.tool("ssh", "openssh-client"), *_SSH, self.source, " ".join(map(shlex.quote, words))]

    def _ssh(self, *words: str) -> None:
        done = self.runtime.run(self._words(*words), accept=range(-255, 256))
        if done.rc:
            raise HandoverError(
                "{0} does not come to {1} by ssh, and snapshots come that way: {2}: see that `ssh -o BatchMode=yes {1} true` works there for root, or name {1} "
                "by another address (snapshot_source)".format(platform.node(), self.source, done.last_words)
            )


def act(module: AnsibleModule, engine_of: EngineOf = PodmanEngine) -> Row:
    """Of one container."""
    engine = engine_of(Runtime(module, module.params["timeout"]))
    names = groups.members(engine.listed(), module.params["workload"])
    if len(names) > 1:
        raise HandoverError("{0} are {1} containers: go back on another host with one at a time".format(" and ".join(names), len(names)))
    demand_own(module.params["root"], names, engine)
    return SnapshotTree(module, engine_of).run()


def _same(one: Row, other: Row) -> bool:
    return (one["taken"], one["container"]) == (other["taken"], other.get("container"))


def _volumes(record: Row) -> list[str]:
    return sorted(each["name"] for each in [*record["volumes"], *(record.get("folders") or [])])


def _device(path: str) -> int:
    """The file system that a path is on, or will be."""
    while not os.path.exists(path) and os.path.dirname(path) != path:
        path = os.path.dirname(path)
    return os.stat(path).st_dev
