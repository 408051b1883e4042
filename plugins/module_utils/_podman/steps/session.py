# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One side of a session on this host: made, begun, told its outcome, removed."""

from __future__ import annotations

import os
import re
import shutil
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ..._core.pcopy import Pcopy, PcopyError
from ..._core.runtime import HandoverError, Runtime
from ..._core.step import Step
from ..sessions import ENDED, REMOVABLE, ROOT, Sessions, begun, has_moved, moved_names, typed

_NAME = re.compile(r"^[a-z0-9][a-z0-9-]{0,63}$")
SPEC_VERSION = 1


def _run(plan: t.Mapping[str, t.Any]) -> tuple[t.Any, ...]:
    """The process of Ansible that a plan is of; empty where the plan does not say."""
    by = plan.get("by") or {}
    return tuple(by.get(key) for key in ("on", "boot", "pid", "began")) if by else ()


def _being_moved(plan: t.Mapping[str, t.Any], identifier: str) -> str:
    to, by = plan.get("destination"), plan.get("by") or {}
    return "{0} is being moved already{1}{2}, by session {3}: wait until that has ended".format(
        plan.get("workload"), " to {0}".format(to) if to else "", " by {0} on {1} since {2}".format(by["who"], by["on"], by["since"]) if by else "", identifier
    )


