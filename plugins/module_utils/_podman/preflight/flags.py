# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Flags of files (chattr) in volumes and folders that move along: that they can be carried, and that the destination can have them."""

from __future__ import annotations

import typing as t

from ..._core import bind_checks
from .plan import Check, Plan


def _flags(plan: Plan) -> t.Iterator[str]:
    store = plan.there["host"]["podman"]["store"]
    for volume in plan.directories:
        yield from bind_checks.flags_of_tree(plan, volume.get("flags", []), store.get("flags_missing", []), "podman's volumes")
    yield from bind_checks.flags(plan)


CHECKS: dict[str, Check] = {"file_flags": _flags}
