# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A pod that a quadlet makes (`.pod`), with members whose quadlets say Pod=: the units of all of them are one service of the workload.

The pod's unit starts and stops its members' units, and each start makes the pod and its containers anew. Offline such a pod moves by its units: they stop
it on the source, and start it on the destination. Live each unit takes over what has come: the pod's first, since its members' are bound to it.
"""

from __future__ import annotations

import os
import re
import typing as t

from .._core import units
from .._core.runtime import HandoverError, Runtime
from . import service as service_of, service_files as files_of, service_guard as guard_of, service_notify
from .service_move import Unit
from .workload import find

Document = t.Mapping[str, t.Any]

_POD_ID_FILE = re.compile(r"--pod-id-file[= ](/\S+)")


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
    found = described(unit, shown, files_of.Reader(shown), services, any(member["running"] for member in members))
    return {**found, "pod": members[0]["pod_name"]}


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
        "adoption": service_of.POD,
        "active": shown.get("ActiveState") in ("active", "reloading"),
        "enabled": shown.get("UnitFileState") or "disabled",
        "slice": shown.get("Slice") or "system.slice",
        "id": "",
        # Where the unit finds the pod that it has started, and the process that watches over its infra container.
        "pod_id_file": next(iter(_POD_ID_FILE.findall(shown.get("ExecStart") or "")), ""),
        "pid_file": shown.get("PIDFile") or "",
        "auto_remove": any(service["auto_remove"] for service in services),
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


class PodUnit(Unit):
    """The pod's own unit on this host."""

    def settle(self, twin: Document | None, start: bool) -> None:
        """The unit is here for good, and has the pod; the twin is its infra container."""
        running = bool(((twin or {}).get("State") or {}).get("Running"))
        if running and not self._runs():
            self.reasons.append("{0} has not taken its pod over".format(self.name))
            if not self.check:
                self._take_over(twin or {})
        super().settle(None, start)

    def _take_over(self, infra: Document) -> None:
        """systemd starts the unit with another command, and finds the pod that runs already. What the unit stops or removes later is that."""
        conmon = int(infra["State"].get("ConmonPid") or 0)
        files_of.write_text(self.service["pod_id_file"], infra["Pod"].encode())
        files_of.write_text(self.service["pid_file"], "{0}\n".format(conmon).encode())
        nothing = guard_of.takes_over(self.runtime.tool("true", "coreutils"))
        guard_of.add({guard_of.drop_in(guard_of.PASSING, self.name, guard_of.HOLD): nothing})
        for document in self.service["files"]:
            if not os.path.lexists(document["path"]):
                files_of.write(document, files_of.place_until_settled(document["path"], self.service["kind"]), "", "")
        self.systemctl("daemon-reload")
        self.systemctl("reset-failed", self.name, accept=range(256))
        self.systemctl("start", self.name)
        shown = self.shown()
        if shown.get("MainPID") != str(conmon):
            raise HandoverError("systemd has not taken process {0} for the main one of {1}: see `systemctl status {1}`".format(conmon, self.name))
        try:
            service_notify.put_into(service_of.own_folder(shown["ControlGroup"]), conmon)
        except OSError as exc:
            raise HandoverError(
                "process {0}, the main one of {1}, is not in the cgroup of that and could end with the login that it was started in ({2}): "
                "`systemctl restart {1}` starts the pod anew under its unit".format(conmon, self.name, exc)
            ) from exc


class PodUnits:
    """The units of a pod on this host. Where one of them fails, the step is done again, and then does what is missing."""

    def __init__(self, runtime: Runtime, service: Document, check: bool = False) -> None:
        self.pod = PodUnit(runtime, service, check)
        self.members = [Unit(runtime, part, check) for part in service["parts"]]
        self.name = self.pod.name

    @property
    def reasons(self) -> list[str]:
        """Why something was changed, of all of them."""
        return [reason for unit in (self.pod, *self.members) for reason in unit.reasons]

    # On the source

    def keep(self, whether: bool) -> None:
        """Has podman dump members that it removes by itself, or be as before."""
        for unit in self.members:
            unit.keep(whether)

    def hold(self, session: str, live: bool) -> None:
        """From now on none of them starts anything without the session's leave."""
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

    def prepare(self, session: str, live: bool, running: bool, twin: Document) -> dict[str, str]:
        """All is here that they need, and nothing that could start them. The members' quadlets are read beside the pod's.

        Returns by container the folders of the cgroups that the members come into.
        """
        documents = [document for unit in (self.pod, *self.members) for document in unit.service["files"]]
        self.pod.prepare(session, live, running, twin)
        groups = {}
        for unit in self.members:
            # One that does not run has nothing to be restored.
            comes = running and (unit.service["active"] or not live)
            groups[unit.service["container"]] = unit.prepare(session, live and comes, comes, self.twin_of(unit), documents)
        return {name: folder for name, folder in groups.items() if folder}

    def twin_of(self, unit: Unit) -> dict[str, str]:
        """The member that the unit has here."""
        listed = find(unit.podman.containers(), unit.service["container"])
        if listed is None:
            if unit.check:
                return {"id": "", "oci_config": ""}
            raise HandoverError("there is no container named {0} on this host that {1} could have".format(unit.service["container"], unit.name))
        return {"id": listed["Id"], "oci_config": unit.podman.inspect(listed["Id"]).get("OCIConfigPath") or ""}

    def withdraw(self) -> None:
        """Nothing of them is left here."""
        for unit in (*self.members, self.pod):
            unit.withdraw()

    def settle(self, _twin: Document | None, start: bool) -> None:
        """They are here for good, and have the pod that has come or that they have started. The members' are bound to the pod's."""
        for unit in (self.pod, *self.members):
            listed = self._infra() if unit is self.pod else find(unit.podman.containers(), unit.service["container"])
            unit.settle(unit.podman.inspect(listed["Id"]) if listed else None, start)

    def _infra(self) -> Document | None:
        pod = self.pod.service.get("pod")
        return next((each for each in self.pod.podman.containers() if each.get("IsInfra") and pod and each.get("PodName") == pod), None)
