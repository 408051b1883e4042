# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether a Ceph cluster is in a state in which the next OSD may be stopped.

Placement groups are not asked about by looking at `ceph pg stat` again and again: that is up to seconds old, and a whole
restart fits between two looks. First the OSDs are told to report, and the reports have to have arrived.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, replace

from .cluster import Cluster

# Longer no OSD is asked for its report.
ANSWER_SECONDS = 10
# States that a placement group may be in beside `active` and `clean`.
_HARMLESS = frozenset({"scrubbing", "deep", "snaptrim", "snaptrim_wait"})
# Health checks that the restart of an OSD itself causes, and that pass.
OF_A_RESTART = frozenset(
    {
        "OBJECT_MISPLACED",
        "OBJECT_UNFOUND",
        "OSD_DOWN",
        "OSD_FLAGS",
        "OSD_HOST_DOWN",
        "OSD_RACK_DOWN",
        "OSD_ROOT_DOWN",
        "OSD_SLOW_PING_TIME_BACK",
        "OSD_SLOW_PING_TIME_FRONT",
        "PG_AVAILABILITY",
        "PG_DEGRADED",
        "PG_RECOVERY_FULL",
        "SLOW_OPS",
        "TOO_FEW_OSDS",
    }
)


@dataclass(frozen=True)
class Seen:
    """The cluster's state."""

    health: t.Mapping[str, str]  # check → its text
    groups: t.Mapping[str, int]  # state → how many placement groups are in it
    osds: t.Mapping[int, t.Mapping[str, t.Any]]
    silent: t.Sequence[int] = ()  # up by the map, and did not report

    def problems(self, ignored: t.Collection[str]) -> dict[str, str]:
        """Health checks that an operator has to look at."""
        return {check: text for check, text in self.health.items() if check not in ignored}

    def unclean(self) -> dict[str, int]:
        """States of placement groups that are not as they should be."""
        return {state: count for state, count in self.groups.items() if not is_clean(state)}


def is_clean(state: str) -> bool:
    words = set(state.split("+"))
    return {"active", "clean"} <= words and words - {"active", "clean"} <= _HARMLESS


def look(cluster: Cluster) -> Seen:
    """Looks at the cluster, after its OSDs have reported."""
    osds = cluster.osds()
    silent = _flush(cluster, [number for number, osd in osds.items() if osd["up"]])
    return replace(glance(cluster), osds=osds, silent=silent)


def glance(cluster: Cluster) -> Seen:
    """The manager's view, however old: enough to keep waiting, never enough to proceed."""
    status = cluster.ask("status")
    return Seen(
        health={check: detail["summary"]["message"] for check, detail in status["health"].get("checks", {}).items() if not detail.get("muted")},
        groups={entry["state_name"]: entry["count"] for entry in status["pgmap"].get("pgs_by_state", [])},
        osds={},
    )


def _flush(cluster: Cluster, osds: t.Sequence[int]) -> list[int]:
    """Has every OSD that is up report its placement groups, waits until the reports are in, and names those that did not answer."""
    if not osds:
        return []
    # The monitors miss an OSD late, or never if too few others do; without a limit the command would wait for it for ever.
    words = (f"--rados-osd-op-timeout={ANSWER_SECONDS}", "tell", "osd.*", "flush_pg_stats")
    reported = cluster.run(*words, accept=range(256), timeout=max(60, ANSWER_SECONDS * len(osds))).stdout
    wanted = parse_sequences(reported)
    cluster.runtime.wait_for(lambda: all(seq >= wanted.get(osd, 0) for osd, seq in _arrived(cluster).items() if osd in osds), seconds=20, interval=0.5)
    return [osd for osd in osds if osd not in wanted]


def _arrived(cluster: Cluster) -> dict[int, int]:
    """The number of the last report of each OSD."""
    answer = cluster.ask("pg", "dump", "osds")
    return {entry["osd"]: entry["seq"] for entry in answer.get("osd_stats", answer) if entry.get("seq") is not None}


def parse_sequences(text: str) -> dict[int, int]:
    """`osd.3: 279172874316` of each OSD that answered."""
    found = {}
    for line in text.splitlines():
        name, _colon, value = line.partition(":")
        if name.startswith("osd.") and name[4:].isdigit() and value.strip().isdigit():
            found[int(name[4:])] = int(value)
    return found


def told(problems: t.Mapping[str, str]) -> str:
    """Health checks as one clause."""
    return "; ".join(f"{check}: {text}" for check, text in sorted(problems.items()))
