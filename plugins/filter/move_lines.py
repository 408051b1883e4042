# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

from ansible_collections.livefleet.handover.plugins.filter.first_session import messages
from ansible_collections.livefleet.handover.plugins.filter.report_folder import with_page
from ansible_collections.livefleet.handover.plugins.module_utils._core.sizes import format_size
from ansible_collections.livefleet.handover.plugins.module_utils._core.times import expected, table
from ansible_collections.livefleet.handover.plugins.module_utils._podman.preflight.state import without_conmon

Names = t.Mapping[str, t.Any]


def moved_lines(report: Names, told: t.Sequence[str] = (), paths: t.Sequence[str] = ()) -> list[str]:
    """Lines on a move that has succeeded: its times, the sentences of the check that the operator has to know, and the page among its files."""
    status = report["source_session"]
    lines = [
        f"{report['workload']} has moved from {report['source']} to {report['destination']} ({status['mode']}).",
        "",
        *table(status, ran=report["running"]),
        *(["", *told] if told else []),
        *(["", f"Worth a look: {status['error']}"] if status["error"] else []),
    ]
    return with_page(lines, paths)


def move_record(words: Names, status: Names, written: Names) -> dict[str, t.Any]:
    """The record of a move: what the play has told of it in words, and the figures of its session and its plan with their types."""
    return {
        **words,
        "frozen_ms": status["frozen_ms"],
        "at_risk_ms": status.get("at_risk_ms", 0.0),
        "memory": int(written["memory"]),
        "running": written.get("running", True),
        "verify": status.get("verify"),
    }


def trial_lines(status: Names, move: Names, link_rate: float, placed: bool) -> list[str]:
    """Lines on a trial: its times, and the pause that a move would have over a link of so many bytes a second, or with placed memory."""
    size, pause = format_size(int(status["state_bytes"])), expected(status, float(link_rate), placed) / 1000
    return [
        f"A trial of {move['workload']} on {move['source']}: it was frozen and dumped, and runs on.",
        "",
        *table(status),
        "",
        f"Its state takes {size}. A move to {move['destination']} would pause it for about {pause:.2f} s.",
    ]


def undo_sentence(reason: str, move: Names, answers: t.Mapping[str, t.Any]) -> str:
    """Why a workload was not moved, where it runs now, and what could not be undone.

    move: workload, source, destination, relay, command, the engine's, and ran, whether it ran when the move began. answers: of the source to
    C(workload_info); of the destination to the end of its sessions; removed, a list, of the removal of what was made there; of the relay; unit,
    of the source to giving back the unit that starts the workload, or empty; restored, a list, of its start after a boot and of its restart policy.
    """
    problems = _problems(reason, answers["destination"])
    untidy = messages(answers["destination"]) + messages({"results": answers["removed"]})
    relay = [failure for item in answers["relay"].get("results") or [] for failure in item.get("failures") or []]
    sentences = [
        reason,
        *_whereabouts(reason, move, answers["source"]),
        *_conmon(move, answers["source"]),
        *(f"On {move['destination']}: {problem}" for problem in problems[:1]),
        *(f"On the relay {move['relay']}: {failure}" for failure in relay[:1]),
        *(f"Its unit on {move['source']} is held still and does not start it: {why}" for why in messages({"results": [answers["unit"]]})),
        *(f"On {move['source']}: {why}" for why in messages({"results": answers["restored"]})),
        *(f"{move['destination']} could not be cleaned up: {why}" for why in untidy[:1]),
    ]
    return ". ".join(sentence[:-1] if sentence.endswith(".") else sentence for sentence in sentences)


def _whereabouts(reason: str, move: Names, answer: Names) -> list[str]:
    found = answer.get("workload")
    running = bool(found and found.get("running"))
    state = "not answering" if found is None else found.get("state") or "gone"
    if running:
        return [] if f"runs on {move['source']}" in reason else [f"{move['workload']} runs on {move['source']} as before"]
    if not move["ran"]:
        return [f"{move['workload']} is {state} on {move['source']} as before"]
    return [f"{move['workload']} does not run on {move['source']} (it is {state}): look at it there with `{move['command']} ps --all`"]


def _conmon(move: Names, answer: Names) -> list[str]:
    if not (answer.get("workload") or {}).get("conmon_gone"):
        return []
    said = without_conmon(move["workload"], move["source"])
    return [said[0].upper() + said[1:]]


def _problems(reason: str, answer: Names) -> list[str]:
    """What the destination says went wrong. The source may have seen nothing but the end of the connection."""
    errors = [(item.get("status") or {}).get("error") for item in answer.get("results") or []]
    return [error for error in errors if error and "on the source: " not in error and error not in reason]


class FilterModule:
    """Sentences on a move."""

    def filters(self) -> dict[str, t.Callable]:
        """Name → filter."""
        return {"move_record": move_record, "moved_lines": moved_lines, "trial_lines": trial_lines, "undo_sentence": undo_sentence}