class OneSession:
    """One side of a session on this host."""

    def __init__(self, module: AnsibleModule) -> None:
        self.params = module.params
        self.check_mode = module.check_mode
        name = module.params["session"]
        if not _NAME.match(name):
            raise HandoverError("session: '{0}' is not a session's name: use up to 64 small letters, digits and dashes".format(name))
        self.runtime = Runtime(module, module.params["timeout"])
        self.sessions = Sessions(Pcopy(self.runtime), module.params["sessions"])
        self.session = self.sessions.session(name)
        self.reasons: list[str] = []

    def run(self) -> dict[str, t.Any]:
        """Brings it to the state asked for."""
        result = getattr(self, "_" + self.params["state"])()
        return dict(result, changed=bool(self.reasons), reasons=self.reasons)

    def _identity(self) -> dict[str, t.Any]:
        if not self.session.has_identity():
            self.reasons.append("session {0} has no key on this host".format(self.session.identifier))
            if self.check_mode:
                return {}
        plan = self.params["plan"]
        # Before anything is made that would have to be removed.
        if plan is not None and self.session.plan() != plan:
            self.reasons.append("session {0} has another plan on this host, or none".format(self.session.identifier))
            if not self.check_mode:
                self._plan(plan)
        return {"fingerprint": self.session.fingerprint(), "plan": plan}

    def _plan(self, plan: dict[str, t.Any]) -> None:
        """Writes the plan down. Of two runs that were let in at the same moment, the second gives way before it has made anything."""
        before = self.session.plan()
        if before and _run(before) and _run(plan) and _run(before) != _run(plan):
            raise HandoverError(_being_moved(before, self.session.identifier))
        fresh = not self.session.exists
        self.session.write_plan(plan)
        mine = (self.session.planned_at(), self.session.identifier)
        for other in self.sessions.statuses():
            same = other["id"] != self.session.identifier and bool(moved_names(other) & moved_names(plan)) and other["role"] == plan.get("role")
            earlier = self.sessions.session(other["id"])
            if fresh and same and plan.get("workload") and not other["ended"] and (earlier.planned_at(), other["id"]) < mine and earlier.planned_at():
                shutil.rmtree(self.session.directory)
                raise HandoverError(_being_moved(other.get("plan") or {}, other["id"]))

    def _started(self) -> dict[str, t.Any]:
        role = self.params["role"]
        spec = dict(typed(self.params["spec"]), version=SPEC_VERSION, id=self.session.identifier, role=role)
        if self.session.specified:
            status = self.session.status()
            if self.session.spec() != spec:
                raise HandoverError(
                    "session {0} exists on this host and was told something else: end it with state=absent, or choose another name".format(
                        self.session.identifier
                    )
                )
            if status["running"]:
                return {"status": status}
            if status["state"] != "prepare":
                raise HandoverError(
                    "session {0} has come to the state {1} on this host and cannot begin again: end it with state=absent, or choose another name".format(
                        self.session.identifier, status["state"]
                    )
                )
        self.reasons.append("session {0} does not run on this host".format(self.session.identifier))
        if self.check_mode:
            return {"status": None}
        for volume in spec.get("volumes") or []:
            if volume.get("image"):
                _make_folder(os.path.dirname(volume["image"]))
        self.session.write_spec(spec)
        self.session.start(role)
        try:
            return {"status": self.session.wait([begun(role, spec)], self.runtime.remaining() - 5)}
        except PcopyError as exc:
            # The session's own error says more than a failed wait.
            reason = self.session.status()["error"] or str(exc)
            raise HandoverError("session {0} could not begin on this host: {1}".format(self.session.identifier, reason)) from exc

    def _recovered(self) -> dict[str, t.Any]:
        if not self.session.specified:
            return {"status": None}
        status = self.session.status()
        if status["running"] or status["ended"]:
            return {"status": status}
        if self.check_mode:
            self.reasons.append("session {0} is {1} and has no process".format(self.session.identifier, status["state"]))
            return {"status": status}
        recovered = self.session.recover(self.runtime.remaining() - 5)
        if recovered["state"] != status["state"]:
            self.reasons.append("session {0} was {1} and had no process".format(self.session.identifier, status["state"]))
        return {"status": recovered}

    def _resolved(self) -> dict[str, t.Any]:
        if not self.session.specified:
            return {"status": None}
        status = self.session.status()
        if self.session.untold(status):
            self.reasons.append("session {0} did not learn what became of {1}".format(self.session.identifier, status["workload"]))
            if not self.check_mode:
                status = self.session.resolve(self.params["outcome"], self.runtime.remaining() - 5)
        if status["role"] == "destination" and status["running"] and not status["ended"] and not self.check_mode:
            status = self.session.wait([ENDED], self.runtime.remaining() - 5)
        return {"status": status}

    def _removable(self) -> dict[str, t.Any]:
        known = self.session.known()
        if known is None:
            raise HandoverError(
                "session {0} is not on record on this host any more, so nothing that it may have left is removed: another run has brought the move to its "
                "end or taken it back".format(self.session.identifier)
            )
        if known["state"] not in REMOVABLE[self.params["role"]]:
            raise HandoverError(
                "session {0} is {1} on this host, so {2} here is not removed: it may be the only one".format(
                    self.session.identifier, known["state"], known["workload"]
                )
            )
        return {"status": known}

    def _withdrawn(self) -> dict[str, t.Any]:
        planned = self.session.plan() is not None
        return dict(self._ended(taken_back=True), planned=planned)

    def _absent(self) -> dict[str, t.Any]:
        return self._ended(taken_back=False)

    def _ended(self, taken_back: bool) -> dict[str, t.Any]:
        if not self.session.exists:
            return {"status": None}
        self.reasons.append("session {0} exists on this host".format(self.session.identifier))
        if self.check_mode:
            return {"status": self.session.status() if self.session.specified else None}
        status = None
        if self.session.specified:
            status = self.session.status()
            if not status["ended"]:
                status = self.session.abort(self.runtime.remaining() - 5)
            if not status["ended"]:
                raise HandoverError(
                    "session {0} is {1} and cannot be given up until its outcome is known: {2}".format(
                        self.session.identifier, status["state"], status["error"] or "look at the other side"
                    )
                )
            if taken_back and has_moved(status):
                raise HandoverError(
                    "session {0} is {1} on this host and is not taken back: {2} has moved".format(
                        self.session.identifier, status["state"], status["workload"]
                    )
                )
        events = self.session.events()
        # A twin does not start as long as the plan is there.
        self.session.remove(self.params["role"], keep_plan=taken_back and self.params["role"] == "destination")
        return {"status": status, "events": events}


def _make_folder(path: str) -> None:
    try:
        os.makedirs(path, mode=0o700, exist_ok=True)
    except OSError as exc:
        raise HandoverError("the folder {0} for the images of volumes cannot be made on this host: {1}".format(path, exc.strerror)) from exc


STEP = Step(
    arguments={
        "session": {"type": "str", "required": True},
        "state": {"type": "str", "choices": ["identity", "started", "recovered", "resolved", "withdrawn", "removable", "absent"], "required": True},
        "role": {"type": "str", "choices": ["source", "destination"]},
        "spec": {"type": "dict"},
        "plan": {"type": "dict"},
        "outcome": {"type": "str", "choices": ["resumed", "refused", "fenced"]},
        "sessions": {"type": "path", "default": ROOT},
        "timeout": {"type": "int", "default": 60},
    },
    required_if=[
        ("state", "started", ["role", "spec"]),
        ("state", "resolved", ["outcome"]),
        *(("state", state, ["role"]) for state in ("withdrawn", "removable", "absent")),
    ],
    run=lambda module: OneSession(module).run(),
)
