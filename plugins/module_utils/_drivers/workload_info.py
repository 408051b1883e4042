# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A workload and its host, by the driver that runs it.

The other drivers are imported when they are asked for: Python compiles anew in each call all that Ansible sends and a module imports.
"""

from __future__ import annotations

import typing as t

from ansible.module_utils.basic import AnsibleModule

from .._core.runtime import HandoverError, Runtime
from .._core.step import Part, Result, Step
from .._podman import groups
from .._podman.bind_facts import of_mount
from .._podman.host_offer import HostOffer
from .._podman.podman import Podman
from .._podman.steps import workload_info as podman


def _docker(module: AnsibleModule) -> Result:
    """A container of Docker's. The part of the host that is no engine's is asked for as for any other."""
    from .._docker.look import Look

    runtime = Runtime(module, module.params["timeout"])
    look = Look(runtime, module.params["workload"])
    offer = HostOffer(runtime, Podman(runtime), module.params, look.ask)
    if module.params["brief"]:
        return {"changed": False, "workload": look.brief(), "sessions": offer.sessions(), "problems": look.problems}
    # First: a network that another move makes meanwhile is known before its addresses are.
    host = offer.host()
    workload, docker = _of_docker(runtime, look)
    if module.params["disks"]:
        from . import docker_disks

        names = groups.names(groups.resolve(look.listed(), look.word)[1]) if not workload["exists"] else []
        members = [_of_docker(runtime, look.of(name))[0] for name in names]
        workload = docker_disks.of_group(look.word, list(map(docker_disks.with_disks, members))) if members else docker_disks.with_disks(workload)
    return {"changed": False, "workload": workload, "host": {**host, "docker": docker}, "problems": look.problems}


def _of_docker(runtime: Runtime, look: t.Any) -> tuple[dict[str, t.Any], dict[str, t.Any]]:
    """A container and what Docker offers, with the facts that the kernel has."""
    from . import docker_live

    workload, docker = look.whole()
    workload.update(docker_live.STILL)
    for mount in workload.get("mounts", []):
        if mount["type"] == "bind":
            mount.update(of_mount(mount["source"], mount["destination"], workload["pid"]))
    if workload["running"] and "inspect" in workload:
        workload.update(look.ask(lambda: docker_live.running(runtime, workload, workload["inspect"]), {}))
    return workload, docker


def _openvz(module: AnsibleModule) -> Result:
    """A container of OpenVZ's."""
    from .._openvz.driver import look as openvz

    runtime = Runtime(module, module.params["timeout"])
    look = openvz.Look(runtime, module.params["workload"])
    offer = HostOffer(runtime, Podman(runtime), module.params, look.ask)
    if module.params["brief"]:
        return {"changed": False, "workload": look.brief(), "sessions": offer.sessions(), "problems": look.problems}
    workload, found = look.whole()
    return {"changed": False, "workload": workload, "host": {**offer.host(), "openvz": found}, "problems": look.problems}


LOOKS: t.Mapping[str, t.Callable[[AnsibleModule], Result]] = {
    "docker": _docker,
    "openvz": _openvz,
    "podman": podman.STEP.run,
}


# Of a guest, where libvirt does not tell.
UNKNOWN = "unknown"


def _look(module: AnsibleModule) -> Result:
    """The workload, and if asked the guest of that name."""
    found = LOOKS[module.params["driver"]](module)
    asked = module.params["whole"] == "always" or module.params["whole"] == "here" and found["workload"]["exists"]
    if module.params["brief"] and asked and not _in_a_move(module.params["workload"], found):
        found = _whole(module, found)
    return with_guest(Runtime(module, module.params["timeout"]), module.params["workload"], found) if module.params["guests"] else found


def _in_a_move(name: str, brief: Result) -> bool:
    """Whether a move has it, or had: podman may wait for half a minute then, and the preflight asks anew in any case."""
    names = {name, brief["workload"]["name"]}
    return brief["workload"]["held"] or any(names & {session["workload"], *session["members"]} for session in brief["sessions"])


def _whole(module: AnsibleModule, brief: Result) -> Result:
    """The whole answer, with all that the brief one has beside it. What it fails for is a problem: the brief answer holds without it."""
    try:
        found = LOOKS[module.params["driver"]](t.cast(AnsibleModule, Part(module, {**module.params, "brief": False})))
    except Exception as exc:  # pylint: disable=broad-exception-caught
        # The brief answer holds without it, and what goes on with an earlier move needs that: a task may end while it is looked at.
        why = str(exc) if isinstance(exc, HandoverError) else "{0}: {1}".format(type(exc).__name__, exc)
        return {**brief, "problems": [*brief["problems"], why]}
    return {**brief, **found, "problems": [*brief["problems"], *found["problems"]]}


def with_guest(runtime: Runtime, name: str, found: Result) -> Result:
    """A host whose libvirt does not tell may have the guest: that is a problem, and no answer."""
    from .._kvm.guests import state_of, unfinished

    try:
        state = state_of(runtime, name)
    except HandoverError as exc:
        return {**found, "guest": {"exists": False, "state": UNKNOWN}, "problems": [*(found.get("problems") or []), str(exc)]}
    moves = [move for move in unfinished([name] if state else []) if move["workload"] == name]
    return {**found, "guest": {"exists": bool(state), "state": state}, "sessions": [*(found.get("sessions") or []), *moves]}


STEP = Step(
    arguments={
        **podman.STEP.arguments,
        "driver": {"type": "str", "choices": sorted(LOOKS), "default": "podman"},
        "guests": {"type": "bool", "default": False},
        "disks": {"type": "bool", "default": False},
        "whole": {"type": "str", "choices": ["never", "here", "always"], "default": "never"},
    },
    run=_look,
)
