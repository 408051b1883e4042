# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The impact of a restart on a Ceph cluster: how many placement groups were peering, for how long, and when the last one was clean.

For each state of a placement group an OSD counts the groups that have left it, and sums the seconds that they had been in it
(`recoverystate_perf`). The growth of the sums of `peering` is the score, exactly, however seldom one looks. The curve over time is
drawn from the same growth: n groups that left between two looks after s seconds in all were there s/n seconds each. So
the area under the curve is the score. A group that leaves `recovered` has become clean.
"""

from __future__ import annotations

import math
import typing as t
from dataclasses import dataclass, field

PEERING, RECOVERED = "peering_latency", "recovered_latency"
# State → groups that have left it, and the seconds that they had been in it, in all.
Counters = t.Mapping[str, t.Tuple[int, float]]
_NONE = (0, 0.0)


@dataclass
class Impact:
    """The findings from the OSDs' counters."""

    last: dict[int, Counters] = field(default_factory=dict)
    left: list[tuple[float, int, int, float]] = field(default_factory=list)  # when seen, OSD, groups, seconds in all
    clean_at: float | None = None  # when a group was seen to have become clean, last

    def see(self, moment: float, osd: int, counters: Counters) -> None:
        """Takes one look at one OSD's counters."""
        before = self.last.get(osd)
        self.last[osd] = counters
        if before is None:
            return
        # Those of a process that was started again begin at zero, and one of them may have come further already.
        if any(counters.get(state, _NONE)[part] < was[part] for state, was in before.items() for part in (0, 1)):
            before = {}
        groups, seconds = counters.get(PEERING, _NONE)
        groups_before, seconds_before = before.get(PEERING, _NONE)
        if groups > groups_before:
            self.left.append((moment, osd, groups - groups_before, seconds - seconds_before))
        if counters.get(RECOVERED, _NONE)[0] > before.get(RECOVERED, _NONE)[0]:
            self.clean_at = moment

    def appear(self, osd: int) -> None:
        """An OSD that was down, and whose counters are at zero when it comes."""
        self.last.setdefault(osd, {})

    @property
    def score(self) -> float:
        """Seconds times placement groups."""
        return sum(seconds for _moment, _osd, _groups, seconds in self.left)

    def by_osd(self) -> dict[int, float]:
        sums: dict[int, float] = {}
        for _moment, osd, _groups, seconds in self.left:
            sums[osd] = sums.get(osd, 0.0) + seconds
        return sums

    def curve(self) -> list[tuple[float, int]]:
        """(moment, groups that are peering from then on), ascending; begins and ends with none."""
        steps: dict[float, int] = {}
        for moment, _osd, groups, seconds in self.left:
            begin = round(moment - seconds / groups, 3)
            # A group that peered for less than a millisecond leaves no area.
            steps[begin] = steps.get(begin, 0) + groups
            steps[round(moment, 3)] = steps.get(round(moment, 3), 0) - groups
        level, points = 0, []
        for moment in sorted(steps):
            if steps[moment]:
                level += steps[moment]
                points.append((moment, level))
        return points


def area(curve: t.Sequence[tuple[float, int]]) -> float:
    """Seconds times placement groups under a curve."""
    return sum(level * (after - moment) for (moment, level), (after, _next) in zip(curve, curve[1:]))


def percentile(values: t.Sequence[float], part: float) -> float:
    """The smallest value that `part` of all values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(part * len(ordered)) - 1)]


def latencies(operations: t.Sequence[tuple[float, float]]) -> dict[str, t.Any]:
    """A client's view: (when the operation was due, seconds until it was answered) of each operation."""
    if not operations:
        return {"operations": 0}
    seconds = [each for _due, each in operations]
    return {
        "operations": len(operations),
        **{f"p{name}": round(percentile(seconds, part), 4) for name, part in (("50", 0.5), ("95", 0.95), ("99", 0.99))},
        "worst": round(max(seconds), 4),
        "worst_at": round(max(operations, key=lambda each: each[1])[0], 3),
    }
