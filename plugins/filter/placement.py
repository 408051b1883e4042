# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import re
import typing as t
from dataclasses import replace

from ansible.errors import AnsibleFilterError
from ansible_collections.livefleet.handover.plugins.module_utils._core import placement as planner, projects
from ansible_collections.livefleet.handover.plugins.module_utils._core.sizes import parse_size
from ansible_collections.livefleet.handover.plugins.module_utils._podman.preflight.plan import STOPPED

Answers = t.Mapping[str, t.Mapping[str, t.Any]]

_OPTIONS = {"empty": [], "moves": [], "destinations": [], "needs": {}, "apart": {}, "waves": {}, "labels": {}, "serial": 8, "parallel_steps": 0,
            "spare_memory": "256M", "spare_disk": "1G", "stamp": "", "mode": "live"}  # fmt: skip


def asked_for(answers: Answers, asked: t.Mapping[str, t.Any], labels: t.Mapping[str, t.Any], stamp: str) -> dict[str, t.Any]:
    """A plan for the request that the action `options` has read."""
    wanted = {"waves": asked["wave"], **{key: asked[key] for key in _OPTIONS if key in asked}}
    return placement(answers, labels=labels, stamp=stamp, **{key: value for key, value in wanted.items() if value is not None})


def placement(answers: Answers, **given: t.Any) -> dict[str, t.Any]:
    """A plan from host_info's answer for each host: `moves`, the `steps` in which they go and their `sizes`, or `problems`."""
    unknown = sorted(set(given) - set(_OPTIONS))
    if unknown:
        raise AnsibleFilterError("placement: there is no option {0}: the options are {1}".format(unknown[0], ", ".join(sorted(_OPTIONS))))
    options = {**_OPTIONS, **given}
    plan: dict[str, t.Any] = {"moves": [], "together": 0, "steps": [], "sizes": [], "done": [], "problems": []}
    try:
        serial = _count("serial", options["serial"], 1, "how many workloads go side by side")
        # More of a step at once than there are processors to do it would only take longer for each.
        together = _count("parallel_steps", options["parallel_steps"], 0, "for how many of them at once a step is done") or len(os.sched_getaffinity(0))
        asked = planner.on_bridges(_asked(answers, _with_projects(answers, options), plan))
        plan["together"] = min(together, serial)
        moves = planner.place(
            asked, _hosts(answers, options), _size("spare_memory", options["spare_memory"]), _size("spare_disk", options["spare_disk"])
        )
        groups = planner.batches(moves, plan["together"], serial)
    except planner.NoPlan as exc:
        plan["problems"] = exc.sentences
        return plan
    rows = [[_row(move, number, group, options["stamp"], moves) for move in group] for number, group in enumerate(groups, 1)]
    plan["moves"] = [row for group in rows for row in group]
    order = [
        [_step(row, part) for row in rows[number] if part in planner.PARTS[row["kind"]]]
        for part, number in planner.steps([len(group) for group in rows], serial)
    ]
    order = [members for members in order if members]
    for number, members in enumerate(order, 1):
        # Ansible gives a play up when all hosts of a batch are out of reach, and others may be on their way yet: one of each can always be reached.
        always = {"name": "step-{0}-of-{1}".format(number, len(order)), "of": "localhost", "part": "", "after": "", "move": {}}
        plan["steps"] += [dict(member, number=number) for member in [always, *members]]
    plan["sizes"] = [1 + len(members) for members in order]
    return plan


def _step(row: t.Mapping[str, t.Any], part: str) -> dict[str, t.Any]:
    """One part of a move: the name under which it runs, `of` which host, and under which name the part ran that it comes `after`, if one did."""
    parts = planner.PARTS[row["kind"]]
    before = parts[: parts.index(part)]
    return {"name": _name(row, part), "of": row["source"], "part": part, "after": _name(row, before[-1]) if before else "", "move": row}


def _name(row: t.Mapping[str, t.Any], part: str) -> str:
    return "{0}.{1}".format(row["name"], part)


