# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The conditions before a container of Docker's is moved.

A check is a pure function of the facts about both hosts, and yields one sentence for each fault: the thing, the place, and the way out.
"""

from __future__ import annotations

import typing as t
from types import MappingProxyType

from .._core import bind_checks, move_checks
from .._core.bind_rules import carried, is_bind
from .._core.move import IGNORE, UNACCOUNTED, Finding, Move, dotted
from .._core.move_checks import Need
from . import gate, inventory, kept_addresses, live as of_live, networks, ports

Check = t.Callable[[Move], t.Iterator[str]]

STOPPED = ("created", "exited")
# These would start a container that is stopped when the daemon is started again.
RESTARTING = ("always", "unless-stopped")
SWARM = "com.docker.swarm.service.id"


def _docker_missing(move: Move) -> t.Iterator[str]:
    for name, host in move.hosts:
        if not host["docker"]["installed"]:
            yield "Docker does not run on {0}: install it there, and see `systemctl status docker`".format(name)
        elif not host["docker"]["path"]:
            yield "the program docker is missing on {0}: install the package docker-cli there".format(name)


def _unknown_workload(move: Move) -> t.Iterator[str]:
    if not move.container["exists"]:
        names = sorted(container["name"] for container in move.here["host"]["docker"]["containers"])
        yield "Docker has no container named {0} on {1}: name one of its containers{2}".format(
            move.workload, move.source, " ({0})".format(", ".join(names)) if names else ", of which it has none"
        )


def _another_name(move: Move) -> t.Iterator[str]:
    if move.container["exists"] and move.container["name"] != move.workload:
        yield "{0} is the container {1} on {2}: name it {1}, as its ID is another on each host".format(move.workload, move.container["name"], move.source)


def _running(move: Move) -> t.Iterator[str]:
    if move.container["running"] or move.container["state"] in STOPPED and not move.live:
        return
    if move.container["state"] in STOPPED:
        yield "{0} is {1} on {2} and has no memory to hand over: start it there first, or move it as it is with migrate_mode=offline".format(
            move.workload, move.container["state"], move.source
        )
        return
    way = "unpause it with `docker unpause {0}`".format(move.workload) if move.container["state"] == "paused" else "start it or stop it there first"
    yield "{0} is {1} on {2} and not running: {3}".format(move.workload, move.container["state"], move.source, way)


def _restart_policy(move: Move) -> t.Iterator[str]:
    policy = move.container["restart_policy"]
    if move.container["state"] in STOPPED and policy in RESTARTING:
        yield "{0} does not run, and Docker on {1} would start it by its restart policy {2}: take that off with `docker update --restart=no {0}`".format(
            move.workload, move.destination, policy
        )


def _systemd_unit(move: Move) -> t.Iterator[str]:
    """On either host: such a unit often removes the container that it finds, and makes another, which no session knows."""
    for name, facts in ((move.source, move.here), (move.destination, move.there)):
        for unit in facts["workload"].get("units", []):
            yield "the systemd unit {0} on {1} starts {2}, and could start it there while the other host runs it: {3}".format(
                unit, name, move.workload, "disable and stop it, have Docker start {0} by a restart policy (docker update --restart)".format(move.workload)
            )


def _auto_remove(move: Move) -> t.Iterator[str]:
    if move.container["auto_remove"]:
        yield "{0} was started with --rm, so its host forgets it as soon as it stops and could not take it back: create it again without --rm".format(
            move.workload
        )


def _namespaces(move: Move) -> t.Iterator[str]:
    for what, value in move.container["namespaces"].items():
        if value == "host" or value.startswith("container:"):
            yield "{0} uses the {1} namespace of {2} and not one of its own ({3}), which cannot move: create it without that".format(
                move.workload, what, "the host" if value == "host" else "another container", value
            )


def _links(move: Move) -> t.Iterator[str]:
    if move.container["links"]:
        yield "{0} was created with --link or --volumes-from ({1}), and needs containers that would stay behind: create it without that".format(
            move.workload, ", ".join(move.container["links"])
        )


def _required_by(move: Move) -> t.Iterator[str]:
    if move.container["required_by"]:
        yield "{0} cannot leave {1}, where others were made with something of it and would stay behind: {2}: create them without that".format(
            move.workload, move.source, ", ".join(move.container["required_by"])
        )


def _swarm(move: Move) -> t.Iterator[str]:
    if SWARM in move.container["labels"]:
        yield "{0} is a task of a swarm, which would make another in its place: move it by the swarm's own placement".format(move.workload)


def _devices(move: Move) -> t.Iterator[str]:
    if move.container["devices"]:
        yield "{0} has devices of {1} ({2}), which cannot move: create it without --device".format(
            move.workload, move.source, ", ".join(move.container["devices"])
        )


def _storage_driver(move: Move) -> t.Iterator[str]:
    drivers = ((move.source, move.container["storage_driver"]), (move.destination, move.there["host"]["docker"]["storage_driver"]))
    for name, driver in drivers:
        if driver != "overlay2":
            yield (
                "Docker on {0} keeps containers with the storage driver {1}, and their layers move from overlay2 to overlay2: "
                'set "storage-driver": "overlay2" in /etc/docker/daemon.json there'.format(name, driver or "of a snapshotter")
            )


def _directories(move: Move) -> t.Iterator[str]:
    yield from bind_checks.CHECKS["directories"](move)
    for mount in move.mounts:
        if mount["type"] == "tmpfs" or mount["directory_volume"] or is_bind(mount):
            continue
        what = "volume {0}".format(mount["name"]) if mount["type"] == "volume" else "path {0}".format(mount["source"])
        yield (
            "{0} mounts the {1} on {2}, which is no plain volume of Docker's and would stay behind on {3}: "
            "move its files to a volume made by docker volume create, or list the check 'directories' in {5} if {4} has the same".format(
                move.workload, what, mount["destination"], move.source, move.destination, IGNORE
            )
        )


def _bind_mounts(move: Move) -> t.Iterator[str]:
    yield from bind_checks.CHECKS["bind_mounts"](move)
    for mount in carried(move.bind_mounts, move.mounts):
        for name, host in move.hosts:
            root = host["docker"]["store"]["path"]
            if (mount["source"] + "/").startswith(root + "/"):
                yield "{0} mounts the {1} {2}, which is where Docker on {3} keeps its own files ({4}), and nothing is copied onto those: mount a volume".format(
                    move.workload, mount["kind"], mount["source"], name, root
                )


def _directory_volumes(move: Move) -> t.Iterator[str]:
    for volume in move.directories:
        if volume["shared_with"]:
            yield "{0} shares the volume {1} on {2} with {3}, and only one of them would have it afterwards: give each a volume of its own".format(
                move.workload, volume["name"], move.source, ", ".join(volume["shared_with"])
            )


def _volumes_taken(move: Move) -> t.Iterator[str]:
    for volume in move.directories:
        if volume["name"] in move.there["host"]["docker"]["volumes"]:
            yield "Docker on {0} has a volume named {1} already, and what is in it is never overwritten: remove it with `docker volume rm {1}` there".format(
                move.destination, volume["name"]
            )


def _already_there(move: Move) -> t.Iterator[str]:
    if move.there["workload"]["exists"]:
        yield "{1} has a container named {0} already, which is {2}: remove it with `docker rm {0}` there, or rename it".format(
            move.workload, move.destination, move.there["workload"]["state"]
        )


def _arch(move: Move) -> t.Iterator[str]:
    here, there = (host["arch"] for _name, host in move.hosts)
    if here != there:
        yield "{0} is {1} and {2} is {3}, which cannot run the programs of {4}: choose a host like {0}".format(
            move.source, here, move.destination, there, move.workload
        )


def needs(move: Move) -> list[Need]:
    """All that is laid down anywhere by the move, but for its own records."""
    there = move.there["host"]
    image = 0 if image_present(move) else move.container["image"]["size"]
    own = sum(volume["size"] for volume in move.directories) + move.container["layer"] + image
    found = [Need("its volumes, layer and image", move.destination, there["docker"]["store"], own), *bind_checks.needs(move)]
    if image:
        found += [Need("the archive of its image", name, host["sessions"], image) for name, host in move.hosts]
    return [need for need in found if need.size]


def _space(move: Move) -> t.Iterator[str]:
    yield from move_checks.space(move, needs(move))


def _version(move: Move) -> t.Iterator[str]:
    here, there = (host["docker"]["version"] for _name, host in move.hosts)
    if here[:2] > there[:2]:
        yield (
            "Docker is {0} on {1} and {2} on {3}, which is older and may not understand how the container was made: install the same version there, "
            "or try it with {4}=docker_version: the container is compared before it is stopped".format(
                dotted(here), move.source, dotted(there), move.destination, IGNORE
            )
        )


def _runtime(move: Move) -> t.Iterator[str]:
    for name, host in move.hosts:
        if move.container["runtime"] not in host["docker"]["runtimes"]:
            yield "{0} runs under the runtime {1}, and on {2} the helper stands before runc alone: create it with `docker run --runtime runc`".format(
                move.workload, move.container["runtime"] or "of no name", name
            )


def _gate(move: Move) -> t.Iterator[str]:
    """Without it Docker would start what has moved away, by a restart policy or at an operator's word."""
    for name, host in move.hosts:
        if host["docker"]["gate"]:
            yield "nothing would keep Docker on {0} from starting {1} while the other host runs it ({2}): {3}".format(
                name, move.workload, host["docker"]["gate"], gate.CURE
            )
    seen = move.container.get("bundle_seen")
    if seen and seen != move.container["bundle"]:
        yield "containerd on {0} keeps {1} in {2}, and the helper knows it by {3} alone: start containerd with its own folder of state".format(
            move.source, move.workload, seen, move.container["bundle"]
        )


