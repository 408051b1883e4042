# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Several containers that move as one: what is in the way of all of them."""

from __future__ import annotations

import typing as t

from ..groups import JOINT, POD
from . import wave
from .container import way_to_move
from .plan import STOPPED, Check, Plan

_WHAT = {POD: "a pod", "project": "a project of compose"}
_MOVABLE = ("running", *STOPPED)


def _incomplete(plan: Plan) -> t.Iterator[str]:
    outsiders = plan.container["outsiders"]
    if outsiders:
        everybody = sorted([*plan.names, *outsiders])
        yield "{0} on {1} cannot be parted, and {2} is only a part of them: move them as one with -e handover_workload={3} -e migrate_mode=offline".format(
            ", ".join(everybody), plan.source, plan.workload, JOINT.join(everybody)
        )


# The namespaces that the members of a pod may share when they are restored: the network's is the infra container's, and CRIU joins the others.
_JOINED = frozenset(("ipc", "net", "uts"))


def _live(plan: Plan) -> t.Iterator[str]:
    why = next(_stopped_for_it(plan), None) if plan.live else None
    if why is not None and plan.container.get("as_wave"):
        yield "{0} is a project of compose ({1}), whose containers move live as a wave: {2}, or move it with -e migrate_mode=offline".format(
            plan.workload, ", ".join(plan.names), wave.way(plan.container["as_wave"], plan.destination)
        )
    elif why is not None:
        yield "{0} is {1} ({2}), which moves as one and is stopped for it{3}: move it with -e migrate_mode=offline".format(
            plan.workload, _WHAT.get(plan.container["kind"], "several containers"), ", ".join(plan.names), why
        )


def _stopped_for_it(plan: Plan) -> t.Iterator[str]:
    """Why a group cannot move live, each as the end of a sentence."""
    service = plan.container.get("service")
    if service and not (service["pid_file"] and service["pod_id_file"]):
        yield ", as its unit {0} names no file by which it could find the pod that has come (PIDFile=, --pod-id-file)".format(service["unit"])
    pods = plan.container["pods"]
    members = [member for member in plan.members if not member["infra"]]
    if plan.container["kind"] != POD or len(pods) != 1 or not all(member["pod_name"] == pods[0]["name"] for member in members):
        yield ""
        return
    running = [member for member in members if member["running"]]
    if not running:
        yield ", as none of its members runs"
    infra = next((member for member in plan.members if member["infra"]), None)
    if infra is None or not infra["running"]:
        yield ", as no infra container of it runs that would hold its network"
        return
    shared = set(pods[0]["essence"]["SharedNamespaces"])
    if "net" not in shared or infra["network_mode"] == "host":
        yield ", as its members have no network in common that is theirs alone"
    if shared - _JOINED:
        yield ", as its members share a namespace that CRIU cannot restore them into ({0})".format(", ".join(sorted(shared - _JOINED)))
    if not plan.there["host"]["podman"].get("sqlite", True):
        yield from _by_the_book(plan, pods[0], running)
    for member in running:
        others = {each["id"] for each in members if each["name"] in member["requires"]}
        if set(member["dependencies"]) - {infra["id"]} - others:
            yield ", as {0} has a namespace or volumes of another member, and podman readies it only beside that".format(member["name"])
        if not member["cgroup"]:
            yield ", as {0} has no cgroup of the second version of its own on {1}".format(member["name"], plan.source)


def _by_the_book(plan: Plan, pod: t.Mapping[str, t.Any], running: t.Sequence[t.Mapping[str, t.Any]]) -> t.Iterator[str]:
    """What podman's book has to say otherwise until the members run there."""
    elsewhere = "and podman on {0} keeps its book in another database than SQLite".format(plan.destination)
    if pod["essence"].get("ExitPolicy") == "stop":
        yield ", as it ends with the last of its members (--exit-policy=stop), {0}".format(elsewhere)
    for member in running:
        if member["requires"]:
            yield ", as {0} requires another member, {1}".format(member["name"], elsewhere)


def _empty(plan: Plan) -> t.Iterator[str]:
    if not plan.names:
        yield "the pod {0} on {1} has no members: make it on {2} with the same command, as nothing of it would move".format(
            plan.workload, plan.source, plan.destination
        )


def _why_not(plan: Plan) -> t.Iterator[str]:
    """Why several containers do not move at all, in one sentence."""
    if plan.members:
        # One is enough, and the first says most.
        yield from [*_empty(plan), *_incomplete(plan), *_live(plan)][:1]


def _names_taken(plan: Plan) -> t.Iterator[str]:
    listed = plan.there["host"]["podman"]["containers"]
    taken = sorted(each["name"] for each in listed if each["name"] in plan.names)
    pods = sorted({each["pod"] for each in listed if each.get("pod")} & {pod["name"] for pod in plan.container.get("pods", [])})
    if taken:
        yield "{0} has containers named {1} already, of which {2} has its own: remove them there, or rename them".format(
            plan.destination, ", ".join(taken), plan.workload
        )
    if pods and not taken:
        yield "{0} has a pod named {1} already: remove it there, or rename it".format(plan.destination, ", ".join(pods))


def _pods(plan: Plan) -> t.Iterator[str]:
    for pod in plan.container.get("pods", []):
        if pod.get("cannot_recreate"):
            yield "the pod {0} cannot be made again on {1}: {2}: make it with podman pod create".format(pod["name"], plan.destination, pod["cannot_recreate"])
        if pod["infra"] and not plan.there["host"]["podman"].get("catatonit", True) and not any("--infra-image" in word for word in pod["create_command"]):
            yield "podman on {0} has no catatonit, which is in the infra container of the pod {1}: install the package catatonit there".format(
                plan.destination, pod["name"]
            )


def _units(plan: Plan) -> t.Iterator[str]:
    started = sorted({member["service"]["unit"] for member in plan.members if member.get("service")})
    service = plan.container.get("service") if plan.members else None
    if service:
        for why in service["cannot"]:
            yield "the systemd unit {0} of {1} on {2} {3}".format(service["unit"], plan.workload, plan.source, why)
    elif started:
        yield "members of {0} are started by units of systemd on {1} ({2}), and only those of a pod's quadlet move together: make them without units".format(
            plan.workload, plan.source, ", ".join(started)
        )


def _states(plan: Plan) -> t.Iterator[str]:
    for member in plan.members:
        if member.get("state") not in _MOVABLE:
            way = way_to_move(member.get("state", ""), member["name"])
            yield "{0} of {1} is {2} on {3}: {4}".format(member["name"], plan.workload, member.get("state"), plan.source, way)


def _common_ipc(plan: Plan) -> t.Iterator[str]:
    shared = [pod for pod in plan.container.get("pods", []) if "ipc" in pod["essence"]["SharedNamespaces"]]
    if plan.live and shared and plan.container.get("common_ipc"):
        yield "{0} has {1} in the IPC namespace that its members share, which CRIU does not restore: {2}, or use migrate_mode=offline".format(
            plan.workload, ", ".join(plan.container["common_ipc"]), "make the pod with --share=net,uts, where each member has its own"
        )


BASICS: dict[str, Check] = {"group": _why_not}
# Of a container alone none has anything to say.
CHECKS: dict[str, Check] = {"group_names": _names_taken, "group_pods": _pods, "group_units": _units, "group_states": _states, "group_ipc": _common_ipc}
