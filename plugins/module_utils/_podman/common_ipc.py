# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the members of a pod have in the IPC namespace that they share, beside /dev/shm."""

from __future__ import annotations

import os

from .._core.runtime import Runtime

# The kernel's lists, each with a heading.
_LISTS = {"/proc/sysvipc/shm": "shared memory", "/proc/sysvipc/sem": "semaphores", "/proc/sysvipc/msg": "message queues"}
_QUEUES = "/proc/{0}/root/dev/mqueue"


def objects(runtime: Runtime, pid: int) -> list[str]:
    """The kinds of its objects; `pid` is that of the infra container."""
    done = runtime.run([runtime.tool("nsenter", "util-linux"), "--ipc=/proc/{0}/ns/ipc".format(pid), "wc", "-l", *_LISTS])
    lines = {path: int(count) for count, path in (line.split() for line in done.stdout.splitlines())}
    found = [words + " of System V" for path, words in _LISTS.items() if lines.get(path, 1) > 1]
    folder = _QUEUES.format(pid)
    return found + (["POSIX message queues"] if os.path.isdir(folder) and os.listdir(folder) else [])
