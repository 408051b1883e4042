# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The timer of a container's health check, which podman makes when it starts a container, and not when it restores one.

podman has systemd run `podman healthcheck run` whenever the last run is an interval ago. The units have the container's ID as their name,
with a suffix that podman notes in its book from 5.1 on. While the checks of the start-up go on, they have another timer.
"""

from __future__ import annotations

import json
import os
import re
import typing as t
from dataclasses import dataclass

from .._core.runtime import HandoverError, Runtime
from . import book
from .podman import Podman

Document = t.Mapping[str, t.Any]

# Where podman writes results that are not to go elsewhere.
_BESIDE = ("", "local", "events_logger")
_MODE = 0o700
_MISSING = "the container has no timer for its health check"


def interval(inspect: Document, startup: bool) -> int:
    """Microseconds between two checks; 0 where podman makes no timer."""
    config = inspect.get("Config") or {}
    check = config.get("Healthcheck") or {}
    if not check.get("Test") or check["Test"] == ["NONE"] or not check.get("Interval"):
        return 0
    chosen = config.get("StartupHealthCheck") or {} if startup else check
    return int(chosen.get("Interval") or 0) // 1000


def results_file(inspect: Document) -> str:
    """Where podman keeps the state of the checks and what the last of them said."""
    elsewhere = (inspect.get("Config") or {}).get("HealthLogDestination") or ""
    if elsewhere not in _BESIDE:
        return os.path.join(elsewhere, inspect["Id"] + "-healthcheck.log")
    beside = inspect.get("PidFile") or ""
    return os.path.join(os.path.dirname(os.path.dirname(beside)), "healthcheck.log") if beside else ""


def results(inspect: Document) -> dict[str, t.Any]:
    """What the checks have found up to now; podman 4 calls it otherwise."""
    state = inspect.get("State") or {}
    return dict(state.get("Health") or state.get("Healthcheck") or {})


@dataclass(frozen=True)
class HealthTimer:
    """The timers of one container's health checks on this host."""

    runtime: Runtime
    identifier: str

    def units(self) -> list[str]:
        """Timers and services of it that systemd has, also failed ones."""
        listed = self.runtime.run([self._systemctl(), "list-units", "--all", "--plain", "--no-legend", self.identifier + "*"]).stdout
        names = [line.split()[0] for line in listed.splitlines() if line.strip()]
        ours = re.compile(r"{0}(-startup)?(-[0-9a-f]+)?\.(timer|service)".format(re.escape(self.identifier)))
        return sorted((name for name in names if ours.fullmatch(name)), key=lambda name: (not name.endswith(".timer"), name))

    def startup_passed(self, podman: Podman) -> bool:
        """Whether the checks of the start-up are over, as podman's book says, or else the timer that runs."""
        noted = book.state(podman.root(), self.identifier)
        if noted:
            return bool(noted.get("startupHCPassed"))
        return not any(name.startswith(self.identifier + "-startup") and name.endswith(".timer") for name in self.units())

    def missing(self, podman: Podman, inspect: Document) -> list[str]:
        """Why a running container needs one made, empty if it does not."""
        return [_MISSING] if self._plan(podman, inspect) else []

    def make(self, podman: Podman, inspect: Document, found: Document) -> list[str]:
        """Makes the timer that a running container lacks, and says why; the checks go on with what they have found."""
        plan = self._plan(podman, inspect)
        if plan is None:
            return []
        name, every = plan
        self._go_on(inspect, found)
        # An earlier unit of that name, which failed, would be in the way.
        self._forget([name + ".service"])
        self.runtime.run(
            [
                self.runtime.tool("systemd-run", "systemd"),
                "--quiet",
                "--unit=" + name,
                "--on-unit-inactive={0}us".format(every),
                "--timer-property=AccuracySec=1s",
                "--property=LogLevelMax=notice",
                "--property=StartLimitIntervalSec=0",
                "--setenv=PATH=" + os.environ.get("PATH", os.defpath),
                podman.path,
                "healthcheck",
                "run",
                self.identifier,
            ]
        )
        # The time to the next check is counted from the end of the last: this is the first.
        self.runtime.run([self._systemctl(), "restart", "--no-block", name + ".service"])
        if name + ".timer" not in self.units():
            raise HandoverError("systemd was given the timer {0}.timer and does not have it: see `journalctl --unit={0}.timer`".format(name))
        return [_MISSING]

    def _plan(self, podman: Podman, inspect: Document) -> tuple[str, int] | None:
        """The name of the unit that podman will look for, and the microseconds between checks; empty where there is nothing to make."""
        noted = book.state(podman.root(), self.identifier)
        startup = bool((inspect.get("Config") or {}).get("StartupHealthCheck")) and not noted.get("startupHCPassed")
        every = interval(inspect, startup)
        if not every or any(name.endswith(".timer") for name in self.units()):
            return None
        return (noted.get("hcUnitName") or self.identifier + ("-startup" if startup else ""), every)

    def _go_on(self, inspect: Document, found: Document) -> None:
        path = results_file(inspect)
        if found and path and not results(inspect).get("Log"):
            with open(path, "w", encoding="utf-8", opener=lambda name, flags: os.open(name, flags, _MODE)) as target:
                json.dump(found, target)

    def remove(self) -> None:
        """Nothing of it stays: a check that ran when the container was frozen leaves a failed service."""
        left = self.units()
        if left:
            self.runtime.run([self._systemctl(), "stop", *left], accept=(0, 5))
            self._forget(left)

    def _forget(self, names: t.Sequence[str]) -> None:
        # Of one that is not loaded systemctl says so, with status 1.
        self.runtime.run([self._systemctl(), "reset-failed", *names], accept=(0, 1))

    def _systemctl(self) -> str:
        return self.runtime.tool("systemctl", "systemd")