def _row(move: planner.Move, batch: int, group: t.Sequence[planner.Move], stamp: str, moves: t.Sequence[planner.Move]) -> dict[str, t.Any]:
    workload = move.workload
    return {
        "name": "{0}@{1}".format(workload.name, workload.source),
        "workload": workload.name,
        "source": workload.source,
        "destination": move.destination,
        "memory": workload.memory,
        "disk": workload.disk,
        "wave": workload.wave,
        "running": workload.running,
        "kind": workload.kind,
        "driver": planner.DRIVERS[workload.kind],
        "storage": workload.storage,
        "disks": list(workload.disks),
        "batch": batch,
        "session": _session(workload, stamp),
        "beside": sorted(other.workload.name for other in moves if _beside(move, other)),
        "together": [_session(other.workload, stamp) for other in group if workload.wave and other.workload.wave == workload.wave],
    }


def _beside(move: planner.Move, other: planner.Move) -> bool:
    """Whether the other is of the same project, or comes to the same host at the same moment: what one has with the other stays within a host."""
    ours, theirs = move.workload, other.workload
    of_project = bool(ours.project) and (ours.project, ours.source) == (theirs.project, theirs.source)
    of_wave = bool(ours.wave) and (ours.wave, ours.kind, move.destination) == (theirs.wave, theirs.kind, other.destination)
    return other is not move and (of_project or of_wave)


def _session(workload: planner.Workload, stamp: str) -> str:
    return workload.session or (re.sub("[^a-z0-9]+", "-", workload.name.lower())[:34] + stamp).lstrip("-")


