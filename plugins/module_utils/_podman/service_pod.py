# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A pod that a quadlet makes (`.pod`), with members whose quadlets say Pod=: the units of all of them are one service of the workload.

The pod's unit starts and stops its members' units. Each start makes the pod and its containers anew, so such a pod moves by its units: they stop it on
the source, and start it on the destination.
"""

from __future__ import annotations

import typing as t

from .._core import units
from .._core.runtime import HandoverError, Runtime
from . import service as service_of, service_files as files_of
from .service_move import Unit
from .workload import find

Document = t.Mapping[str, t.Any]


def facts(runtime: Runtime, members: t.Sequence[Document]) -> dict[str, t.Any]:
    """The unit of a pod with those of its members; empty where no quadlet makes it.

    Members are the facts about each, without the infra container, which the pod's unit makes.
    """
    services = [dict(member.get("service") or {}, container=member["name"]) for member in members]
    pods = {service.get("in_pod") or "" for service in services}
    if not services or len(pods) != 1 or "" in pods:
        return {}
    (unit,) = pods
    shown = units.show(runtime, unit)
    return described(unit, shown, files_of.Reader(shown), services, any(member["running"] for member in members))


def described(unit: str, shown: Document, read: files_of.Reader, services: t.Sequence[Document], running: bool) -> dict[str, t.Any]:
    """The unit in the words of this collection, with those of its members as its parts."""
    theirs = [service["unit"] for service in services]
    cannot = list(read.problems)
    if shown.get("ActiveState") not in ("active", "reloading") and running:
        cannot.append("is {0} though members of its pod run: start them by it, with `systemctl restart {1}`".format(shown.get("ActiveState"), unit))
    cannot += service_of.common_obstacles([unit], shown)
    cannot += service_of.others(shown, [*read.companions, *theirs], read.explained | set(theirs))
    cannot += ["does not start {0}, whose quadlet says Pod=: run `systemctl daemon-reload`".format(name) for name in theirs if not _wanted(shown, name)]
    return {
        "unit": unit,
        "kind": read.kind,
        "adoption": service_of.START,
        "active": shown.get("ActiveState") in ("active", "reloading"),
        "enabled": shown.get("UnitFileState") or "disabled",
        "slice": shown.get("Slice") or "system.slice",
        "id": "",
        "auto_remove": False,
        "made_by_unit": True,
        "split": False,
        "cidfile": "",
        "companions": read.companions,
        "files": read.documents,
        "cannot": cannot,
        "parts": list(services),
        # The pod's unit is up before those that it starts: one that fails is to be heard of.
        "starts": [unit, *(service["unit"] for service in services if service["active"])],
    }


def _wanted(shown: Document, name: str) -> bool:
    return name in (shown.get("Wants") or name).split()


class PodUnits:
    """The units of a pod on this host. Where one of them fails, the step is done again, and then does what is missing."""

    def __init__(self, runtime: Runtime, service: Document, check: bool = False) -> None:
        self.pod = Unit(runtime, service, check)
        self.members = [Unit(runtime, part, check) for part in service["parts"]]
        self.name = self.pod.name

    @property
    def reasons(self) -> list[str]:
        """Why something was changed, of all of them."""
        return [reason for unit in (self.pod, *self.members) for reason in unit.reasons]

    # On the source

    def keep(self, _whether: bool) -> None:
        """None of them is dumped."""

    def hold(self, session: str, live: bool) -> None:
        """From now on none of them starts anything without the session's leave."""
        if live:
            raise HandoverError("{0} is the unit of a pod, which moves with migrate_mode=offline".format(self.name))
        for unit in (self.pod, *self.members):
            unit.hold(session, live)

    def free(self, start: bool) -> None:
        """They are as they were. The pod's starts its members'."""
        for unit in (*self.members, self.pod):
            unit.free(False)
        for unit in (self.pod, *self.members) if start else ():
            unit.free(True)

    def put_aside(self) -> None:
        """None of them is there any more; the pod's is the last that could have started the others."""
        for unit in (self.pod, *self.members):
            unit.put_aside()

    # On the destination

    def prepare(self, session: str, live: bool, running: bool, twin: Document) -> str:
        """All is here that they need, and nothing that could start them. The members' quadlets are read beside the pod's."""
        documents = [document for unit in (self.pod, *self.members) for document in unit.service["files"]]
        self.pod.prepare(session, live, running, twin)
        for unit in self.members:
            unit.prepare(session, live, running, self.twin_of(unit), documents)
        return ""

    def twin_of(self, unit: Unit) -> dict[str, str]:
        """The member that the unit has here."""
        listed = find(unit.podman.containers(), unit.service["container"])
        if listed is None and not unit.check:
            raise HandoverError("there is no container named {0} on this host that {1} could have".format(unit.service["container"], unit.name))
        return {"id": (listed or {}).get("Id") or "", "oci_config": ""}

    def withdraw(self) -> None:
        """Nothing of them is left here."""
        for unit in (*self.members, self.pod):
            unit.withdraw()

    def settle(self, _twin: Document | None, start: bool) -> None:
        """They are here for good, and have the pod that they have started."""
        for unit in (self.pod, *self.members):
            listed = find(unit.podman.containers(), unit.service.get("container") or "")
            unit.settle(unit.podman.inspect(listed["Id"]) if listed else None, start)
