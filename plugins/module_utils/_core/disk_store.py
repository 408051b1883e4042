# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The disks of a container at points in time: a store of `pcopy snapshot`, one a container.

It lies beside the folders of the container's snapshots: `<root>/.disks/<workload>`. A snapshot there has the name of the one that it belongs to. One
whose record is missing was left by a run that was killed, and belongs to none.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import typing as t
from dataclasses import dataclass

from .pcopy import Pcopy
from .runtime import HandoverError
from .sizes import format_size

FOLDER = ".disks"
INDEX = "store.json"
COPY = "store.copy.json"
LOCK = ".lock"
# A file that goes with the disks: the workload, as it can be made again from it.
CONFIGURATION = "configuration.json"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")

# A folder of another host, as the helper takes it: HOST:/FOLDER.
_ELSEWHERE = re.compile(r"([A-Za-z0-9_][A-Za-z0-9_.-]*@)?([A-Za-z0-9_][A-Za-z0-9_.-]*|\[[0-9A-Fa-f:.]+(%[A-Za-z0-9_.-]+)?\]):/")


class DiskStore:
    """The store of one container."""

    def __init__(self, pcopy: Pcopy, folder: str) -> None:
        self.pcopy = pcopy
        self.folder = folder

    @classmethod
    def of(cls, pcopy: Pcopy, root: str, workload: str, record: t.Mapping[str, t.Any] | None = None) -> DiskStore:
        """The container's own, or the one of a record whose disks are in a repository of backups."""
        return cls(pcopy, (record or {}).get("store") or os.path.join(root, FOLDER, workload))

    def all(self) -> list[dict[str, t.Any]]:
        """The snapshots in it; none where there is no store. The helper refuses one that has lost its index."""
        if not is_elsewhere(self.folder) and not is_store(self.folder):
            return []
        return self.pcopy.call("snapshot", "list", "--json", self.folder)["snapshots"]

    def names(self) -> list[str]:
        """Their names."""
        return [each["name"] for each in self.all()]

    def tree(self) -> dict[str, dict[str, t.Any]]:
        """By name the one that it was taken after, and whether the workload's disks descend from it."""
        listed = self.all()
        names = {each.get("id"): each["name"] for each in listed}
        return {each["name"]: {"parent": names.get(each.get("parent"), ""), "current": bool(each.get("current"))} for each in listed}

    def has(self, word: str) -> bool:
        """Whether one has this name or ID."""
        return any(word in (each["name"], each.get("id")) for each in self.all())

    def write(self, name: str, volume: str, path: str) -> None:
        """A volume as a new file, whole or not at all."""
        self.pcopy.call("snapshot", "restore", "--json", "--volume={0}={1}".format(volume, path), self.folder, name)

    def fill(self, name: str, volume: str, path: str) -> None:
        """A volume that is a plain folder: it has the files of the snapshot afterwards, and no others."""
        self.pcopy.call("snapshot", "restore", "--json", "--folder={0}={1}".format(volume, path), self.folder, name)

    def look_for_rollback(self) -> None:
        """An error where it could not be noted how far a rollback is: it would be found when the container has been stopped."""
        try:
            with open(os.path.join(self.folder, LOCK), "r+b") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as exc:
            raise HandoverError("another process works on {0}, such as a backup: wait until it has ended".format(self.folder)) from exc
        except FileNotFoundError:
            return  # the helper makes it
        except OSError as exc:
            raise HandoverError(
                "{0} cannot be written ({1}), and a rollback notes there how far it is: make it writable, or make a new container of it, which only "
                "reads".format(self.folder, exc.strerror)
            ) from exc

    def roll_back(self, name: str, volumes: t.Sequence[t.Mapping[str, t.Any]], folders: t.Sequence[t.Mapping[str, t.Any]] = ()) -> dict[str, t.Any]:
        """Makes images and folders, which nothing uses, those of the snapshot. A kill leaves them such that nothing starts on them."""
        places = [*places_of(volumes), *("--folder={0[name]}={0[path]}".format(folder) for folder in folders)]
        return self.pcopy.call("snapshot", "restore", "--json", "--current", *places, self.folder, name)

    def note(self, volume: t.Mapping[str, t.Any]) -> None:
        """Notes what was written to an image that is unmounted and still attached, so that a rollback need not compare all of it."""
        self.pcopy.call("snapshot", "note", "--json", *places_of([volume]), self.folder)

    def data(self, name: str) -> dict[str, int]:
        """Bytes of data in each volume."""
        return self.pcopy.call("snapshot", "show", "--json", self.folder, name)["data"]

    def export(self, name: str, file: str, path: str) -> None:
        """A file that was taken along, as a new one. It is held against its digest."""
        self.pcopy.events("snapshot", "export", "--file=" + file, self.folder, name, path)

    def delete(self, name: str) -> bool:
        """Whether it was there."""
        if name not in self.names():
            return False
        self.pcopy.events("snapshot", "delete", self.folder, name)
        return True


@dataclass(frozen=True)
class Part:
    """What goes into one store at the moment of a snapshot: the volumes of one container, and files beside them, by their names."""

    store: DiskStore
    volumes: t.Sequence[t.Mapping[str, t.Any]]
    files: t.Mapping[str, str]
    folders: t.Sequence[t.Mapping[str, t.Any]] = ()  # volumes that are plain folders
    cgroup: str = ""  # of the container, which stands still for the last pass over them


def take(parts: t.Sequence[Part], name: str, options: t.Sequence[str]) -> list[dict[str, t.Any]]:
    """All volumes of all parts at one moment, while they are in use; an answer for each part, in their order."""
    words = [
        {
            "store": part.store.folder,
            "name": name,
            "volumes": [{"name": volume["name"], "path": volume["image"]} for volume in part.volumes],
            "files": [{"name": key, "path": path} for key, path in sorted(part.files.items())],
            # A helper that knows no folders takes all else.
            **({"folders": [{"name": each["name"], "path": each["path"]} for each in part.folders], "cgroup": part.cgroup} if part.folders else {}),
        }
        for part in parts
    ]
    return parts[0].store.pcopy.call("snapshot", "wave", "--json", *options, "-", stdin=json.dumps({"parts": words}))["snapshots"]


def is_elsewhere(folder: str) -> bool:
    """Whether a folder is one of another host."""
    return bool(_ELSEWHERE.match(folder))


def is_store(folder: str) -> bool:
    """Whether a folder has a store, be its index lost."""
    return any(os.path.exists(os.path.join(folder, name)) for name in (INDEX, COPY))


def places_of(volumes: t.Sequence[t.Mapping[str, t.Any]]) -> list[str]:
    """The words that name volumes to the helper."""
    return ["--volume={0[name]}={0[image]}".format(volume) for volume in volumes]


def line_of(done: t.Mapping[str, t.Any]) -> str:
    """How the clusters of one disk that differ were found, as the helper tells."""
    found = "{0}, as {1}".format(done["how"], done["why"]) if done.get("why") else done["how"]
    return "{0}: {1} of {2} written, and {3} read to find them (by {4})".format(
        done["volume"], format_size(done["written"] + done["zeroed"]), format_size(done["size"]), format_size(done["read"]), found
    )


def check_name(option: str, name: str) -> None:
    if not is_name(name):
        raise HandoverError("{0}: '{1}' is no name: use up to 64 letters, digits and _ . -, beginning with a letter or digit".format(option, name))


def is_name(name: str) -> bool:
    """Whether a copy or a workload may be called so."""
    return bool(_NAME.fullmatch(name))
