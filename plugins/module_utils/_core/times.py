# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The times of a handover: a row a stage and the total, as `vzmigrate --times` printed them.

Stages overlap: the last blocks travel beside the dump of memory. So the rows do not add up to the total, which is the time
from the first moment at which the workload could have stood still to the moment at which it ran again.
"""

from __future__ import annotations

import typing as t

Status = t.Mapping[str, t.Any]

# Stage → its text in the table, in the order in which the stages begin.
LABELS = {
    "barrier": "Barrier",
    "arm": "Get ready",
    "freeze": "Freeze",
    "last_pass": "Last blocks",
    "freeze_fs": "Freeze file systems",
    "dump": "Dump",
    "copy_dump": "Copy dump file",
    "seal": "Seal file systems",
    "verify": "Verify",
    "armed": "Wait for restore",
    "attach": "Attach volumes",
    "restore": "Undump, held",
    "criu_restore": "of which CRIU",
    "place": "of which memory",
    "datasync": "of which sync",
    "release": "Release",
    "resume": "Resume",
    "fetch": "Fetch memory",
    "settle": "Settle",
    "thaw": "Run on",
}
# Without memory that moves, these are no work of their own.
LIVE_ONLY = ("arm", "dump", "armed", "criu_restore", "place")
OFFLINE_LABELS = {"freeze": "Stop", "copy_dump": "Copy layer", "restore": "Prepare", "resume": "Start"}
# Stage → the one that it is a part of, below which it is shown.
PARTS = dict.fromkeys(("criu_restore", "place", "datasync"), "restore")
# These stages lie outside of the pause.
OUTSIDE = ("barrier", "arm", "fetch", "settle")


def rows(status: Status) -> list[dict[str, t.Any]]:
    """The stages with their labels, in the order of their beginning, a part of one after the whole of it."""
    found = []
    live = status.get("mode") != "offline"
    labels = LABELS if live else {**LABELS, **OFFLINE_LABELS}
    begun = {stage["stage"]: float(stage.get("start_ms", 0.0)) for stage in status.get("stages") or []}
    for stage in sorted(status.get("stages") or [], key=lambda each: _place(each, begun)):
        name = stage["stage"]
        if name in LIVE_ONLY and not live:
            continue
        found.append(
            {
                "stage": name,
                "label": labels.get(name, name.replace("_", " ").capitalize()),
                "start_ms": float(stage.get("start_ms", 0.0)),
                "ms": float(stage["ms"]),
                "frozen": name not in OUTSIDE,
                "part_of": _whole(name, begun),
            }
        )
    return found


def _whole(name: str, begun: t.Mapping[str, float]) -> str:
    """The stage that this one is a part of, if there was one; empty otherwise."""
    whole = PARTS.get(name, "")
    return whole if whole in begun else ""


def _place(stage: Status, begun: t.Mapping[str, float]) -> tuple[float, bool, float]:
    """Where a stage comes among the others."""
    whole, start = _whole(stage["stage"], begun), float(stage.get("start_ms", 0.0))
    return begun[whole] if whole else start, bool(whole), start


# Bytes a second at which CRIU copies memory, out of the tasks and into them: that of the helper's own forecast.
CRIU_RATE = 1300 * 2**20
# Out of the tasks and into them, and how many of these ways placed memory takes.
CRIU_WAYS = 2
PLACED_WAYS = 0.65


def expected(trial: Status, rate: float, placed: bool) -> float:
    """Milliseconds that a move would pause a workload, after a trial: frozen and dumped as in the trial, its state sent at a rate in bytes
    per second, and restored in about the time that the dump took. Placed memory goes ahead, and is copied while CRIU does the rest."""
    took = {stage["stage"]: float(stage["ms"]) for stage in trial.get("stages") or []}
    state = 1000 * float(trial.get("state_bytes") or 0)
    if placed:
        return base(trial) + PLACED_WAYS * state / CRIU_RATE
    return took.get("freeze", 0.0) + 2 * took.get("dump", 0.0) + state / rate


def base(trial: Status) -> int:
    """Milliseconds that a pause takes in any case, by a trial: it was frozen, and dumped, and restoring takes about as long as that did. What
    its memory took does not count. 0 without a trial."""
    took = {stage["stage"]: float(stage["ms"]) for stage in trial.get("stages") or []}
    if "dump" not in took:
        return 0
    memory = 1000 * float(trial.get("state_bytes") or 0) / CRIU_RATE
    return max(1, round(took.get("freeze", 0.0) + 2 * max(0.0, took["dump"] - memory)))


def table(status: Status, ran: bool = True) -> list[str]:
    """Lines of text, all of one width. A workload that did not run was not suspended."""
    stages = rows(status)
    total = float(status.get("frozen_ms") or 0.0)
    lines = [("  " * bool(row["part_of"]) + row["label"], row["start_ms"], row["ms"]) for row in stages]
    sum_up = "Total suspended time" if ran else "Total time"
    width = max([len(label) for label, _start, _ms in lines] + [len("Total suspended time")])
    rule = "-" * (width + 28)
    text = ["{0:<{1}}  {2:>12}  {3:>12}".format("Stage", width, "from", "took"), rule]
    text += ["{0:<{1}}  {2:>10.3f} s  {3:>10.3f} s".format(label, width, start / 1000, took / 1000) for label, start, took in lines]
    sums = [(sum_up, total)]
    if status.get("at_risk_ms"):  # lazy pages: after the pause it needed both hosts
        sums.append(("Time at risk", float(status["at_risk_ms"])))
    return [*text, rule, *("{0:<{1}}  {2:>12}  {3:>10.3f} s".format(label, width, "", took / 1000) for label, took in sums)]
