# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Files of a guest on the host that it goes to: each arrives under a name of its own, is proven, and only then gets its name, if nothing has it.

A mark beside the file says which run has made it, and which file that is. Nothing else is ever taken away.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import glob
import hashlib
import json
import os
import shutil
import subprocess
import typing as t

from .._core.runtime import HandoverError
from .host_look import tree
from .state import mark

# There is no module at hand, whose run_command would start these programs.
# pylint: disable=ansible-bad-function

BLOCK = 1 << 20
RENAME_NOREPLACE = 1
AT_FDCWD = -100
# In a mark, of a file that QEMU makes: there was none before.
WHATEVER = "*"
THERE = "{0} is there already, and nothing is written over it: move it away, if nothing needs it"


def own_name(path: str, guest: str, run: str) -> str:
    """Under which a copy arrives. An orphaned copier writes to a file that is not used."""
    return f"{path}.{guest}.{run}.copying"


def contents(path: str) -> str:
    """Digest of a file's content, holes and zeros being the same; of a folder all that is in it."""
    if os.path.isdir(path):
        return hashlib.sha256(json.dumps(tree(path), sort_keys=True).encode("utf-8")).hexdigest()
    found = hashlib.blake2b(digest_size=32)
    with open(path, "rb", buffering=0) as source:
        size = os.fstat(source.fileno()).st_size
        at = 0
        while at < size:
            try:
                at = os.lseek(source.fileno(), at, os.SEEK_DATA) // BLOCK * BLOCK
            except OSError as exc:
                if exc.errno != errno.ENXIO:
                    raise
                break  # holes alone
            piece = os.pread(source.fileno(), BLOCK, at)
            if piece.count(0) != len(piece):
                found.update(b"%d:" % at + piece)
            at += BLOCK
    found.update(b"size %d" % size)
    return found.hexdigest()


def identity(path: str) -> str:
    """A file's identity under any name: the number, and when it was made, as a number is given again."""
    said = subprocess.run(["stat", "--format=%i %W", path], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=60, check=False)
    return said.stdout.decode("ascii").strip()


