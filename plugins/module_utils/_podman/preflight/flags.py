# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Flags of files (chattr) in volumes and folders that move along: that they can be carried, and that the destination can have them."""

from __future__ import annotations

import typing as t

from .binds import directories
from .plan import Check, Facts, Plan


def _flags(plan: Plan) -> t.Iterator[str]:
    store = plan.there["host"]["podman"]["store"]
    for volume in plan.directories:
        yield from _of_tree(plan, volume.get("flags", []), store.get("flags_missing", []), "podman's volumes")
    for each in directories(plan):
        there = plan.binds_there.get(each["path"], {})
        yield from _of_tree(plan, plan.binds_here[each["path"]].get("flags", []), there.get("flags_missing", []), each["path"])


def _of_tree(plan: Plan, found: t.Iterable[Facts], missing: t.Container[str], place: str) -> t.Iterator[str]:
    for flag in found:
        if not flag["carried"]:
            yield "{0} of {1} has the flag '{2}' (lsattr), and with it a read does not give all that is in a file: copy that to a file without it".format(
                flag["path"], plan.source, flag["name"]
            )
        elif flag["name"] in missing:
            yield (
                "{0} of {1} has the flag '{2}' (lsattr), which the file system for {3} on {4} cannot have: "
                "take it away with chattr, or have another file system there, as ext4".format(flag["path"], plan.source, flag["name"], place, plan.destination)
            )


CHECKS: dict[str, Check] = {"file_flags": _flags}
