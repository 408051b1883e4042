# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

from ansible_collections.livefleet.handover.plugins.module_utils._podman.preflight.state import without_conmon

Results = t.Sequence[t.Mapping[str, t.Any]]


def running_on(results: Results) -> list[str]:
    """The hosts on which it runs. One that did not answer has no say."""
    return [each["item"] for each in results if (each.get("workload") or {}).get("running")]


def unattended(results: Results, workload: str) -> str:
    """The sentence about a host on which its conmon has died; empty where there is none."""
    hosts = [each["item"] for each in results if (each.get("workload") or {}).get("conmon_gone")]
    return "it has ended; " + without_conmon(workload, hosts[0]) if hosts else ""


class FilterModule:
    """The answers of workload_info on several hosts."""

    def filters(self) -> dict[str, t.Callable]:
        """Name → filter."""
        return {"running_on": running_on, "unattended": unattended}