def rename(old: str, new: str) -> None:
    """Never over anything."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(AT_FDCWD, os.fsencode(old), AT_FDCWD, os.fsencode(new), RENAME_NOREPLACE) == 0:
        return
    number = ctypes.get_errno()
    if number in (errno.EINVAL, errno.ENOSYS) and not os.path.isdir(old):
        # A file system that cannot: a second name is not given either where there is one.
        try:
            os.link(old, new)
            os.unlink(old)
            return
        except OSError as exc:
            number = exc.errno or number
    if number == errno.EEXIST:
        raise HandoverError(THERE.format(new))
    raise HandoverError(f"{old} cannot be renamed to {new}: {os.strerror(number)}")


def lasting(path: str) -> None:
    """On the disk, and not only on its way there."""
    for each in (path, os.path.dirname(path)):
        descriptor = os.open(each, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
        return
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


class Arrival:
    """The files of one guest, for one run that has the guest."""

    def __init__(self, guest: str, run: str) -> None:
        self.guest, self.run = guest, run

    def prepare(self, items: t.Sequence[t.Mapping[str, t.Any]]) -> None:
        """Removes the files of earlier runs, marks the coming ones, and makes those that are made here."""
        for item in items:
            self.sweep(item["path"])
        for item in items:
            path = item["path"]
            if item["what"] == "image" and os.path.lexists(path):
                raise HandoverError(THERE.format(path))
            os.makedirs(os.path.dirname(path), mode=0o711, exist_ok=True)
            awaited = item["what"] in ("nvram", "tpm") and item["by_qemu"] and not os.path.lexists(path)
            self._mark(path, WHATEVER if awaited else "")
            if item.get("make"):
                self._make(path, item["make"])

    def _make(self, path: str, how: t.Mapping[str, t.Any]) -> None:
        """An empty image that libvirt copies into."""
        own = own_name(path, self.guest, self.run)
        argv = ["qemu-img", "create", "-q", "-f", how["format"], *(["-o", how["options"]] if how.get("options") else [])]
        argv += [*(["-b", how["backing"], "-F", how["backing_format"]] if how.get("backing") else []), own, str(how["size"])]
        try:
            said = subprocess.run(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=600, check=False)
        except FileNotFoundError as exc:
            raise HandoverError("this host has no qemu-img, which makes the images that disks are copied into: install qemu-utils") from exc
        if said.returncode != 0:
            raise HandoverError(f"{path} could not be made: {said.stderr.decode('utf-8', 'replace').strip()}")
        if how.get("mode"):
            os.chmod(own, int(how["mode"], 8))
        self._place(own, path)

    def place(self, items: t.Sequence[t.Mapping[str, t.Any]]) -> None:
        """Gives the copies their names, each when it is proven to be as it was sent."""
        for item in items:
            path, own = item["path"], own_name(item["path"], self.guest, self.run)
            if (self._marked(path) or {}).get("run") != self.run:
                raise HandoverError(f"{path} bears no mark of this run any more ({self.run}): see who else has moved {self.guest}, and run this again")
            if not os.path.lexists(own) or contents(own) != item["digest"]:
                raise HandoverError(f"{own} is not what was sent: look at the disks and the memory of this host, and run this again")
            if item["what"] != "image" and os.path.lexists(path) and contents(path) == item["digest"]:
                remove(own)  # it is there already, and stays if the guest does not come
                continue
            self._place(own, path)

    def _place(self, own: str, path: str) -> None:
        lasting(own)
        # Said before it is done: a run that is killed in between has made it all the same.
        self._mark(path, identity(own))
        try:
            rename(own, path)
        except HandoverError:
            self._mark(path, "")
            raise
        lasting(path)

    def undo(self, paths: t.Sequence[str]) -> None:
        """Removes everything that this run has made."""
        for path in paths:
            if (self._marked(path) or {}).get("run") == self.run:
                self.sweep(path)

    def settle(self, paths: t.Sequence[str]) -> None:
        """All is done: the files are the guest's."""
        for path in paths:
            self._sweep_copies(path)
            remove(mark(path, self.guest))

    def sweep(self, path: str) -> None:
        """Removes the marked files that runs of this guest have made here, and unfinished copies."""
        made = self._marked(path)
        if made is not None:
            if made["made"] == WHATEVER or (made["made"] and os.path.lexists(path) and identity(path) == made["made"]):
                remove(path)
            elif made["made"] and os.path.lexists(path):
                raise HandoverError(f"{path} is another file than the one that run {made['run']} has made: move it away, if nothing needs it")
        self._sweep_copies(path)
        remove(mark(path, self.guest))

    def _sweep_copies(self, path: str) -> None:
        for found in glob.glob(glob.escape(f"{path}.{self.guest}.") + "*.copying"):
            remove(found)

    def _marked(self, path: str) -> dict[str, str] | None:
        """The text of the mark beside a file."""
        try:
            with open(mark(path, self.guest), encoding="utf-8") as source:
                found = json.load(source)
            return {"run": str(found["run"]), "made": str(found["made"])}
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as exc:
            raise HandoverError(f"{mark(path, self.guest)} does not say which run has made {path}: remove both, if nothing needs them") from exc

    def _mark(self, path: str, made: str) -> None:
        """Written whole or not at all."""
        name = mark(path, self.guest)
        new = f"{name}.new"
        with open(new, "w", encoding="utf-8") as target:
            json.dump({"run": self.run, "made": made}, target)
            target.flush()
            os.fsync(target.fileno())
        os.replace(new, name)


def depart(items: t.Sequence[t.Mapping[str, str]], keep: bool) -> list[str]:
    """On the host that the guest has left: its images are put aside or removed, those that links led to as well. Returns the files that were dealt with."""
    done = []
    for path in dict.fromkeys(name for item in items for name in (item["path"], item.get("real") or item["path"])):
        if not os.path.lexists(path):
            continue
        if keep:
            if os.path.isdir(f"{path}.migrated") and not os.path.islink(f"{path}.migrated"):
                shutil.rmtree(f"{path}.migrated")
            os.rename(path, f"{path}.migrated")
        else:
            remove(path)
        done.append(path)
    return done
