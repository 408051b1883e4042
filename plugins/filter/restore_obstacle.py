# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleFilterError
from ansible_collections.livefleet.handover.plugins.filter.placement import silence

Answer = t.Mapping[str, t.Any]

# Of a move whose outcome only its other side knows.
_OPEN = frozenset(("released", "in_doubt"))


def restore_obstacle(answers: t.Mapping[str, Answer | None], workload: str, source: str, addresses: t.Sequence[str] = ()) -> str:
    """From workload_info's answer on each host: why a container or a guest cannot be brought back on one of them, which must not run twice; empty if it can."""
    given = {host: answer or {} for host, answer in answers.items()}
    others = {host: answer for host, answer in given.items() if host != source}
    running = sorted(host for host, answer in others.items() if _busy(answer.get("workload") or {}) or _is_up(answer.get("guest") or {}))
    if running:
        return "{0} runs on {1} and must not run twice: name that host (handover_source), or end it there first".format(workload, ", ".join(running))
    moving = ["{0} ({1})".format(host, session["state"]) for host, answer in sorted(given.items()) for session in _moves(answer, workload)]
    if moving:
        return "a move of {0} has not ended on {1}: wait for it, or end it with the playbook recover".format(workload, ", ".join(moving))
    silent = ["{0}: {1}".format(host, _unknown(answers[host])) for host in sorted(others) if _unknown(answers[host])]
    if silent:
        return (
            "it is not known whether {0} runs on another host, and it must not run twice: {1}: mend that, or leave a host out that is off, as in "
            "-e 'handover_hosts=all:!{2}'".format(workload, "; ".join(silent), silent[0].partition(":")[0])
        )
    if addresses and (given.get(source, {}).get("workload") or {}).get("exists"):
        return (
            "{0} is on {1} and goes back to the backup with the addresses that it has: leave handover_addresses ({2}) away, "
            "or have another container beside it with handover_clone".format(workload, source, ", ".join(addresses))
        )
    return ""


def _busy(found: t.Mapping[str, t.Any]) -> bool:
    """One that is paused goes on some time."""
    return bool(found.get("running") or found.get("held") or found.get("state") == "paused")


def _is_up(guest: t.Mapping[str, t.Any]) -> bool:
    """Any state but the last two has memory in it, and may go on."""
    return bool(guest.get("exists")) and guest.get("state") not in ("shut off", "crashed")


def _moves(answer: Answer, workload: str) -> list[t.Mapping[str, t.Any]]:
    """Those at work, or in doubt. One that was given up before has stopped nothing."""
    sessions = [each for each in answer.get("sessions") or () if each.get("workload") == workload]
    return [each for each in sessions if each.get("state") in _OPEN or each.get("running") and not each.get("ended")]


def _unknown(answer: Answer | None) -> str:
    """Why a host did not tell whether it has the workload. podman or libvirt may have failed there, though the host answered."""
    if "workload" not in (answer or {}):
        return silence(answer)
    problems = (answer or {}).get("problems")
    # A container of the name says nothing of a guest.
    if problems and ((answer or {}).get("guest") or {}).get("state") == "unknown":
        return str(problems[-1])
    known = ((answer or {}).get("workload") or {}).get("exists") or ((answer or {}).get("guest") or {}).get("exists")
    return str(problems[0]) if problems and not known else ""


def checked(answers: t.Any, workload: str, source: str, addresses: t.Sequence[str] = ()) -> str:
    """The filter: its input comes from a playbook."""
    if not isinstance(answers, t.Mapping):
        raise AnsibleFilterError("restore_obstacle: what each host answered is needed, by its name, not {0}".format(type(answers).__name__))
    return restore_obstacle(answers, workload, source, addresses)


class FilterModule:
    """Whether a workload may be brought back."""

    def filters(self) -> dict[str, t.Callable]:
        """Name → filter."""
        return {"restore_obstacle": checked}
