# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The engines whose containers have snapshots and backups, by the driver that the operator names. It says whose container is meant where both have one."""

from __future__ import annotations

import typing as t

from ansible.module_utils.basic import AnsibleModule

from ..._core.placement import CONTAINER, DOCKER, DRIVERS
from ..._podman.copies.backup_taker import ARGUMENTS
from ..._podman.copies.engine import EngineOf, PodmanEngine
from .docker_engine import DockerEngine

ENGINES: t.Mapping[str, type[PodmanEngine] | type[DockerEngine]] = {DRIVERS[CONTAINER]: PodmanEngine, DRIVERS[DOCKER]: DockerEngine}

ARGUMENT: t.Mapping[str, t.Any] = ARGUMENTS["driver"]


def driver_of(module: AnsibleModule) -> str:
    """The settings of an earlier timer have none."""
    return module.params.get("driver") or DRIVERS[CONTAINER]


def engine_of(module: AnsibleModule) -> EngineOf:
    """Of the driver that is asked for."""
    return ENGINES[driver_of(module)]
