# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The ports that a container of Docker's publishes on its host, and the addresses that move along with them."""

from __future__ import annotations

import typing as t

from .._core import floating, published
from .._core.move import Move


def _floating(move: Move) -> t.Iterator[str]:
    yield from floating.obstacles(move, "Docker", move.container.get("beside", []))


def told(move: Move) -> t.Iterator[str]:
    """Of one that is started anew."""
    if move.container["drawn_ports"] and not move.live:
        yield "{0} publishes {1} on another port of {2}, which Docker draws as at any start: see `docker port {0}` there".format(
            move.workload, ", ".join(move.container["drawn_ports"]), move.destination
        )


CHECKS: dict[str, t.Callable[[Move], t.Iterator[str]]] = {"ports": published.ports, "floating_addresses": _floating}
