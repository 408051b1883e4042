# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Docker's containers on this host, as the planner has to know them.

A question to Docker's socket starts a daemon that is down, and with it every container of a restart policy. So that one is not asked: its containers
are named by its records, and with them why nothing more is known.
"""

from __future__ import annotations

import os
import typing as t

from .._core import host
from .._core.placement import DOCKER
from .._core.runtime import Runtime
from .._docker import recorded
from .._docker.api import SOCKET, Docker
from .._docker.facts import name_of
from .._docker.network_twin import BUILT_IN
from .._podman.processes import processes_of

Document = t.Mapping[str, t.Any]

# The label by which docker compose knows the containers of a project.
PROJECT = "com.docker.compose.project"
DOWN = "Docker does not run there: see `systemctl status {0}`, and start it, or remove the container".format(recorded.UNIT)


def runs(runtime: Runtime) -> bool:
    """Whether the daemon answers without being started for it."""
    return os.path.exists(SOCKET) and runtime.run(["systemctl", "is-active", "--quiet", *recorded.UNITS], accept=range(256)).rc == 0


def workloads(runtime: Runtime, asked: bool) -> list[dict[str, t.Any]]:
    """A row for each container; `asked` where the daemon runs."""
    if not asked:
        return [_row(each["Name"], untold=DOWN) for each in recorded.containers(runtime)]
    docker = Docker(runtime)
    own = {each["Name"] for each in docker.get("networks") or [] if each.get("Driver") == "bridge" and each["Name"] not in BUILT_IN}
    found = ((listed, docker.inspect(listed["Id"])) for listed in docker.containers())
    return [_described(listed, inspect, own) for listed, inspect in found if inspect]


def _described(listed: Document, inspect: Document, own: t.Container[str]) -> dict[str, t.Any]:
    state = inspect.get("State") or {}
    running = state.get("Status") == "running"
    labels = listed.get("Labels") or {}
    return _row(
        name_of(listed),
        running=running,
        state=state.get("Status") or "",
        labels=labels,
        project=labels.get(PROJECT) or "",
        bridges=sorted(name for name in (inspect.get("NetworkSettings") or {}).get("Networks") or {} if name in own),
        memory=processes_of(int(state.get("Pid") or 0)).memory if running else 0,
        disk=sum(host.allocated(path) for path in _paths(inspect)),
    )


def _paths(inspect: Document) -> set[str]:
    """Its layer and its volumes."""
    layer = ((inspect.get("GraphDriver") or {}).get("Data") or {}).get("UpperDir") or ""
    volumes = {mount.get("Source") or "" for mount in inspect.get("Mounts") or [] if mount.get("Type") == "volume"}
    return {layer, *volumes} - {""}


def _row(name: str, **known: t.Any) -> dict[str, t.Any]:
    return {"name": name, "kind": DOCKER, "running": False, "state": "", "labels": {}, "memory": 0, "disk": 0, **known}