def _with_projects(answers: Answers, options: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """The options with the containers of a project that is to move in place of it, as a wave."""
    rows = {host: answer.get("workloads", ()) for host, answer in answers.items()}
    named = [{**move, "from": _list(move.get("from"))} if isinstance(move, t.Mapping) else {} for move in options["moves"]]
    moves, waves, problems = projects.of_containers(named, rows)
    if problems:
        raise planner.NoPlan(problems)
    # Waves that were asked for come first.
    return {**options, "moves": moves, "waves": {**options["waves"], **{wave: names for wave, names in waves.items() if wave not in options["waves"]}}}


def _asked(answers: Answers, options: t.Mapping[str, t.Any], plan: dict[str, t.Any]) -> list[planner.Workload]:
    """The moves. A workload that is there already is `done`."""
    problems: list[str] = []
    found: list[planner.Workload] = []
    for source in _list(options["empty"]):
        if source not in answers or "workloads" not in answers[source]:
            problems.append("{0} did not tell what runs on it: {1}".format(source, silence(answers.get(source))))
            continue
        for workload in answers[source]["workloads"]:
            arriving = _arriving(answers[source], workload)
            if workload.get("untold"):
                problems.append(_untold(workload, source))
            elif arriving:
                problems.append("{0} is on its way to {1}, by session {2}: wait until that has ended".format(workload["name"], source, arriving))
            else:
                found.append(_workload(workload, source, "", answers, options))
        # A source that has let go of its container: only the move's end is missing.
        known = {name for workload in answers[source]["workloads"] for name in [workload["name"], *(workload.get("members") or [])]}
        problems += [sentence for name in sorted(known) for sentence in _twice(answers[source], source, name)][:1]
        for session in answers[source]["sessions"]:
            if session["role"] == "source" and session["state"] in planner.PAST_RELEASE and session["workload"] not in known:
                found.append(_workload(_gone(session), source, "", answers, options))
    for number, move in enumerate(options["moves"], 1):
        try:
            name = move["workload"]
        except (KeyError, TypeError):
            problems.append(
                "handover_moves: entry {0} names no workload: write {{workload: NAME, to: HOST}}, where `to` and `from` may be left out".format(number)
            )
            continue
        on = [host for host in _list(move.get("from")) or list(answers) if _has(answers.get(host, {}), name)]
        running = [host for host in on if _left_over(answers[host], name)] or [host for host in on if _entry(answers[host], name)["running"]] or on
        if move.get("to") and move["to"] in running and len(running) == 1:
            plan["done"].append({"workload": name, "source": move["to"]})
        elif len(running) == 1:
            entry = _entry(answers[running[0]], name)
            problems += [_untold(entry, running[0])] if entry.get("untold") else _twice(answers[running[0]], running[0], name)
            found.append(_workload(entry, running[0], move.get("to") or "", answers, options))
        elif running:
            problems.append("{0} is on {1}: say which of them is meant with `from`".format(name, " and ".join(running)))
        else:
            silent = sorted(host for host, answer in answers.items() if "workloads" not in answer)
            spoke = ", ".join(_list(move.get("from")) or sorted(set(answers) - set(silent)))
            untold = " ({0})".format("; ".join("{0}: {1}".format(host, silence(answers[host])) for host in silent)) if silent else ""
            problems.append("there is no container or guest named {0} on {1}{2}".format(name, spoke, untold))
    if problems:
        raise planner.NoPlan(problems)
    return found


def _untold(entry: t.Mapping[str, t.Any], source: str) -> str:
    return "it is not known whether {0} runs on {1}: {2}".format(entry["name"], source, entry["untold"])


def _twice(answer: t.Mapping[str, t.Any], source: str, name: str) -> list[str]:
    """Why it is not known which workload a name means."""
    kinds = [each.get("kind", planner.CONTAINER) for each in answer["workloads"] if each["name"] == name]
    if len(kinds) < 2:
        return []
    return ["{0} has {1} that are both named {2}: rename one of them".format(source, " and ".join(planner.NAMES[kind] for kind in kinds[:2]), name)]


def _has(answer: t.Mapping[str, t.Any], name: str) -> bool:
    return any(workload["name"] == name for workload in answer.get("workloads", ())) or bool(_left_over(answer, name))


def _entry(answer: t.Mapping[str, t.Any], name: str) -> dict[str, t.Any]:
    left = _left_over(answer, name) or {}
    return next((workload for workload in answer["workloads"] if workload["name"] == name), dict(_gone(left), name=name, running=False))


def _gone(session: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """The facts about a workload that its host has released."""
    return {"name": session.get("workload"), **{key: session[key] for key in ("kind", "storage", "disks") if key in session}}


def _left_over(answer: t.Mapping[str, t.Any], name: str) -> t.Mapping[str, t.Any] | None:
    """The session of an unfinished move; its destination is known, and has the room for it."""
    mine = [each for each in answer.get("sessions", ()) if each["role"] == "source" and each["workload"] == name and each["destination"]]
    return next((each for each in mine if each["state"] in planner.PAST_RELEASE), next((each for each in mine if not each["ended"]), None))


def _arriving(answer: t.Mapping[str, t.Any], entry: t.Mapping[str, t.Any]) -> str:
    """The session that brings here a workload that does not run here yet."""
    mine = (each["id"] for each in answer["sessions"] if each["role"] == "destination" and each["workload"] == entry["name"] and not each["ended"])
    return "" if entry["running"] else next(mine, "")


def _workload(entry: t.Mapping[str, t.Any], source: str, to: str, answers: Answers, options: t.Mapping[str, t.Any]) -> planner.Workload:
    name, labels = entry["name"], entry.get("labels") or {}
    unfinished = _left_over(answers[source], name)
    groups = [group for group, names in options["apart"].items() if name in names]
    waves = [wave for wave, names in options["waves"].items() if name in names]
    kind = entry.get("kind", planner.CONTAINER)
    stopped = entry.get("state") in planner.STOPPED_GUEST if kind == planner.GUEST else entry.get("state") in STOPPED
    parts = _parts(entry, source, to, answers, options)
    # Released workloads of a wave need not wait for others, and none waits for one that does not run.
    alone = stopped or (unfinished or {}).get("state") in planner.PAST_RELEASE
    wave = "" if alone else (waves or [labels.get(planner.WAVE) or ""])[0]
    bridges = [] if alone or wave or options["mode"] != "live" else entry.get("bridges") or []
    begun = next((part for part in parts if part.resumed), None)
    return planner.Workload(
        name,
        source,
        # An unfinished move has taken its room already.
        memory=0 if unfinished else entry.get("memory", 0),
        disk=0 if unfinished else entry.get("disk", 0),
        needs=frozenset() if unfinished else frozenset(_list(options["needs"].get(name)) + _list(labels.get(planner.NEEDS))),
        apart=frozenset() if unfinished else frozenset(groups + _list(labels.get(planner.APART))),
        running=not stopped,
        wave=wave,
        destination=(unfinished or {}).get("destination") or (begun.destination if begun else to),
        resumed=unfinished is not None or begun is not None,
        session=(unfinished or {}).get("id", ""),
        kind=kind,
        storage=entry.get("storage", ""),
        disks=tuple(entry.get("disks") or ()),
        members=frozenset(entry.get("members") or ()),
        parts=parts,
        bridges=frozenset((entry["project"], bridge) for bridge in bridges if entry.get("project")),
    )


def _parts(entry: t.Mapping[str, t.Any], source: str, to: str, answers: Answers, options: t.Mapping[str, t.Any]) -> tuple[planner.Workload, ...]:
    """The containers of a project that moves live, which go side by side as a wave."""
    if options["mode"] != "live":
        return ()
    found = []
    for part in entry.get("parts") or ():
        unfinished = _left_over(answers[source], part["name"])
        wave = "" if unfinished and unfinished["state"] in planner.PAST_RELEASE else entry["name"]
        found.append(replace(_workload(part, source, to, answers, options), wave=wave, project=entry["name"]))
    return tuple(found)


def _hosts(answers: Answers, options: t.Mapping[str, t.Any]) -> list[planner.Host]:
    asked = _list(options["destinations"]) or list(answers)
    missing = sorted(set(asked) - set(answers))
    if missing:
        raise planner.NoPlan(["{0} is not among the hosts that were asked: look further with handover_hosts".format(missing[0])])
    return [_host(name, answers[name], options) for name in asked]


def _host(name: str, answer: t.Mapping[str, t.Any], options: t.Mapping[str, t.Any]) -> planner.Host:
    if "workloads" not in answer:
        return planner.Host(name, obstacle=silence(answer))
    apart = {
        group: workload["name"]
        for workload in answer["workloads"]
        for group in [*_list((workload["labels"] or {}).get(planner.APART)), *[key for key, names in options["apart"].items() if workload["name"] in names]]
    }
    mark = answer.get("maintenance")
    return planner.Host(
        name,
        memory=answer["memory"],
        disk=answer["disk"],
        labels=frozenset(_list(options["labels"].get(name))),
        names=frozenset(name for workload in answer["workloads"] for name in [workload["name"], *(workload.get("members") or [])]),
        kinds=frozenset(answer.get("kinds", [planner.CONTAINER])),
        apart=apart,
        obstacle="it is under maintenance ({0})".format(mark["reason"]) if mark else "",
    )


def silence(answer: t.Mapping[str, t.Any] | None) -> str:
    """Why a host did not tell."""
    if answer is None:
        return "it was not asked"
    lines = str(answer.get("msg") or "it gave no answer").strip().splitlines()
    return "it could not be asked ({0})".format(lines[-1] if answer.get("unreachable") else lines[0])


def _list(value: t.Any) -> list[str]:
    """A list of names, also where it was written as one: `a, b`."""
    if not value:
        return []
    return [word for word in re.split(r"[\s,]+", value) if word] if isinstance(value, str) else [str(each) for each in value]


def _count(option: str, value: t.Any, least: int, what: str) -> int:
    try:
        number = int(value)
    except (TypeError, ValueError):
        number = least - 1
    if number < least:
        raise planner.NoPlan(["handover_{0} is '{1}': write {2}, at least {3}".format(option, value, what, least)])
    return number


def _size(option: str, value: t.Any) -> int:
    try:
        return parse_size(str(value))
    except ValueError as exc:
        raise planner.NoPlan(["handover_{0}: {1}".format(option, exc)]) from exc


class FilterModule:
    """Where workloads go."""

    def filters(self) -> dict[str, t.Callable]:
        """Name → filter."""
        return {"placement": placement, "asked_for": asked_for}
