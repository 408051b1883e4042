# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The modules that can be steps of one call. meta/runtime.yml names the same, but image_volume."""

from __future__ import annotations

from .._core.step import Step, Table
from .._podman.steps.table import STEPS as OF_PODMAN


def _docker_workload() -> Step:
    from .._docker.workload import STEP

    return STEP


def _openvz_workload() -> Step:
    from .._openvz.driver.workload import STEP

    return STEP


def _workload_info() -> Step:
    from .workload_info import STEP

    return STEP


STEPS: Table = {
    **OF_PODMAN,
    "docker_workload": _docker_workload,
    "openvz_workload": _openvz_workload,
    "workload_info": _workload_info,
}
