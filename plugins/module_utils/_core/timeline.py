# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Both hosts' work in a handover, on one clock: the data of one picture.

All times are milliseconds on the source's clock, counted from the moment at which the workload could have stood still first, as
those of the stages are. The destination's events are moved by as much as its clock was ahead, which the source measures before the
freeze; they are as exact as that was, `skew.within_ms`.
"""

from __future__ import annotations

import datetime
import typing as t

from .times import Status, rows

Event = t.Mapping[str, t.Any]

# The destination's work that the source was told of.
DESTINATION_STAGES = ("armed", "attach", "restore", "criu_restore", "place", "datasync")


def timeline(report: Status) -> dict[str, t.Any]:
    """Passes, how much was dirty when, the states of both sides and the stages of the cutover; empty where the events do not tell."""
    here, there = report.get("source_events") or [], report.get("destination_events") or []
    origin = origin_ms(report)
    if not origin:
        return {}
    clock: t.Mapping[str, t.Any] = next((each for each in here if each["event"] == "clock"), {})
    ahead = float(clock.get("ahead_ms") or 0.0)
    on_source = [dict(each, at_ms=_at(each) - origin) for each in here]
    on_destination = [dict(each, at_ms=_at(each) - ahead - origin) for each in there]
    passes = [_pass(each) for each in on_source if each["event"] == "pass"]
    stages = rows(report["source_session"])
    memory = _memory(on_source)
    ends = [each["at_ms"] for each in on_source + on_destination] + [each["start_ms"] for each in passes + memory if "start_ms" in each]
    return {
        "begin_ms": min(ends),
        "end_ms": max(ends + [each["start_ms"] + each["ms"] for each in stages]),
        "frozen_ms": float(report.get("frozen_ms") or 0.0),
        "skew": {"ahead_ms": ahead, "within_ms": float(clock.get("within_ms") or 0.0), "known": bool(clock)},
        "passes": passes,
        "memory": memory,
        "throttle": _throttle(on_source),
        "dirty": _dirty(passes, on_source),
        "states": {"source": _states(on_source), "destination": _states(on_destination)},
        "stages": {
            "source": [each for each in stages if each["stage"] not in DESTINATION_STAGES],
            "destination": [each for each in stages if each["stage"] in DESTINATION_STAGES],
        },
    }


def origin_ms(report: Status) -> float:
    """The moment from which all times count, in milliseconds since 1970; 0 where the events do not tell."""
    for each in report.get("source_events") or []:
        if each["event"] == "stage" and each.get("stage") == "freeze":
            return _at(each) - float(each["ms"])
    return 0.0


def _at(event: Event) -> float:
    """When it was, in milliseconds; Python reads no more than microseconds."""
    text = event["time"].rstrip("Z")
    whole, _point, fraction = text.partition(".")
    at = datetime.datetime.strptime(whole, "%Y-%m-%dT%H:%M:%S").replace(tzinfo=datetime.timezone.utc)
    return at.timestamp() * 1000 + float("0." + (fraction or "0")) * 1000


def _pass(event: Event) -> dict[str, t.Any]:
    took = float(event["ms"])
    return {"pass": event["pass"], "start_ms": event["at_ms"] - took, "ms": took, "bytes": event["bytes"], "sent": event["sent"]}


def _memory(events: t.Sequence[Event]) -> list[dict[str, t.Any]]:
    """Each look at the workload's memory while it ran, with the part that was new to the destination; last its dump, of which the rest was sent."""
    looks = [each for each in events if each["event"] == "memory"]
    found = [
        {
            "what": f"Memory {each['scan']}", "start_ms": each["at_ms"] - float(each["ms"]), "ms": float(each["ms"]),
            "bytes": each["bytes"], "sent": each["fresh"],
        }
        for each in looks
    ]  # fmt: skip
    return found + [{"what": "Dump", "bytes": each["bytes"], "sent": each["sent"]} for each in events if each["event"] == "pages"]


def _throttle(events: t.Sequence[Event]) -> list[dict[str, t.Any]]:
    """Each step by which the workload was slowed down, from when it was taken to the next one, or to when it had all of its processor time again."""
    found = [each for each in events if each["event"] == "throttle"]
    return [
        {"percent": each["percent"], "from_ms": each["at_ms"], "to_ms": after["at_ms"]} for each, after in zip(found, found[1:]) if each["percent"]
    ]  # fmt: skip


def _dirty(passes: t.Sequence[Event], events: t.Sequence[Event]) -> list[dict[str, t.Any]]:
    """The dirty bytes when a pass took them up, and when they were counted otherwise. Before the first pass, everything is to be sent."""
    points = [{"at_ms": each["start_ms"], "bytes": each["bytes"]} for each in passes]
    points += [{"at_ms": each["at_ms"], "bytes": each["dirty"]} for each in events if each["event"] == "converged"]
    return sorted(points, key=lambda each: each["at_ms"])


def _states(events: t.Sequence[Event]) -> list[dict[str, t.Any]]:
    """Each state from its record to the next one's."""
    found = [each for each in events if each["event"] == "state"]
    ends = [each["at_ms"] for each in found[1:]] + [each["at_ms"] for each in found[-1:]]
    return [{"state": each["state"], "from_ms": each["at_ms"], "to_ms": end} for each, end in zip(found, ends)]
