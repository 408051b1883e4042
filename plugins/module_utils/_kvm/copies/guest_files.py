# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The files of a guest beside its disks, as archives that go into a backup and come back from it: the variables of its firmware, and its TPM's state.

Both are written while the guest runs, so each is read until two reads in a row are the same.
"""

from __future__ import annotations

import io
import os
import tarfile
import time
import typing as t

from ..._core.runtime import HandoverError

# The name of each kind in a backup.
ARCHIVES = {"nvram": "nvram.tar", "tpm": "tpm.tar"}
TRIES, PAUSE = 20, 0.25


def archive(path: str, tries: int = TRIES) -> bytes:
    """A file or a folder as it is between two changes."""
    before = b""
    for number in range(tries):
        if number:
            time.sleep(PAUSE)
        found = _packed(path)
        if found and found == before:
            return found
        before = found
    raise HandoverError(f"{path} changed each time that it was read: take the backup when the guest is less busy with it")


def _packed(path: str) -> bytes:
    """Empty where a file went while it was read."""
    held = io.BytesIO()
    try:
        with tarfile.open(fileobj=held, mode="w", format=tarfile.PAX_FORMAT) as tar:
            for name in _below(path):
                tar.add(os.path.join(path, name) if name != "." else path, arcname=name, recursive=False)
    except (FileNotFoundError, OSError) as exc:
        if not os.path.lexists(path):
            raise HandoverError(f"{path} is gone, which its guest has: look at it on the host") from exc
        return b""
    return held.getvalue()


def _below(path: str) -> list[str]:
    """The path itself is '.', and first."""
    found = []
    for folder, folders, names in os.walk(path):
        # Locks are of the process that holds them.
        found += [os.path.relpath(os.path.join(folder, name), path) for name in sorted([*folders, *names]) if name != ".lock"]
    return [".", *sorted(found)]


def unpack(content: bytes, path: str) -> None:
    """Makes the file or the folder, which is not there, as a whole. Owners and modes are those of the backup, by number."""
    new = f"{path}.handover-new"
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        for member in tar.getmembers():
            _safe(member)
            place = new if member.name == "." else os.path.join(new, member.name)
            if member.isdir():
                os.makedirs(place, mode=0o700)
            else:
                source = t.cast(t.IO[bytes], tar.extractfile(member))
                descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
                with open(descriptor, "wb") as target:
                    target.write(source.read())
                    target.flush()
                    os.fsync(target.fileno())
            os.chown(place, member.uid, member.gid)
            os.chmod(place, member.mode & 0o777)
    os.rename(new, path)


def _safe(member: tarfile.TarInfo) -> None:
    if not (member.isdir() or member.isreg()) or os.path.isabs(member.name) or ".." in member.name.split("/"):
        raise HandoverError(f"the backup has {member.name} beside the guest's disks, which is no file of a TPM or a firmware: verify the repository")
