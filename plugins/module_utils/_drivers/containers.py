# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The containers of a host that may use what a workload uses, by the driver that runs the workload."""

from __future__ import annotations

import os
import typing as t

from .._core.runtime import Runtime
from .._docker import recorded
from .._docker.api import SOCKET, Docker
from .._docker.facts import name_of
from .._podman.podman import Podman

Documents = t.List[t.Dict[str, t.Any]]


def _of_podman(runtime: Runtime, leave_out: str = "") -> Documents:
    if runtime.find("podman") is None:
        return []
    podman = Podman(runtime)
    named = [each["Id"] for each in podman.containers() if leave_out not in (each.get("Names") or [])]
    return podman.inspect_many(named) if named else []


def _of_docker(runtime: Runtime, leave_out: str) -> Documents:
    if not os.path.exists(SOCKET):
        return []
    return [{**each, "Name": name_of(each)} for each in Docker(runtime).containers() if name_of(each) != leave_out]


# The workload itself is left out. A question to Docker would start a daemon that is down, and fail where it does not come up, so a move of podman's reads
# Docker's records.
OTHERS: t.Mapping[str, t.Callable[[Runtime, str], Documents]] = {
    "docker": lambda runtime, workload: [*_of_podman(runtime), *_of_docker(runtime, workload)],
    "podman": lambda runtime, workload: [*_of_podman(runtime, workload), *recorded.containers(runtime)],
}