BASICS: dict[str, Check] = {
    "same_host": move_checks.same_host,
    "docker": _docker_missing,
    "workload": _unknown_workload,
    "name": _another_name,
    # Among the basics because nothing else would keep it from running twice.
    "gate": _gate,
    # Among the basics because the twin of a session under way on the destination is no rubbish to be removed.
    "locked": move_checks.locked,
}

CHECKS: dict[str, Check] = {
    "running": _running,
    "restart_policy": _restart_policy,
    "systemd_unit": _systemd_unit,
    "project_units": move_checks.project_units,
    "auto_remove": _auto_remove,
    "namespaces": _namespaces,
    "links": _links,
    "required_by": _required_by,
    "swarm": _swarm,
    "devices": _devices,
    "storage_driver": _storage_driver,
    **bind_checks.CHECKS,
    "directories": _directories,
    "bind_mounts": _bind_mounts,
    "file_flags": bind_checks.flags,
    "directory_volumes": _directory_volumes,
    "volumes": _volumes_taken,
    "already_there": _already_there,
    "arch": _arch,
    "space": _space,
    **networks.CHECKS,
    **kept_addresses.CHECKS,
    **ports.CHECKS,
    "docker_version": _version,
    "runtime": _runtime,
    "pcopy": move_checks.pcopy,
    "systemd": move_checks.systemd,
    "clock": move_checks.clock,
    "unanswered": move_checks.unanswered,
}


