# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import time
import typing as t

Answer = t.Mapping[str, t.Any]

# The preflight's own looks at the two hosts take as long, one after the other.
FRESH_SECONDS = 15.0


def fresh_look(here: t.Any, there: t.Any, workload: str, asked: str, folders: t.Mapping[str, str], now: float | None = None) -> dict[str, t.Any]:
    """The preflight's facts about both hosts from the search for the workload: `here`, `there` and `at`; empty where the hosts have to be asked anew."""
    answers = [answer if isinstance(answer, t.Mapping) else {} for answer in (here, there)]
    if asked != workload or not all(_whole(answer, folders) for answer in answers) or not answers[0]["workload"]["exists"]:
        return {}
    # An earlier move may be rolled back before the preflight, and the facts are others then.
    if any(workload == session.get("workload") for session in answers[0]["sessions"]):
        return {}
    at = min(answer["asked_at"] for answer in answers)
    age = (time.time() if now is None else now) - at
    return {"here": here, "there": there, "at": at} if 0 <= age <= FRESH_SECONDS else {}


def _whole(answer: Answer, folders: t.Mapping[str, str]) -> bool:
    """Whether a host has told everything, and of the folders that the move is to use."""
    host = answer.get("host") or {}
    told = not answer.get("problems") and "sessions" in answer and "asked_at" in answer
    return told and all((host.get(key) or {}).get("path") == path for key, path in folders.items())


class FilterModule:
    """Facts that need not be asked for again."""

    def filters(self) -> dict[str, t.Callable]:
        """Name → filter."""
        return {"fresh_look": fresh_look}
