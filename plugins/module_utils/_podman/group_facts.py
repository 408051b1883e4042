# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The facts about containers that move as one, from those about each."""

from __future__ import annotations

import json
import typing as t

from . import groups
from .essence import ADDED_AT_FIRST_START
from .workload import asked

Facts = t.Mapping[str, t.Any]

# Of a pod's inspect, the values that define it. The rest is of the moment, of the host, or told by its infra container.
_POD = (
    "Name", "ExitPolicy", "Labels", "CreateInfra", "SharedNamespaces", "RestartPolicy", "Hostname", "InfraConfig", "cpu_period", "cpu_quota", "cpu_shares",
    "cpuset_cpus", "cpuset_mems", "memory_limit", "memory_swap", "blkio_weight", "security_opt", "mounts", "devices", "volumes_from",
)  # fmt: skip
_INFRA_OF_THE_HOST = ("StaticIP", "StaticMAC")

# What a group has none of as a whole, and a container does: the rows of the driver's table name them.
_NONE: dict[str, t.Any] = {
    "id": "", "pid": 0, "upper_dir": "", "static_dir": "", "checkpoint_dir": "", "shm_dir": "", "cgroup": "", "network_namespace": "", "runtime": "",
    "networks": [], "ports": [], "service": {}, "health_check": {}, "log": {}, "create_command": [], "environment": [], "labels": {},
    "throttle": {"cgroup": "", "why": "it is several containers"}, "seccomp_filter": False, "criu_configuration": "", "obstacles": [], "pids": [],
    "connections": {}, "devices": [], "auto_remove": False,
}  # fmt: skip


def pod_facts(pod: Facts) -> dict[str, t.Any]:
    """A pod as it has to be on both hosts, and the command that made it."""
    infra = {key: value for key, value in (pod.get("InfraConfig") or {}).items() if key not in _INFRA_OF_THE_HOST and value}
    return {
        "name": pod["Name"],
        "id": pod["Id"],
        "infra": pod.get("InfraContainerID") or "",
        "create_command": list(pod.get("CreateCommand") or []),
        "essence": {**{key: pod.get(key) or None for key in _POD}, "InfraConfig": infra or None, "SharedNamespaces": sorted(pod.get("SharedNamespaces") or [])},
    }


def group_facts(name: str, kind: str, members: t.Sequence[dict[str, t.Any]], pods: t.Sequence[Facts], outsiders: t.Sequence[str]) -> dict[str, t.Any]:
    """The group; `members` are the facts about each in the order of their start, `outsiders` the containers that cannot be parted from it."""
    others = {**{member["id"]: member["name"] for member in members}, **groups.names_by_id((), [{**pod, **_words(pod)} for pod in pods])}
    of_pods = {pod["id"]: pod["name"] for pod in pods}
    for member in members:
        member["others"] = others
        member["pod_name"] = of_pods.get(member["pod"], "")
        member["requires"] = _required(member, others)
        if "essence" in member:
            member["essence"] = essence_of_member(member["essence"], others, member["infra"])
    mounts = {(mount["type"], mount["name"], mount["source"]): mount for member in members for mount in member.get("mounts") or []}
    running = [member["name"] for member in members if member["running"] and not member["infra"]]
    return {
        **_NONE,
        "exists": True,
        "held": any(member["held"] for member in members),
        "name": name,
        "kind": kind,
        "running": bool(running),
        "state": "running" if running else "exited",
        "running_members": running,
        "members": list(members),
        "pods": [dict(pod) for pod in pods],
        "outsiders": list(outsiders),
        "mounts": list(mounts.values()),
        "memory": sum(member.get("memory") or 0 for member in members),
        "layer": sum(member.get("layer") or 0 for member in members),
        "secrets": sorted({secret for member in members for secret in member.get("secrets") or []}),
    }


def _required(member: Facts, others: t.Mapping[str, str]) -> list[str]:
    """The other members that it requires by their names (--requires), and has nothing of."""
    named = {name for words in asked(member.get("create_command") or [], "requires") for name in words.split(",")}
    return sorted(others[each] for each in member.get("dependencies") or [] if others.get(each) in named)


def beside_facts(inspect: Facts, unit: t.Sequence[Facts], pods: t.Sequence[Facts]) -> dict[str, t.Any]:
    """What a container has to know of those that move beside it, each by itself: their names, and the pod that they are in."""
    names = {each["Id"]: each["Name"] for each in unit}
    return {
        "others": {**names, **groups.names_by_id((), [{**pod, **_words(pod)} for pod in pods])},
        "in_pods": [dict(pod) for pod in pods],
        "pod_name": pods[0]["name"] if pods else "",
        "requires": sorted(names[other] for other in inspect.get("Dependencies") or [] if other in names),
    }


def _words(pod: Facts) -> dict[str, t.Any]:
    return {"Id": pod["id"], "Name": pod["name"], "InfraContainerID": pod["infra"]}


def essence_of_member(essence: Facts, others: t.Mapping[str, str], infra: bool) -> dict[str, t.Any]:
    """A member's essence with names in place of IDs. The infra container is the pod's own: podman names it, and chooses its image and program."""
    spelled = json.loads(groups.spelled(json.dumps(essence), others))
    own = ("Name", "Image", "Command", "Config.Entrypoint", "Config.Cmd", "Config.Env", "Config.StopSignal", "Config.Labels") if infra else ()
    # A twin in a group is not readied by podman before its first start, and does not have these yet.
    spelled["Config.Env"] = [word for word in spelled.get("Config.Env") or [] if word.partition("=")[0] not in ADDED_AT_FIRST_START]
    return {key: value for key, value in spelled.items() if key not in own}