def image_present(move: Move) -> bool:
    """Whether the destination has the container's image."""
    return any(image["id"] == move.container["image"]["id"] for image in move.there["host"]["docker"]["images"])


def images(move: Move) -> list[dict[str, t.Any]]:
    """The image if the destination lacks it, and how it is to be saved: by its name only where that name is free over there."""
    if not move.known or image_present(move):
        return []
    image = move.container["image"]
    taken = any(image["name"] in each["names"] for each in move.there["host"]["docker"]["images"])
    reference = image["name"] if image["named"] and not taken else image["id"]
    return [{"id": image["id"], "name": image["name"], "size": image["size"], "format": "docker-archive", "reference": reference}]


def twin(move: Move) -> dict[str, t.Any]:
    """Everything that a move makes on the destination, and removes again if it is undone."""
    docker = move.there["host"]["docker"]
    return {
        "made": not any(each["name"] == move.workload for each in docker["containers"]),
        "volumes": sorted(volume["name"] for volume in move.directories if volume["name"] not in docker["volumes"]),
        "folders": bind_checks.folders(move),
        "secrets": [],
        "addresses": kept_addresses.in_request(move),
        "networks": networks.to_make(move),
    }


def examine(move: Move, ignore: t.Container[str] = (), live: t.Mapping[str, Check] = MappingProxyType({})) -> tuple[list[Finding], list[Finding]]:
    """The faults that count, and those to be ignored. Where the basics are wrong, the rest is not asked. `live` are the checks of a live move."""
    moves_live = move.live and move.known and move.container["running"]
    basics = [*BASICS.items(), *(of_live.BASICS.items() if moves_live else ())]
    found = [Finding(name, sentence) for name, check in basics for sentence in check(move)]
    ignored: list[Finding] = []
    if found:
        return found, ignored
    asked = {**CHECKS, **(live if moves_live else {})}
    move = kept_addresses.kept(move) if moves_live else move
    every = [Finding(name, sentence) for name, check in asked.items() for sentence in check(move)]
    for key in move.container.get("unaccounted", []):
        name = UNACCOUNTED + key
        every.append(Finding(name, inventory.refusal(move.workload, move.source, key, name)))
    for finding in every:
        (ignored if finding.check in ignore else found).append(finding)
    return found, ignored


def unknown_names(ignore: t.Iterable[str], live: t.Container[str] = ()) -> list[str]:
    """Names on an ignore list that no check has."""
    return [name for name in ignore if name not in CHECKS and name not in live and not name.startswith(UNACCOUNTED)]
