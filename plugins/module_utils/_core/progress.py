# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A running session in one line, for people who watch."""

from __future__ import annotations

import typing as t

from .sizes import format_size

Status = t.Mapping[str, t.Any]


def line(status: Status) -> str:
    """`shop: presync, pass 1: 42 % of 1 GiB, 412 MiB/s, 1 s to go`."""
    words = "{0}: {1}".format(status["workload"] or status["id"], status["state"])
    if status.get("broken"):
        return "{0}, made again: {1}".format(words, status["broken"])
    if status.get("waits"):
        return "{0}, waits for {1} that began earlier".format(words, status["waits"])
    number, size = status.get("pass") or 0, status.get("pass_bytes") or 0
    if status["ended"] or status["state"] != "presync" or not number:
        return words
    words += ", pass {0}".format(number)
    if size:
        words += ": {0} % of {1}".format(min(100, 100 * (status.get("done_bytes") or 0) // size), format_size(size))
    if status.get("rate"):
        words += ", {0}/s".format(format_size(status["rate"]))
    if number > 1 or status.get("converged"):
        words += ", {0} left".format(format_size(status.get("dirty_bytes") or 0))
    forecast = status.get("forecast_ms")
    foretold = ", a pause now of about {0:.2f} s".format(forecast / 1000) if forecast else ""
    if status.get("converged"):
        words += ", converged" + foretold
        throttle = status.get("throttle")
        return words + (", processor time cut by {0} %".format(throttle) if throttle else "")
    seconds = left(status)
    return words + (foretold if seconds is None else "{0}, {1} to go".format(foretold, duration(seconds)))


def left(status: Status) -> float | None:
    """Seconds that the pass will take yet, at its present rate."""
    if status.get("converged") or not status.get("rate"):
        return None
    return max(0, (status.get("pass_bytes") or 0) - (status.get("done_bytes") or 0)) / status["rate"]


def duration(seconds: float) -> str:
    """`42 s`, `7 min`, `3.5 h`: as exact as an estimate is."""
    if seconds < 100:
        return "{0:.0f} s".format(seconds)
    return "{0:.0f} min".format(seconds / 60) if seconds < 100 * 60 else "{0:.1f} h".format(seconds / 3600)


def landmark(status: Status) -> tuple[t.Any, ...]:
    """The parts whose change makes a line worth a place in a log without a live display."""
    flags = [bool(status.get(key)) for key in ("waits", "converged", "ended")]
    return (status["state"], status.get("pass") or 0, status.get("throttle") or 0, *flags)


def verdict(status: Status, until: str) -> tuple[bool, str | None]:
    """Whether the wait is over, and the sentence with which it failed, if it did."""
    if until == "converged":
        if status.get("converged") and not status["ended"]:
            return True, None
        if status["ended"] or (not status["running"] and status.get("error")):
            return True, "session {0} ended before it had converged, in the state {1}: {2}".format(
                status["id"], status["state"], status.get("error") or "it gave no reason"
            )
        return False, None
    if status["ended"] or (not status["running"] and not status.get("broken") and status["state"] != "prepare"):
        return True, None
    return False, None
