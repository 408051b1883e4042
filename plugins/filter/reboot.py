# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t


def reboot_obstacles(host: t.Mapping[str, t.Any], name: str) -> list[str]:
    """Why a host must not be restarted: a sentence each, from the module host_info's description of it. Empty if it may be."""
    running = sorted(workload["name"] for workload in host["workloads"] if workload["running"])
    # One of which no more is known than its name may run.
    unknown = sorted("{0} ({1})".format(workload["name"], workload["untold"]) for workload in host["workloads"] if workload.get("untold"))
    moving = sorted(session["workload"] for session in host["sessions"] if not session["ended"])
    found = (
        (not host["maintenance"], "it is not under maintenance: drain it first (livefleet.handover.drain -e handover_source={0})".format(name)),
        (running, "a restart would end {0}: drain it first".format(", ".join(running))),
        (unknown, "it is not known whether these run: {0}".format(", ".join(unknown))),
        (moving, "the move of {0} has not ended: see livefleet.handover.recover".format(", ".join(moving))),
    )
    return ["{0} is not restarted, for {1}".format(name, sentence) for obstacle, sentence in found if obstacle]


class FilterModule:
    """The restart of a host."""

    def filters(self) -> dict[str, t.Callable]:
        """Name → filter."""
        return {"reboot_obstacles": reboot_obstacles}
