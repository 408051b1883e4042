# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The state of the container's processes that CRIU would refuse to dump."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ..._core.sizes import format_size
from .plan import Check, Plan


@dataclass(frozen=True)
class Obstacle:
    """State that CRIU refuses to dump: in words, the cure, and since which version of CRIU it does not."""

    what: str
    cure: str
    until: tuple[int, ...] = ()
    # Of some details there is another cure.
    cures: t.Mapping[str, str] = field(default_factory=dict)


# By check. The words are about one process; they may use {detail}, {size} and {limit}.
OBSTACLES: dict[str, Obstacle] = {
    "io_uring": Obstacle("uses io_uring", "set it to another way of reading and writing (for PostgreSQL, io_method=worker)"),
    "nested_namespaces": Obstacle(
        "is in a {detail} namespace of its own, inside the container's", "run it without one",
        cures={"time": "start it again by the container's init or over a login, since `podman exec` begins a program with the clock of the host"},
    ),
    "ghost_files": Obstacle(
        "holds the deleted file {detail} open, which takes {size}, and CRIU carries up to {limit}",
        "have it close the file, or set ghost-limit in /etc/criu/runc.conf on both hosts",
    ),
    "pidfds": Obstacle("holds a file descriptor of a process (a pidfd)", "install CRIU 4.1 or later on both hosts", (4, 1)),
    "thread_pidfds": Obstacle("holds a file descriptor of a thread (a pidfd with PIDFD_THREAD)", "end what opened it"),
    "packet_pipes": Obstacle("has a pipe in packet mode (O_DIRECT)", "end what opened it"),
    "unread_input": Obstacle(
        "has not read {size} that were written to its descriptor {detail} from outside, as `attach` does, and they would be lost", "have it read them"
    ),
    "overmounts": Obstacle("holds {detail} open, over which something else is mounted now", "have it close the file, or unmount what lies over it"),
    "sockets": Obstacle(
        "has a socket of a kind that CRIU does not know, {detail}", "end what opened it (programs in Go use MPTCP unless GODEBUG=multipathtcp=0 is set)"
    ),
    "files": Obstacle("holds something open that CRIU does not know, {detail}", "end what opened it"),
    "pressure_triggers": Obstacle(
        "has a trigger on {detail}, and nothing tells which one, so it cannot be set again and the process would be woken without end",
        "start it with MEMORY_PRESSURE_WATCH=/dev/null in its environment, or what it has for that",
    ),
    "user_managers": Obstacle(
        "belongs to the systemd of one user, which CRIU does not restore",
        "have `systemctl mask user@.service` and `systemctl stop 'user@*.service'` done in it (logins work without)",
    ),
    "traced": Obstacle("is traced by the process {detail}, and CRIU has to trace it itself", "end the debugger or strace"),
}


def _obstacle(check: str) -> Check:
    """The check for one kind of obstacle. The same of several processes is told once, of the first."""
    row = OBSTACLES[check]

    def find(plan: Plan) -> t.Iterator[str]:
        criu = plan.here["host"]["criu"]
        if not plan.live or (row.until and criu["version"] >= list(row.until)):
            return
        found = [obstacle for obstacle in plan.container["obstacles"] if obstacle["check"] == check]
        for detail in dict.fromkeys(obstacle["detail"] for obstacle in found):
            same = [obstacle for obstacle in found if obstacle["detail"] == detail]
            yield "{0} cannot be dumped on {1}: {2} (pid {3}{4}) {5}: {6}, or move it with migrate_mode=offline".format(
                plan.workload,
                plan.source,
                same[0]["process"],
                same[0]["pid"],
                " and {0} more".format(len(same) - 1) if len(same) > 1 else "",
                row.what.format(detail=detail, size=format_size(same[0]["size"]), limit=format_size(criu["ghost_limit"])),
                row.cures.get(detail, row.cure),
            )

    return find


CHECKS: dict[str, Check] = {check: _obstacle(check) for check in OBSTACLES}
