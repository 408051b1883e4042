# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A repository of backups: a folder with one store of `pcopy snapshot` a workload, `<repository>/<workload>`. It is on this host, or on another one
that root of this host reaches by ssh (`backup1:/srv/backups`).

Each backup is a snapshot of that store, with two files taken along: the workload's configuration, and a record of its volumes. So a repository needs
nothing of the host that it came from.
"""

from __future__ import annotations

import json
import os
import tempfile
import typing as t

from . import host, loop
from .disk_store import CONFIGURATION, DiskStore, check_name, is_elsewhere, is_store
from .pcopy import Pcopy, PcopyError
from .runtime import HandoverError

RECORD = "backup.json"
# The memory of a container, in those backups that have it.
MEMORY = "memory.tar"
# The kind of a backup's workload: of guests it is said in the record, and for people in the description. All others are containers.
CONTAINER, GUEST = "container", "KVM guest"
PERIODS = ("last", "hourly", "daily", "weekly", "monthly", "yearly")

Row = t.Dict[str, t.Any]


def workloads(pcopy: Pcopy, repository: str) -> list[str]:
    """The workloads that a repository has backups of."""
    check_repository(repository)
    stores = _stores(pcopy, repository)
    if stores is None:
        raise HandoverError("there is no folder {0}{1}: name the repository that the backups are in".format(repository, _ON[is_elsewhere(repository)]))
    return sorted(stores)


_ON = {True: "", False: " on this host"}


def _stores(pcopy: Pcopy, repository: str) -> list[str] | None:
    """None where there is no such folder."""
    if is_elsewhere(repository):
        answer = pcopy.call("snapshot", "stores", "--json", repository)
        return None if answer["missing"] else answer["stores"]
    try:
        return [name for name in os.listdir(repository) if is_store(os.path.join(repository, name))]
    except FileNotFoundError:
        return None


def check_repository(repository: str) -> None:
    """A relative path would mean another folder with each way of reaching the host, and below a mount point another disk than the one that is missing."""
    if not os.path.isabs(repository) and not is_elsewhere(repository):
        raise HandoverError(
            "repository: '{0}' is no full path: name the folder from the root on, as in /srv/backups, or backup1:/srv/backups on another host".format(
                repository
            )
        )
    missing = "" if is_elsewhere(repository) else loop.unmounted(os.path.realpath(repository), host.read_text("/etc/fstab"), loop.read_mounts())
    if missing:
        raise HandoverError(
            "the repository {0} is on {1}, which /etc/fstab has as a file system of its own and which is not mounted: mount it first (`mount {1}`)".format(
                repository, missing
            )
        )


class Backups:
    """The backups of one workload."""

    def __init__(self, pcopy: Pcopy, repository: str, workload: str) -> None:
        check_name("workload", workload)
        check_repository(repository)
        self.pcopy = pcopy
        self.workload = workload
        self.repository = repository
        self.store = DiskStore(pcopy, os.path.join(repository, workload))

    def all(self) -> list[Row]:
        """In the order in which they were taken, which the store keeps: the clock of a host can go back."""
        if is_elsewhere(self.repository) and self.workload not in (_stores(self.pcopy, self.repository) or ()):
            return []
        return [self._row(each) for each in self.store.all()]

    def _row(self, point: Row) -> Row:
        """Memory is stored whole with each, beside the clusters."""
        memory = sum(file["bytes"] for file in point.get("files") or [] if file["name"] == MEMORY)
        told = {key: value for key, value in point.items() if key != "files"}
        return {
            "workload": self.workload, "kind": kind(point), **told, "taken": seconds(point["taken"]), "memory": memory > 0, "memory_bytes": memory,
            "stored": point["stored"] + memory,
        }  # fmt: skip

    def find(self, word: str) -> Row:
        """By its name, its ID or the beginning of one; the latest where there is no word."""
        listed = self.all()
        if not listed:
            raise HandoverError("there is no backup of {0} in {1}".format(self.workload, self.repository))
        found = [each for each in listed if word == each["name"] or each["id"].startswith(word)] if word else listed[-1:]
        if len(found) != 1:
            raise HandoverError(
                "{0} backups of {1} in {2} are called {3}: name one of {4}".format(
                    len(found) or "no", self.workload, self.repository, word, ", ".join(each["name"] or each["id"] for each in listed)
                )
            )
        return found[0]

    def document(self, point: str, name: str) -> dict[str, t.Any]:
        """A file that was taken along."""
        with tempfile.TemporaryDirectory(prefix="handover-") as folder:
            path = os.path.join(folder, name)
            self.store.export(point, name, path)
            try:
                with open(path, encoding="utf-8") as source:
                    return json.load(source)
            except ValueError as exc:
                raise HandoverError("{0} of the backup {1} of {2} is no JSON: verify the repository".format(name, point, self.workload)) from exc

    def configuration(self, point: str) -> dict[str, t.Any]:
        """The workload as it was."""
        return self.document(point, CONFIGURATION)

    def prune(self, keep: t.Mapping[str, int], dry: bool) -> list[Row]:
        """The verdict about each. Those that a policy does not keep are removed, unless dry."""
        policy = ["--keep-{0}={1}".format(period, keep[period]) for period in PERIODS if keep.get(period)]
        rows = self.pcopy.call("snapshot", "prune", "--json", *policy, *(["--dry-run"] if dry else []), self.store.folder)["snapshots"]
        return [{**row, "taken": seconds(row["taken"]), "why": ", ".join(row["why"])} for row in rows]

    def faults(self) -> list[Row]:
        """Files that are not as they were written, after all was read back."""
        try:
            self.pcopy.call("snapshot", "verify", "--json", self.store.folder)
        except PcopyError as exc:
            found = exc.answers[-1].get("faults") if exc.answers else None
            if not found:
                raise
            return [{**fault, "workload": self.workload, "points": ", ".join(fault.get("points") or [])} for fault in found]
        return []


def kind(row: t.Mapping[str, t.Any]) -> str:
    """For a list. A restore goes by the record."""
    return GUEST if row.get("description") == GUEST else CONTAINER


def seconds(moment: str) -> str:
    """The helper tells fractions, too."""
    return moment[: len("2026-11-26T02:30:00")] + "Z"
