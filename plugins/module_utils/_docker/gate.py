# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The gate before every start of a container: the helper's runc, which containerd finds before the real one.

Docker has no hooks of its own that it would add to a container. Its shims look for runc in containerd's PATH, so the proof that the gate stands is
the PATH of the containerd that runs.
"""

from __future__ import annotations

import os
import shutil
import typing as t

from .._core.host import read_text

# containerd itself puts these before its PATH: upstream's folder for programs that `ctr install` brings, and Debian's.
FIRST = ("/opt/containerd/bin", "/var/lib/containerd/opt/bin")
RUNC = "/usr/local/libexec/handover/docker/runc"
CURE = "apply the role livefleet.handover.pcopy to it with pcopy_docker_gate=true"


def obstacle(proc: str = "/proc", runc: str = RUNC) -> str:
    """Why a container could start here without the helper being asked; empty where it could not."""
    if not os.access(runc, os.X_OK):
        return "{0} is missing".format(runc)
    paths = [path for pid in _pids_of("containerd", proc) for path in [_path_of(pid, proc)]]
    if not paths:
        return "no containerd runs"
    found = [shutil.which("runc", path=os.pathsep.join([*FIRST, path])) or "no runc" for path in paths]
    others = [each for each in found if each != runc]
    return "containerd starts {0}".format(others[0]) if others else ""


def _pids_of(name: str, proc: str) -> t.Iterator[str]:
    for pid in os.listdir(proc):
        if pid.isdigit() and read_text(os.path.join(proc, pid, "comm")).strip() == name:
            yield pid


def _path_of(pid: str, proc: str) -> str:
    """The PATH of a process."""
    words = read_text(os.path.join(proc, pid, "environ")).split("\0")
    return next((word[len("PATH=") :] for word in words if word.startswith("PATH=")), "")
