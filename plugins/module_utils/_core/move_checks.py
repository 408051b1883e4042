# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The conditions before any move of a container, whatever engine runs it.

A check is a pure function of the facts about both hosts, and yields one sentence for each fault: the thing, the place, and the way out.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from .move import IGNORE, PCOPY_CURE, SPARE_DISK, Facts, Move
from .pcopy import INTERFACE, SESSIONS
from .sizes import format_size

SYSTEMD_SINCE = 240

# Workloads keep time by the wall clock too: leases, certificates, tokens.
CLOCK_SECONDS = 30.0


def same_host(plan: Move) -> t.Iterator[str]:
    if plan.source == plan.destination:
        yield "{0} is on {1} already, and that is also the destination: name another handover_destination".format(plan.workload, plan.source)


def locked(plan: Move) -> t.Iterator[str]:
    told: set[str] = set()
    own = {plan.workload, *plan.names}
    for name, host in plan.hosts:
        for session in host["pcopy"]["sessions"]:
            concerned = bool(own & {session["workload"], *(session.get("members") or [])}) and session["id"] not in {plan.session, *told}
            sentence = _locks(plan, name, session) if concerned else ""
            if sentence:
                told.add(session["id"])
                yield sentence


def _locks(plan: Move, host: str, session: t.Mapping[str, t.Any]) -> str:
    """Why a session on one of the hosts keeps its workload from being moved; empty if it does not."""
    if host == plan.destination and session["role"] == "source" and session["state"] == "done":
        # Its cleanup would take what comes back for what is left there.
        return "{0} has left {1} by session {2}, and what is left of it there was not removed: run playbooks/recover.yml, then move it again".format(
            plan.workload, host, session["id"]
        )
    if session["ended"]:
        return ""
    if session["running"] or session.get("prepared_now"):
        return "{0} is being moved already{4}, by session {1} on {2}, which is in the state {3}: wait until that has ended".format(
            plan.workload, session["id"], host, session["state"], _by(session)
        )
    way = "playbooks/recover.yml ends it, or `pcopy session abort {0}/{1}` there".format(SESSIONS, session["id"])
    return "the session {1} on {2} has left {0} in the state {3}, and nothing is at work on it: {4}".format(
        plan.workload, session["id"], host, session["state"], way
    )


def _by(session: t.Mapping[str, t.Any]) -> str:
    """Where to, by whom and since when, as far as the record of the move says."""
    by, to = session.get("by") or {}, session.get("destination")
    return (" to {0}".format(to) if to else "") + (" by {who} on {on} since {since}".format(**by) if by else "")


def pcopy(plan: Move) -> t.Iterator[str]:
    """A helper that does not know all that is asked of it is told alone: of one so old, the comparison would say the same again."""
    yield from list(_unfit(plan)) or _unlike(plan)


def _unfit(plan: Move) -> t.Iterator[str]:
    for name, host in plan.hosts:
        if not host["pcopy"]["installed"]:
            yield "the helper pcopy is missing on {0}: {1}".format(name, PCOPY_CURE)
        elif host["pcopy"].get("interface", 0) < INTERFACE:
            yield "pcopy on {0} is older than this collection, and does not know all that is asked of it: {1}".format(name, PCOPY_CURE)


def _unlike(plan: Move) -> t.Iterator[str]:
    (_source, here), (_destination, there) = plan.hosts
    if here["pcopy"]["protocol"] != there["pcopy"]["protocol"]:
        yield "pcopy speaks protocol {0} on {1} and {2} on {3}: apply the role livefleet.handover.pcopy to both".format(
            here["pcopy"]["protocol"], plan.source, there["pcopy"]["protocol"], plan.destination
        )
    elif plan.live and plan.container["running"]:
        needs = here["pcopy"].get("needs", {})
        words = [*needs.get("live", []), *(needs.get("lazy_pages", []) if plan.lazy_pages else [])]
        if plan.floating_addresses:
            words += needs.get("floating", [])
        missing = [word for word in words if word not in there["pcopy"].get("can", [])]
        if missing:
            yield "pcopy on {0} is older than on {1}, and cannot take all that it would send ({2}): apply the role livefleet.handover.pcopy to both".format(
                plan.destination, plan.source, ", ".join(missing)
            )


