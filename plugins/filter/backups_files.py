# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import calendar
import datetime
import json
import typing as t

from ansible.errors import AnsibleFilterError
from ansible_collections.livefleet.handover.plugins.filter.report_files import drawn
from ansible_collections.livefleet.handover.plugins.module_utils._core.backups import GUEST
from ansible_collections.livefleet.handover.plugins.module_utils._core.sizes import format_size

Row = t.Mapping[str, t.Any]

PAGE = "backups.html.j2"
# A year and the month that it began in. Earlier months are in the table alone.
MONTHS = 13
# Parts of the largest day, from which on a day has the next darker shade.
SHADES = (0.0, 0.01, 0.1, 0.5)


def backups_files(listed: t.Any, templates: t.Sequence[str], name: str, place: str, verified: bool) -> dict[str, str]:
    """The two files of a list of backups, by name: the list itself as JSON, and a page with sizes and a calendar. Days are those of UTC."""
    if not isinstance(listed, t.Mapping) or "backups" not in listed:
        raise AnsibleFilterError("backups_files: the result of backup_info is needed, not {0}".format(type(listed).__name__))
    backups, faults = listed["backups"], listed["faults"]
    record = {"repository": place, "verified": verified, "backups": backups, "faults": faults}
    shown = {
        "place": place,
        "verified": verified,
        "faults": faults,
        "workloads": [of_workload(workload, backups, faults) for workload in dict.fromkeys(row["workload"] for row in backups)],
        "stored": format_size(sum(row["stored"] for row in backups)),
        "number": len(backups),
        "latest": latest(backups),
    }
    return {name + ".json": json.dumps(record, indent=4) + "\n", name + ".html": drawn(PAGE, templates, shown=shown, name=name)}


def latest(backups: t.Sequence[Row]) -> dict[str, str]:
    """The day of the latest backup, in a few letters, and the rest of its time."""
    if not backups:
        return {"day": "", "rest": ""}
    taken = datetime.datetime.strptime(max(row["taken"] for row in backups), "%Y-%m-%dT%H:%M:%SZ")
    return {"day": "{0} {1:%b}".format(taken.day, taken), "rest": "{0:%Y, %H:%M} UTC".format(taken)}


def of_workload(workload: str, backups: t.Sequence[Row], faults: t.Sequence[Row]) -> dict[str, t.Any]:
    """All that the page says of one workload, the latest backup first."""
    mine = [row for row in backups if row["workload"] == workload]
    largest = max(row["stored"] for row in mine) or 1
    damaged = {point for fault in faults if fault["workload"] == workload for point in fault["points"].split(", ")}
    rows = [
        {
            **row,
            "taken": row["taken"].replace("T", " ").rstrip("Z"),
            "size": format_size(row["size"]),
            "stored": format_size(row["stored"]),
            "part": round(100 * row["stored"] / largest, 1),
            "damaged": row["id"] in damaged,
        }
        for row in reversed(mine)
    ]
    found = days(mine)
    most = max(day["stored"] for day in found.values()) or 1
    return {
        "workload": workload,
        "guest": mine[-1].get("kind") == GUEST,
        "rows": rows,
        "stored": format_size(sum(row["stored"] for row in mine)),
        "months": months(found, most),
        "legend": [format_size(int(part * most)) for part in SHADES[1:]],
    }


def days(backups: t.Sequence[Row]) -> dict[str, dict[str, t.Any]]:
    """Of each day with backups: how many there are, the bytes that they have stored, and whether one of them is kept for its name."""
    found: dict[str, dict[str, t.Any]] = {}
    for row in backups:
        day = found.setdefault(row["taken"][: len("2026-11-26")], {"number": 0, "stored": 0, "named": False})
        day["number"] += 1
        day["stored"] += row["stored"]
        day["named"] = day["named"] or bool(row["name"])
    return found


def months(found: t.Mapping[str, t.Mapping[str, t.Any]], most: int) -> list[dict[str, t.Any]]:
    """The last months that have backups, the earliest first, each with its weeks from Monday on. A day of another month is None."""
    wanted = sorted({day[: len("2026-11")] for day in found})[-MONTHS:]
    return [{"title": datetime.date.fromisoformat(month + "-01").strftime("%B %Y"), "weeks": list(weeks(month, found, most))} for month in wanted]


def weeks(month: str, found: t.Mapping[str, t.Mapping[str, t.Any]], most: int) -> t.Iterator[list[dict[str, t.Any] | None]]:
    year, number = map(int, month.split("-"))
    for week in calendar.Calendar().monthdayscalendar(year, number):
        yield [cell(day, found.get("{0}-{1:02d}".format(month, day)), most) if day else None for day in week]


def cell(day: int, backups: t.Mapping[str, t.Any] | None, most: int) -> dict[str, t.Any]:
    """A day. Its shade says how much was stored; 0 without a backup."""
    if backups is None:
        return {"day": day, "shade": 0, "said": "no backup", "named": False}
    shade = sum(backups["stored"] >= part * most for part in SHADES)
    said = "{0} backup{1}, {2} stored".format(backups["number"], "s" if backups["number"] > 1 else "", format_size(backups["stored"]))
    return {"day": day, "shade": shade, "said": said, "named": backups["named"]}


class FilterModule:
    """Backups for people to look at, and for programs to read."""

    def filters(self) -> dict[str, t.Callable]:
        """Name → filter."""
        return {"backups_files": backups_files}
