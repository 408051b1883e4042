# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A timer of this host that backs a workload up: its units, the options of its backups, and the program that takes them."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import sys
import tempfile
import typing as t

from ansible.module_utils import basic
from ansible.module_utils.basic import AnsibleModule

from ..._core.backup_log import BackupLog
from ..._core.backups import check_repository
from ..._core.disk_store import check_name, is_elsewhere
from ..._core.runtime import HandoverError, Runtime
from ..._core.sent_code import program, sent_archive
from ..._core.step import Part
from ..._podman.backup_units import backup_units, unit_name
from ..._podman.copies.backup_taker import ARGUMENTS, NotHere
from ..._podman.volume_units import UNIT_DIRECTORY
from .backup_run import main as scheduled
from .taker import taker

SETTINGS = "/var/lib/handover/backups/schedule"
PROGRAM = "/usr/local/libexec/handover/backup.pyz"
# A name is for one backup: a second one could not have it. Containers that ran are those of a move.
OPTIONS = tuple(name for name in ARGUMENTS if name not in ("name", "ran"))


class _Look(Part):
    """The module as one that only looks."""

    check_mode = True


class BackupScheduler:
    """The timer of one workload."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module = module
        self.params = module.params
        self.workload: str = module.params["workload"]
        check_name("workload", self.workload)
        self.runtime = Runtime(module, 300)
        self.timer = unit_name(self.workload, "timer")
        self.reasons: list[str] = []

    def run(self) -> dict[str, t.Any]:
        """Brings it to the state asked for."""
        here = {"present": self._present, "absent": self._absent}[self.params["state"]]()
        return {"changed": bool(self.reasons), "reasons": self.reasons, "timer": self.timer, "next": self._next() if here else "", "here": here}

    # present

    def _present(self) -> bool:
        if not self.params["repository"] or not self.params["calendar"]:
            raise HandoverError("repository and calendar are needed for a timer: name the folder of the backups, and when they are taken, as in daily")
        check_repository(self.params["repository"])
        self._check_calendar()
        options = {name: self.params[name] for name in OPTIONS}
        with contextlib.suppress(NotHere):  # it may come to this host later
            taker(t.cast(AnsibleModule, _Look(self.module, {**options, "name": None}))).run()
        settings = os.path.join(SETTINGS, self.workload + ".json")
        profile = getattr(basic, "_ANSIBLE_PROFILE", None)
        argv = [sys.executable, PROGRAM, settings]
        folder = "" if is_elsewhere(self.params["repository"]) else self.params["repository"]
        units = backup_units(self.workload, self.params["calendar"], folder, argv, self.params["timeout"])
        self._put(PROGRAM, program(scheduled.__module__, sent_archive()), 0o644)
        self._put(settings, json.dumps({"options": options, "profile": profile}, sort_keys=True).encode(), 0o600)
        changed = [self._put(os.path.join(UNIT_DIRECTORY, name), text.encode(), 0o644) for name, text in sorted(units.items())]
        running = self._systemctl("is-enabled", accept=range(256)) == "enabled" and self._systemctl("is-active", accept=range(256)) == "active"
        if not running:
            self.reasons.append("{0} did not run".format(self.timer))
        if not self.module.check_mode and (any(changed) or not running):
            self.runtime.run([self._tool(), "daemon-reload"])
            self._systemctl("enable")
            self._systemctl("restart")
        return True

    def _check_calendar(self) -> None:
        said = self.runtime.run([self.runtime.tool("systemd-analyze", "systemd"), "calendar", "--", self.params["calendar"]], accept=range(256))
        if said.rc != 0:
            raise HandoverError(
                "calendar: '{0}' is no time that systemd understands ({1}): write it as in daily, hourly, or *-*-* 02:30, see systemd.time(7)".format(
                    self.params["calendar"], said.last_words
                )
            )

    def _put(self, path: str, content: bytes, mode: int) -> bool:
        """A file as a whole. Whether it was another."""
        try:
            with open(path, "rb") as source:
                if source.read() == content:
                    return False
            self.reasons.append("{0} was another".format(path))
        except FileNotFoundError:
            self.reasons.append("{0} was not there".format(path))
        if not self.module.check_mode:
            os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
            descriptor, new = tempfile.mkstemp(dir=os.path.dirname(path), prefix=".backup-")
            with open(descriptor, "wb") as target:
                target.write(content)
                os.fchmod(descriptor, mode)
                os.fsync(descriptor)
            os.replace(new, path)
        return True

    def _next(self) -> str:
        """When the next one begins. Nothing is set up in check mode."""
        if self.module.check_mode:
            return ""
        listed = self.runtime.run_json([self._tool(), "list-timers", "--all", "--output=json", self.timer]) or []
        return _moment(listed[0].get("next")) if listed else ""

    # absent

    def _absent(self) -> bool:
        service = unit_name(self.workload, "service")
        units = [os.path.join(UNIT_DIRECTORY, name) for name in (self.timer, service)]
        known = [path for path in units if os.path.exists(path)]
        if known:
            self.reasons.append("{0} was there".format(self.timer))
        if self.module.check_mode or not known:
            return False
        self._systemctl("disable", "--now", accept=range(256))  # of one that is half there
        for path in (*known, os.path.join(SETTINGS, self.workload + ".json")):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
        self.runtime.run([self._tool(), "daemon-reload"])
        # A failure of before is no unit's any more.
        self.runtime.run([self._tool(), "reset-failed", service], accept=range(256))
        BackupLog().forget(self.workload)
        if not os.listdir(SETTINGS):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(PROGRAM)
        return False

    def _tool(self) -> str:
        return self.runtime.tool("systemctl", "systemd")

    def _systemctl(self, verb: str, *words: str, accept: t.Container[int] = (0,)) -> str:
        return self.runtime.run([self._tool(), verb, *words, self.timer], accept=accept).stdout.strip()


def _moment(microseconds: t.Any) -> str:
    """systemd's number as a time, and in the form of the others."""
    if not isinstance(microseconds, int) or not microseconds:
        return ""
    return datetime.datetime.fromtimestamp(microseconds / 1e6, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
