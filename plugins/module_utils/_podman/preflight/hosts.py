# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Programs and settings that both hosts need."""

from __future__ import annotations

import typing as t

from ..._core import move_checks
from .plan import PCOPY_CURE, Check, Plan, dotted


def _runtime(plan: Plan) -> t.Iterator[str]:
    if plan.live and plan.container["runtime"] != "runc":
        yield "{0} runs under {1}, and only runc passes CRIU's hooks on: create it with `podman --runtime runc`, or use migrate_mode=offline".format(
            plan.workload, plan.container["runtime"] or "an unknown runtime"
        )
    there = plan.there["host"]["podman"]["runtime"]
    if plan.live and there and there != "runc":
        yield 'podman on {0} uses {1}: set runtime = "runc" in /etc/containers/containers.conf there, or use migrate_mode=offline'.format(
            plan.destination, there
        )


def _podman_version(plan: Plan) -> t.Iterator[str]:
    (_source, here), (_destination, there) = plan.hosts
    if here["podman"]["version"][:2] > there["podman"]["version"][:2]:
        # A twin that differs is removed again before anything is stopped.
        trial = "" if plan.live else ", or try it with handover_ignore_checks=podman_version: the container is compared before it is stopped"
        yield "podman is {0} on {1} and {2} on {3}, which is older and may not understand how the container was made: install the same version there{4}".format(
            dotted(here["podman"]["version"]), plan.source, dotted(there["podman"]["version"]), plan.destination, trial
        )


def _silence(plan: Plan) -> t.Iterator[str]:
    """Neither host may be heard under the workload's addresses while both have them."""
    if not plan.live or not plan.container["networks"]:
        return
    for name, host in plan.hosts:
        silence = host["pcopy"].get("silence")
        if silence and not silence["ok"]:
            yield "a workload's network cannot be kept silent on {0}: {1}".format(name, silence["text"])
        backend = host["podman"]["network"]
        if backend["backend"] not in ("", "netavark") or not backend["path"]:
            yield (
                "podman on {0} makes its networks with {1}, and the helper works with netavark only: "
                'set network_backend = "netavark" in containers.conf there, or use migrate_mode=offline'
            ).format(name, backend["backend"] or "an unknown program")


def _seccomp(plan: Plan) -> t.Iterator[str]:
    if plan.live and plan.container["seccomp_filter"]:
        for name, host in plan.hosts:
            if host["seccomp_filter"]:
                yield (
                    "{0} is itself a container whose system calls are filtered, so CRIU cannot lift the filter of {1} there: start {0} without one "
                    "(for systemd-nspawn, SYSTEMD_SECCOMP=0), create {1} with --security-opt seccomp=unconfined, or use migrate_mode=offline".format(
                        name, plan.workload
                    )
                )


def _action_script(plan: Plan) -> t.Iterator[str]:
    if not plan.live:
        return
    for name, host in plan.hosts:
        criu = host["criu"]
        if not criu["action_script"]:
            yield "CRIU on {0} has no action script in /etc/criu/runc.conf, so a frozen workload could not be held: {1}".format(name, PCOPY_CURE)
        elif not criu["action_script_works"]:
            yield "CRIU's action script {0} is missing on {1} or not executable: {2}".format(criu["action_script"], name, PCOPY_CURE)
    if plan.container["criu_configuration"] != "/etc/criu/runc.conf":
        yield "{0} has a CRIU configuration of its own ({1}), so the action script does not run: create it without the annotation org.criu.config".format(
            plan.workload, plan.container["criu_configuration"]
        )


CHECKS: dict[str, Check] = {
    "runtime": _runtime,
    "podman_version": _podman_version,
    "silence": _silence,
    "seccomp": _seccomp,
    "action_script": _action_script,
    "pcopy": move_checks.pcopy,
    "systemd": move_checks.systemd,
    "clock": move_checks.clock,
    "unanswered": move_checks.unanswered,
}
