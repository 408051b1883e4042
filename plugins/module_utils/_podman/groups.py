# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Containers that move as one: a pod, a project of compose, or several that need one another.

A group moves in one session. So it has one journal and one release: at no time does one member belong to this host and another to that one.
Pure functions over podman's list of containers, and over their inspects.
"""

from __future__ import annotations

import typing as t

from .workload import find, name_of

Document = t.Mapping[str, t.Any]

POD, PROJECT, TOGETHER = "pod", "project", "together"
# Between the names of containers that are named together; a container's name has none of it.
JOINT = "+"
# The namespaces that one container can have of another.
_MODES = ("NetworkMode", "IpcMode", "PidMode", "UTSMode")
# The labels by which podman-compose knows its containers.
PROJECTS = ("io.podman.compose.project", "com.docker.compose.project")


def project_of(listed: Document) -> str:
    """The project of compose that a container is of."""
    labels = listed.get("Labels") or {}
    return next((labels[label] for label in PROJECTS if labels.get(label)), "")


def resolve(containers: t.Sequence[Document], word: str) -> tuple[str, list[Document]]:
    """The kind of group that a word names, and its containers in the list; none where it names no group."""
    if not word:  # as a container without a pod has it
        return "", []
    pod = [each for each in containers if each.get("PodName") == word]
    if pod:
        return POD, pod
    project = [each for each in containers if project_of(each) == word]
    if project:
        return PROJECT, project
    named = [find(containers, name) for name in word.split(JOINT)] if JOINT in word else []
    if named and all(named):
        return TOGETHER, [each for each in named if each]
    return "", []


def names(listed: t.Iterable[Document]) -> list[str]:
    """Their names without the infra container of a pod, which is called otherwise on each host."""
    return sorted(name_of(each, "") for each in listed if not each.get("IsInfra"))


def members(containers: t.Sequence[Document], word: str) -> list[str]:
    """The names of the containers that a word names, be they on this host or not: those of a group, or one alone."""
    listed = [] if find(containers, word) else resolve(containers, word)[1]
    return names(listed) or word.split(JOINT)


def in_order(inspects: t.Sequence[Document]) -> list[Document]:
    """As they are to be started: each behind those that it depends on."""
    by_id = {each["Id"]: each for each in inspects}
    placed: dict[str, Document] = {}
    left = sorted(inspects, key=lambda each: (not each.get("IsInfra"), each["Name"]))
    while left:
        # podman makes no circle; one would end here in the order of their names.
        ready = [each for each in left if all(other in placed or other not in by_id for other in each.get("Dependencies") or [])] or left[:1]
        placed.update({each["Id"]: each for each in ready})
        left = [each for each in left if each["Id"] not in placed]
    return list(placed.values())


def units(inspects: t.Sequence[Document], projects: bool = True) -> list[list[Document]]:
    """All containers, those together that cannot be parted: of one pod, one that depends on another, of one volume; and of one project if asked."""
    parent = {each["Id"]: each["Id"] for each in inspects}

    def root(identifier: str) -> str:
        while parent[identifier] != identifier:
            identifier = parent[identifier]
        return identifier

    ties: dict[tuple[str, str], str] = {}
    for each in inspects:
        for other in each.get("Dependencies") or []:
            if other in parent:
                parent[root(each["Id"])] = root(other)
        for tie in _ties(each, projects):
            parent[root(each["Id"])] = root(ties.setdefault(tie, each["Id"]))
    found: dict[str, list[Document]] = {}
    for each in inspects:
        found.setdefault(root(each["Id"]), []).append(each)
    return [in_order(members) for members in found.values()]


def can_part(unit: t.Sequence[Document], with_infra: t.Container[str]) -> str:
    """The project whose containers move side by side, as a wave: each has namespaces and volumes of its own, and their pod is no more than a name.

    `with_infra` are the pods that have an infra container. Empty where they move as one.
    """
    project = {project_of(each.get("Config") or {}) for each in unit}
    known = {each["Id"] for each in unit}
    volumes = [name for each in unit for name in {mount["Name"] for mount in each.get("Mounts") or [] if mount.get("Type") == "volume"}]
    if len(project) != 1 or "" in project or len(volumes) > len(set(volumes)):
        return ""
    for each in unit:
        host = each.get("HostConfig") or {}
        joined = host.get("VolumesFrom") or [mode for mode in _MODES if str(host.get(mode) or "").startswith("container:")]
        if joined or each.get("Pod") in with_infra or not (each.get("State") or {}).get("Running") or set(each.get("Dependencies") or []) - known:
            return ""
    return project.pop()


def _ties(inspect: Document, projects: bool) -> t.Iterator[tuple[str, str]]:
    """What it has in common with all others that have the same."""
    if inspect.get("Pod"):
        yield "pod", inspect["Pod"]
    for mount in inspect.get("Mounts") or []:
        if mount.get("Type") == "volume" and mount.get("Name"):
            yield "volume", mount["Name"]
    project = project_of(inspect.get("Config") or {})
    if projects and project:
        yield "project", project


def name_of_unit(unit: t.Sequence[Document], pods: t.Mapping[str, str]) -> str:
    """How a unit is named to be moved; `pods` are the names of pods by ID."""
    members = [each for each in unit if not each.get("IsInfra")]
    if len(members) == 1 and not unit[0].get("Pod"):
        return str(members[0]["Name"])
    of_projects = {project_of(each.get("Config") or {}) for each in members}
    if len(of_projects) == 1 and "" not in of_projects:
        return of_projects.pop()
    of_pods = {each.get("Pod") or "" for each in unit}
    if len(of_pods) == 1 and "" not in of_pods:
        only = of_pods.pop()
        return pods.get(only, only[:12])
    return JOINT.join(sorted(each["Name"] for each in members))


def spelled(text: str, others: t.Mapping[str, str]) -> str:
    """A text with the IDs of a group's containers and pods replaced by their names, which are the same on both hosts."""
    for identifier, name in others.items():
        text = text.replace(identifier, name)
    return text


def names_by_id(members: t.Iterable[Document], pods: t.Iterable[Document]) -> dict[str, str]:
    """What `spelled` needs, from the inspects: an infra container is called by its pod."""
    of_pods = {pod["Id"]: "pod:" + pod["Name"] for pod in pods}
    infra = {pod.get("InfraContainerID") or "": "infra:" + pod["Name"] for pod in pods if pod.get("InfraContainerID")}
    return {**{each["Id"]: each["Name"] for each in members}, **infra, **of_pods}