def systemd(plan: Move) -> t.Iterator[str]:
    for name, host in plan.hosts:
        if not host["systemd"]:
            yield "{0} does not run systemd, which runs the sessions: choose a host that does".format(name)
        elif host["systemd"][0] < SYSTEMD_SINCE:
            yield "systemd is {0} on {1}, and {2} or later is needed: update it".format(host["systemd"][0], name, SYSTEMD_SINCE)


def clock(plan: Move) -> t.Iterator[str]:
    ahead, within = apart(plan)
    if abs(ahead) - within > CLOCK_SECONDS:
        yield "the clocks of {0} and {1} are about {2:.0f} s apart{3}, which {4} would see as a jump: set both by NTP".format(
            plan.source, plan.destination, abs(ahead), " (known to within {0:.1f} s)".format(within) if within else "", plan.workload
        )


def apart(plan: Move) -> tuple[float, float]:
    """By how much the destination's clock is ahead, and within what that is known.

    Each host told its time between two readings of the controller's clock, the ends of its call. So however much later one was asked, the
    difference is known to within half of the two calls. Hosts that are busy with other moves take their time.
    """
    answers = (plan.there, plan.here)
    if not all("asked_at" in answer and "told_at" in answer for answer in answers):
        # The source was asked later, by up to so much.
        ahead = plan.there["host"]["clock"] - plan.here["host"]["clock"]
        return ahead + min(max(0.0, -ahead), plan.asked_within), 0.0
    there, here = (answer["host"]["clock"] - (answer["asked_at"] + answer["told_at"]) / 2 for answer in answers)
    return there - here, sum((answer["told_at"] - answer["asked_at"]) / 2 for answer in answers)


def unanswered(plan: Move) -> t.Iterator[str]:
    for name, facts in ((plan.source, plan.here), (plan.destination, plan.there)):
        for problem in facts["problems"]:
            yield "{0} could not be examined in full: {1}".format(name, problem)


def connections(plan: Move, cure: str, carried: t.Mapping[str, int] | None = None) -> t.Iterator[str]:
    """Of one that runs: what its peers outside would lose. A way out to another network is the engine's, and so are those that are carried."""
    for network in plan.container["networks"]:
        own = [address for address in (network["ip"], network["ip6"]) if address]
        number = sum(plan.container["connections"].get(address, 0) - (carried or {}).get(address, 0) for address in own)
        if number and not network["shared"]:
            yield (
                "{0} has {1} TCP {2} open over the network {3}, which is a bridge of {4} alone, so they would break: "
                "{5}, or list the check 'connections' in {6}".format(
                    plan.workload, number, "connection" if number == 1 else "connections", network["name"], plan.source, cure, IGNORE
                )
            )


@dataclass(frozen=True)
class Need:
    """Bytes that something of the move takes on a file system of a host."""

    what: str
    host: str
    place: Facts  # path, free bytes, and the device where it is known
    size: int


def space(plan: Move, needs: t.Iterable[Need]) -> t.Iterator[str]:
    places: dict[tuple[str, t.Any], list[Need]] = {}
    for need in needs:
        places.setdefault((need.host, need.place.get("device") or need.place["path"]), []).append(need)
    for (host, _device), together in places.items():
        size, place = sum(need.size for need in together), together[0].place
        if size + SPARE_DISK > place["free"]:
            yield "moving {0} needs {1} in {2} on {3} for {4}, and {5} are free there: free {6} more".format(
                plan.workload,
                format_size(size),
                place["path"],
                host,
                " and ".join(need.what for need in together),
                format_size(place["free"]),
                format_size(size + SPARE_DISK - place["free"]),
            )


def project_units(move: Move) -> t.Iterator[str]:
    """compose makes a project's containers again where it finds none, with empty volumes and the same addresses."""
    every = {each["unit"]: each["runs"] for facts in (move.members or [move.container]) for each in facts.get("project_units", [])}
    for unit, runs in every.items():
        cure = "stop and disable it, start the project by `up --detach`" if runs else "disable it with `systemctl disable {0}`".format(unit)
        yield "the systemd unit {0} on {1} has compose start the project of {2}, and would make it again there: {3}, and move it then".format(
            unit, move.source, move.workload, cure
        )
