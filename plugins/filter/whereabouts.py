# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleFilterError
from ansible_collections.livefleet.handover.plugins.filter.placement import silence

Answers = t.Mapping[str, t.Mapping[str, t.Any]]

# States of a source that has let go of its workload, and was not cleaned up.
_LET_GO = frozenset(("released", "resumed", "settled", "done", "in_doubt"))


def whereabouts(answers: Answers, workload: str, destination: str, source: str = "") -> dict[str, str]:
    """From workload_info's answer on each host: the `source` of a move, or the `sentence` that none is needed, or a `problem`."""
    if source and source == destination:
        return _found(problem="{0} is both the source and the destination: name the host that {1} is to go to".format(source, workload))
    asked = {host: answer for host, answer in answers.items() if not source or host == source}
    candidates = _candidates(asked, workload)
    there = _existing(answers.get(destination) or {})
    if candidates == [destination] or not candidates and there:
        state = "" if there.get("running") else ", and does not run"
        return _found(sentence="{0} is on {1} already{2}: nothing is left to do.".format(workload, destination, state))
    if len(candidates) == 1:
        return _found(source=candidates[0])
    if candidates:
        return _found(
            problem="{0} is on {1}: say which of them is meant, as in -e handover_source={2}".format(workload, " and ".join(candidates), candidates[0])
        )
    return _found(problem=_nowhere(answers, workload))


def _found(source: str = "", sentence: str = "", problem: str = "") -> dict[str, str]:
    return {"source": source, "sentence": sentence, "problem": problem}


def _existing(answer: t.Mapping[str, t.Any]) -> t.Mapping[str, t.Any]:
    known = answer.get("workload") or {}
    return known if known.get("exists") else {}


def _candidates(answers: Answers, workload: str) -> list[str]:
    """Where an earlier move has let go of it; else where it runs; else where it is."""
    unfinished = [host for host, answer in answers.items() if any(let_go(each, workload) for each in (answer or {}).get("sessions") or ())]
    existing = [host for host, answer in answers.items() if _existing(answer or {})]
    return unfinished or [host for host in existing if _existing(answers[host]).get("running")] or existing


def let_go(session: t.Mapping[str, t.Any], workload: str) -> bool:
    """Whether a source has handed a workload over, and was not cleaned up."""
    return session.get("workload") == workload and session.get("role") == "source" and session.get("state") in _LET_GO


def _nowhere(answers: Answers, workload: str) -> str:
    silent = sorted(host for host, answer in answers.items() if "workload" not in (answer or {}))
    spoke = ", ".join(sorted(set(answers) - set(silent)))
    causes = "; ".join("{0}: {1}".format(host, silence(answers[host])) for host in silent)
    return "there is no container named {0} on {1}{2}: name one that is there, or look further with -e handover_hosts=GROUP".format(
        workload, spoke or "any host", " ({0})".format(causes) if causes else ""
    )


def checked(answers: t.Any, asked: t.Mapping[str, t.Any]) -> dict[str, str]:
    """The filter: its input comes from a playbook."""
    if not isinstance(answers, t.Mapping):
        raise AnsibleFilterError("whereabouts: what each host answered is needed, by its name, not {0}".format(type(answers).__name__))
    return whereabouts(answers, asked["workload"], asked["destination"], asked.get("source") or "")


class FilterModule:
    """Where a workload is."""

    def filters(self) -> dict[str, t.Callable]:
        """Name → filter."""
        return {"whereabouts": checked}
