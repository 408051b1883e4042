# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The modules that can be steps of one call. meta/runtime.yml names the same, but image_volume."""

from __future__ import annotations

from ..._core.step import Step, Table


def _cutover() -> Step:
    from .cutover import STEP

    return STEP


def _image_volume() -> Step:
    from .image_volume import STEP

    return STEP


def _podman_service() -> Step:
    from .podman_service import STEP

    return STEP


def _podman_workload() -> Step:
    from .podman_workload import STEP

    return STEP


def _session() -> Step:
    from .session import STEP

    return STEP


def _session_info() -> Step:
    from .session_info import STEP

    return STEP


def _workload_info() -> Step:
    from .workload_info import STEP

    return STEP


STEPS: Table = {
    "cutover": _cutover,
    "image_volume": _image_volume,
    "podman_service": _podman_service,
    "podman_workload": _podman_workload,
    "session": _session,
    "session_info": _session_info,
    "workload_info": _workload_info,
}
