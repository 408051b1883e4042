# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The cost of some OSDs' restart, as one row of a table and one strip of a picture.

The record of restarts on the controller is made of rows, so that a later run can be laid beside it. Seconds, placement groups times
seconds, or counts; nothing where it is not known.
"""

from __future__ import annotations

import json
import typing as t

from .peering_plot import Strip, plot

Row = t.Dict[str, t.Any]
# The columns of a row.
KEYS = ("osds", "how", "away", "stop", "up", "reads", "clean", "score", "peak", "p50", "p95", "p99", "worst", "whole", "curve")
NOW, BEFORE = "#1f6f8b", "#a9b8bf"


def row(watch: t.Mapping[str, t.Any], osds: t.Sequence[int], done: t.Sequence[t.Mapping[str, t.Any]] = (), how: str = "") -> Row:
    """From ceph_peering_impact's view of a batch, and ceph_osd's result for each OSD in it."""
    went = {each["osd"]: each["at"] for each in reversed(watch["osds"]) if not each["up"] and each["osd"] in osds}
    came = {each["osd"]: each["at"] for each in watch["osds"] if each["up"] and each["osd"] in osds}
    begin = min(went.values(), default=0.0)
    clean_at = watch["clean_at"]
    probe = watch["probe"]
    # An earlier restart does not count, if this one did not happen.
    done = [each for each in done if each["id"] in osds and "up_seconds" in each]
    return {
        "osds": ", ".join(f"osd.{osd}" for osd in osds),
        "how": how,
        "away": max((round(at - went[osd], 2) for osd, at in came.items() if osd in went), default=None),
        "stop": max((each["stop_seconds"] for each in done), default=None),
        "up": max((each["up_seconds"] for each in done), default=None),
        "reads": sum(each["reads"] for each in done) if done else None,
        # One that leads no group makes none clean.
        "clean": max(0.0, round(clean_at - max(came.values()), 2)) if came and clean_at is not None else None,
        "score": round(watch["score"], 2),
        "peak": watch["peak"],
        **{name: probe.get(name) for name in ("p50", "p95", "p99", "worst")},
        # Counters of a process that was not seen to come may lack the counts of the one before.
        "whole": set(came) == set(osds),
        "curve": [[round(at - begin, 3), level] for at, level in watch["curve"]],
    }


def beside(rows: t.Sequence[Row], record: str = "", path: str = "") -> list[Row]:
    """The rows, each behind those of an earlier run's record that are about the same OSDs; `when` tells them apart. ValueError if it is no record."""
    try:
        before = json.loads(record)["restarts"] if record else []
        if not all(set(KEYS) <= set(each) for each in before):
            raise KeyError("restarts")
    except (ValueError, TypeError, KeyError):
        raise ValueError(f"{path} is no record of restarts: name a file ceph-….json that an earlier run has left beside its page") from None
    found = []
    for each in rows:
        found += [{**earlier, "when": "before"} for earlier in before if earlier["osds"] == each["osds"]]
        found.append({**each, "when": "now"})
    return found


def picture(rows: t.Sequence[Row]) -> str:
    """An SVG of the layout from `beside`."""
    return plot([
        Strip(f"{each['osds']}, {each['how']}" if each["how"] else each["osds"], each["score"], each["curve"], BEFORE if each["when"] == "before" else NOW)
        for each in rows
    ])  # fmt: skip
