# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import itertools
import typing as t

from ansible_collections.livefleet.handover.plugins.filter.placement import silence
from ansible_collections.livefleet.handover.plugins.filter.table import table

Row = t.Mapping[str, t.Any]

_COLUMNS = {"session": "session", "workload": "workload", "source": "from", "destination": "to", "ended": "ended", "runs_on": "runs on", "why": "why not"}


def recovery_outcome(
    moves: t.Sequence[Row], outcomes: t.Mapping[str, t.Sequence[Row] | None], answers: t.Mapping[str, t.Any], check: bool = False
) -> dict[str, t.Any]:
    """The outcome of each move: `lines` to print, and the `problem` that is left, or an empty text."""
    ended = list(itertools.chain.from_iterable(each or () for each in outcomes.values()))
    known = {each["session"] for each in ended}
    rows = [dict(move, ended=False, runs_on=None) for move in moves if move["session"] not in known] + ended
    # The fate of a fenced destination is known: the order stays on record on the source.
    spared = {each["destination"] for each in ended if each["ended"]}
    silent = {host: answer for host, answer in answers.items() if "sessions" not in (answer or {}) and host not in spared}
    if rows:
        lines = table(rows, _COLUMNS)
    else:
        lines = [] if silent else ["No move is left to be brought to its end."]
    return {"lines": lines, "problem": ". ".join(filter(None, (_unasked(silent), "" if check else _unended(rows))))}


def _unasked(silent: t.Mapping[str, t.Any]) -> str:
    if not silent:
        return ""
    causes = "; ".join("{0}: {1}".format(host, silence(answer)) for host, answer in sorted(silent.items()))
    return (
        "{0} could not be asked, and may hold a move that was not brought to its end: bring it back and run this again, or leave it out with "
        "handover_hosts ({1})"
    ).format(", ".join(sorted(silent)), causes)


def _unended(rows: t.Sequence[Row]) -> str:
    left = [row for row in rows if not row["ended"]]
    # A move that is under way needs no help.
    if all(row["why"].startswith("it is under way") for row in left):
        return ""
    return "{0}: {1}".format(", ".join(row["session"] for row in left), "; ".join(row["why"] for row in left))


class FilterModule:
    """How recoveries ended."""

    def filters(self) -> dict[str, t.Callable]:
        """Name → filter."""
        return {"recovery_outcome": recovery_outcome}
