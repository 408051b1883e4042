# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Sends the files of a guest to the host that it goes to, each under a name of its own.

The copier holds the guest's lock for as long as it lives. It ends with the process that has started it, and that one ends when its play is gone.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import threading
import typing as t

from .._core.runtime import HandoverError
from .files import contents, own_name

# There is no module at hand, whose run_command would start these programs.
# pylint: disable=ansible-bad-function

POLL_SECONDS = 0.2
STOP_SECONDS = 10.0
PR_SET_PDEATHSIG = 1
IMAGE = ("--sparse", "--inplace", "--times", "--copy-links", "--perms", "--owner", "--group")
# All that a file has, and of a folder all that is in it.
OTHERS = ("--archive", "--acls", "--xattrs", "--delete")


def command(item: t.Mapping[str, str], own: str, target: str, how: t.Sequence[str]) -> list[str]:
    """`target` is the other host as rsync names it, with its colon."""
    if item["what"] == "image":
        return ["rsync", *IMAGE, *how, item["path"], target + own]
    slash = "/" if os.path.isdir(item["path"]) else ""
    return ["rsync", *OTHERS, *how, item["path"] + slash, target + own + slash]


def send(guest: str, run: str, item: t.Mapping[str, str], target: str, how: t.Sequence[str], lock: int, awaited: t.Callable[[], bool]) -> dict[str, str]:
    """Copies one file or folder, and returns its digest. One that changes under way is an error."""
    path = item["path"]
    before = _stamp(path)
    libc = ctypes.CDLL(None)  # loaded here: nothing may be loaded between fork and exec
    with subprocess.Popen(
        command(item, own_name(path, guest, run), target, how),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        pass_fds=(lock,),
        preexec_fn=lambda: libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0),
    ) as copier:
        digest, words = [], []
        readers = [
            threading.Thread(target=lambda: digest.append(contents(path)), daemon=True),
            threading.Thread(target=lambda: words.append(copier.stderr.read() if copier.stderr else b""), daemon=True),
        ]
        for reader in readers:
            reader.start()
        while True:
            try:
                copier.wait(POLL_SECONDS)
                break
            except subprocess.TimeoutExpired:
                if not awaited():
                    _end(copier)
                    raise HandoverError(f"the copy of {path} was given up: it was cancelled, or the play that had begun it has ended") from None
        for reader in readers:
            reader.join()
    if copier.returncode != 0:
        said = words[0].decode("utf-8", "replace").strip().splitlines() or [f"rsync ended with {copier.returncode}"]
        raise HandoverError(f"{path} could not be copied to {target.rstrip(':')}: {said[0]}")
    if not digest or _stamp(path) != before:
        raise HandoverError(f"{path} was written to while it was copied: somebody has started {guest}")
    return {"path": path, "what": item["what"], "digest": digest[0]}


def _stamp(path: str) -> tuple[int, int, int]:
    status = os.stat(path)
    return status.st_ino, status.st_size if not os.path.isdir(path) else 0, status.st_mtime_ns


def _end(copier: subprocess.Popen[bytes]) -> None:
    copier.terminate()
    try:
        copier.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        copier.kill()
        copier.wait()


def somebody_reads(descriptor: int = 1) -> bool:
    """Whether this process still has a reader: a play that has ended has closed its end."""
    asked = select.poll()
    asked.register(descriptor, 0)
    return not any(event & (select.POLLERR | select.POLLHUP) for _descriptor, event in asked.poll(0))
