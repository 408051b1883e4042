# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Containers of podman's whose published ports have addresses that cannot move along with them."""

from __future__ import annotations

import typing as t

from ..._core import floating
from .plan import Check, Plan


def _floating(plan: Plan) -> t.Iterator[str]:
    yield from _together(plan)
    yield from floating.obstacles(plan, "podman", plan.here["host"]["podman"]["containers"])


def _together(plan: Plan) -> t.Iterator[str]:
    for address in floating.moving(plan):
        if plan.in_group:
            yield (
                "{0} publishes ports on the floating address {1}, and is one of several containers that move as one, whose addresses cannot: "
                "move it by itself, or take {1} off {2}".format(plan.workload, address, floating.OPTION)
            )
        elif plan.container.get("service", {}).get("made_by_unit"):
            yield (
                "{0} publishes ports on the floating address {1}, and its unit makes it anew at each start, so {2} would not know it after a boot: "
                "have the unit start a container that stays, or take {1} off {3}".format(plan.workload, address, plan.destination, floating.OPTION)
            )


CHECKS: dict[str, Check] = {"floating_addresses": _floating}
