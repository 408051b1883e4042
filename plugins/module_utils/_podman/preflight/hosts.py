# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Programs and settings that both hosts need."""

from __future__ import annotations

import typing as t

from ..._core.pcopy import INTERFACE
from .plan import PCOPY_CURE, Check, Plan, dotted

SYSTEMD_SINCE = 240

# Workloads keep time by the wall clock too: leases, certificates, tokens.
CLOCK_SECONDS = 30.0


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


def _pcopy(plan: Plan) -> t.Iterator[str]:
    (_source, here), (_destination, there) = plan.hosts
    for name, host in plan.hosts:
        if not host["pcopy"]["installed"]:
            yield "the helper pcopy is missing on {0}: {1}".format(name, PCOPY_CURE)
        elif host["pcopy"].get("interface", 0) < INTERFACE:
            yield "pcopy on {0} is older than this collection, and does not know all that is asked of it: {1}".format(name, PCOPY_CURE)
    if here["pcopy"]["installed"] and there["pcopy"]["installed"] and here["pcopy"]["protocol"] != there["pcopy"]["protocol"]:
        yield "pcopy speaks protocol {0} on {1} and {2} on {3}: apply the role livefleet.handover.pcopy to both".format(
            here["pcopy"]["protocol"], plan.source, there["pcopy"]["protocol"], plan.destination
        )
    elif here["pcopy"]["installed"] and there["pcopy"]["installed"] and plan.live and plan.container["running"]:
        needs = here["pcopy"].get("needs", {})
        words = [*needs.get("live", []), *(needs.get("lazy_pages", []) if plan.lazy_pages else [])]
        missing = [word for word in words if word not in there["pcopy"].get("can", [])]
        if missing:
            yield "pcopy on {0} is older than on {1}, and cannot take all that it would send ({2}): apply the role livefleet.handover.pcopy to both".format(
                plan.destination, plan.source, ", ".join(missing)
            )


def _systemd(plan: Plan) -> t.Iterator[str]:
    for name, host in plan.hosts:
        if not host["systemd"]:
            yield "{0} does not run systemd, which runs the sessions: choose a host that does".format(name)
        elif host["systemd"][0] < SYSTEMD_SINCE:
            yield "systemd is {0} on {1}, and {2} or later is needed: update it".format(host["systemd"][0], name, SYSTEMD_SINCE)


def _clock(plan: Plan) -> t.Iterator[str]:
    # The source was asked later, by up to so much: hosts that are busy with other moves take their time.
    ahead = plan.there["host"]["clock"] - plan.here["host"]["clock"]
    ahead += min(max(0.0, -ahead), plan.asked_within)
    if abs(ahead) > CLOCK_SECONDS:
        yield "the clocks of {0} and {1} are about {2:.0f} s apart, which {3} would see as a jump: set both by NTP".format(
            plan.source, plan.destination, abs(ahead), plan.workload
        )


def _unanswered(plan: Plan) -> t.Iterator[str]:
    for name, facts in ((plan.source, plan.here), (plan.destination, plan.there)):
        for problem in facts["problems"]:
            yield "{0} could not be examined in full: {1}".format(name, problem)


CHECKS: dict[str, Check] = {
    "runtime": _runtime,
    "podman_version": _podman_version,
    "silence": _silence,
    "seccomp": _seccomp,
    "action_script": _action_script,
    "pcopy": _pcopy,
    "systemd": _systemd,
    "clock": _clock,
    "unanswered": _unanswered,
}
