# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Pieces of state that a move of a container of Docker's leaves behind or makes again, each in one sentence. None of them is an obstacle."""

from __future__ import annotations

import typing as t

from .._core import bind_checks, tmpfs_checks
from .._core.move import Move
from .._core.sizes import format_size
from . import kept_addresses, ports


def _log(move: Move) -> t.Iterator[str]:
    log = move.container["log"]
    if log.get("size"):
        yield "the log of {0} up to now ({1}, {2}) goes with the container on {3}: save it with `docker logs {0}` if it is needed".format(
            move.workload, log["path"], format_size(log["size"]), move.source
        )
    elif log["driver"] == "journald":
        yield "the log of {0} up to now stays in the journal of {1}".format(move.workload, move.source)


def _exec_sessions(move: Move) -> t.Iterator[str]:
    if move.container["exec_sessions"]:
        yield "{0} processes in {1} were started by docker exec: they do not move, and end on {2}".format(
            move.container["exec_sessions"], move.workload, move.source
        )


def _stopped(move: Move) -> t.Iterator[str]:
    if move.container["state"] == "exited":
        yield "{0} does not run, and moves as it is: Docker on {1} will call it created, and not know that it exited with exit code {2}".format(
            move.workload, move.destination, move.container["exit_code"]
        )


def _addresses(move: Move) -> t.Iterator[str]:
    yield from kept_addresses.told(move)
    for network in move.container["networks"] if not (move.live and move.container["running"]) else []:
        if not network["shared"] and not network["ip"] and not network["ip6"]:
            yield "{0} gets another address on the network {1}, as at any start".format(move.workload, network["name"])


TOLD: dict[str, t.Callable[[Move], t.Iterator[str]]] = {
    "bind_mounts": bind_checks.told,
    "exec_sessions": _exec_sessions,
    "log": _log,
    "stopped": _stopped,
    "addresses": _addresses,
    "ports": ports.told,
    "tmpfs": tmpfs_checks.told,
}


def told(move: Move) -> list[str]:
    """All sentences that hold for this move."""
    return [sentence for tell in TOLD.values() for sentence in tell(move)] if move.known else []
