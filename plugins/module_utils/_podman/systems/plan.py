# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is to be done for each container with a whole system, and why it is refused. Nothing here touches a host."""

from __future__ import annotations

import ipaddress
import os
import typing as t

from ..._core import container_unit, inits
from .. import service_files, volume
from . import movable
from .made import differing, networks_of, options, recorded
from .request import ABSENT, STARTED, Request, faults

Facts = t.Mapping[str, t.Any]

IGNORE = "system_container_ignore_checks"
# By the limit, the kernel's controller that keeps it.
_CONTROLLERS = {"memory": "memory", "cpus": "cpu", "pids_limit": "pids"}
_INITS = (inits.SYSTEMD, inits.SYSVINIT)


def make(requests: t.Sequence[Request], facts: Facts, host: str, ignore: t.Sequence[str] = ()) -> dict[str, t.Any]:
    """The plan: what is done, what is refused and what is told."""
    refused = faults(requests)
    refused += [f"{IGNORE} has {name!r}, which is no check: it may have {', '.join(movable.NAMES)}" for name in ignore if name not in movable.NAMES]
    told: list[str] = []
    if not facts["host"]["podman"]["installed"]:
        refused.append(f"podman is missing on {host}: install the package podman there")
    if not refused:
        for request in requests:
            refused += _refusals(request, facts, host)
            for finding in _obstacles(request, facts, host):
                ignored = finding.check in ignore
                sentence = f"{request['name']} could not move live: {finding.sentence}"
                (told if ignored else refused).append(sentence if ignored else f"{sentence}; {IGNORE}: [{finding.check}] makes it all the same")
    plans = [] if refused else [_plan(request, facts["containers"][request["name"]]) for request in requests]
    told += [*_unasked(requests, plans, facts), *_stays(plans)]
    return {"refused": list(dict.fromkeys(refused)), "told": told, "containers": plans, "loads": _loads(plans)}


def _loads(plans: t.Sequence[Facts]) -> list[str]:
    """The archives, each once."""
    return list(dict.fromkeys(plan["load"] for plan in plans if plan["load"]))


def _own(request: Request, facts: Facts) -> Facts:
    return facts["containers"][request["name"]]


def _obstacles(request: Request, facts: Facts, host: str) -> list[t.Any]:
    """Of one that is to be made: of one that is there, the preflight itself can be asked."""
    return [] if request["state"] == ABSENT or _own(request, facts)["exists"] else movable.obstacles(request, facts, host)


def _refusals(request: Request, facts: Facts, host: str) -> list[str]:
    own = _own(request, facts)
    checks = _OF_THERE if own["exists"] else _OF_NEW
    if request["state"] == ABSENT:
        checks = _OF_GONE if own["exists"] else (_shared,)
    return [sentence for check in checks for sentence in check(request, facts, host)]


def _at_work(request: Request, facts: Facts, host: str) -> t.Iterator[str]:
    yield from movable.at_work(request, facts, host)


def _not_ours(request: Request, facts: Facts, host: str) -> t.Iterator[str]:
    own = _own(request, facts)
    if not own["held"] and recorded(own["labels"]) is None:
        yield f"{host} has a container {request['name']} that this role has not made: give this one another name, or remove that with `podman rm` first"


def _other(request: Request, facts: Facts, host: str) -> t.Iterator[str]:
    record = recorded(_own(request, facts)["labels"])
    keys = differing(record, request) if record else []
    if keys:
        yield (
            f"{request['name']} on {host} was made with other values of {', '.join(keys)}, and would lose the system in it if it were made anew: "
            "ask for what it has, or remove it first with state=absent"
        )


def _other_units(request: Request, facts: Facts, host: str) -> t.Iterator[str]:
    units = _own(request, facts)["units"]
    if units:
        own = container_unit.name_of(request["name"])
        yield f"{host} has the unit {', '.join(units)}, which starts a container {request['name']} beside {own}: disable it and remove its file"


def _left(request: Request, facts: Facts, host: str) -> t.Iterator[str]:
    """One that has moved would run twice."""
    if _own(request, facts)["left"]:
        unit = container_unit.name_of(request["name"])
        yield (
            f"{request['name']} has left {host} by a move, which kept its unit as {container_unit.FOLDER}/{unit}{service_files.ASIDE}: "
            "name the host that it is on now, or remove that file if it is nowhere"
        )


def _image(request: Request, facts: Facts, host: str) -> t.Iterator[str]:
    image, name = _own(request, facts)["image"], request["image"]
    if not image["there"] and request["archive"] and not image["archive"]:
        yield f"{request['name']}: {host} has neither the image {name} nor the file {request['archive']}: bring one of them there"
    elif not image["there"] and not request["archive"]:
        yield f"{request['name']}: {host} has no image {name}: bring it there with podman pull, or name an archive of that host's in `archive`"
    elif image["there"] and image["entrypoint"]:
        said = " ".join(image["entrypoint"])
        yield f"{request['name']}: the image {name} has the entrypoint {said}, which would be the first process instead of the init: build it without"


def _init(request: Request, facts: Facts, host: str) -> t.Iterator[str]:
    image = _own(request, facts)["image"]
    found = image.get("init", "")
    if not image["there"]:
        return
    if found not in _INITS:
        what = f"{found} as its init" if found else "no init"
        yield f"{request['name']}: the image {request['image']} has {what}, and a whole system here has systemd or System V's init: name another image"
    elif request["init"] not in ("auto", found):
        yield f"{request['name']}: the image {request['image']} has {found} as its init, and not {request['init']}: leave `init` out"


def _networks(request: Request, facts: Facts, host: str) -> t.Iterator[str]:
    known = {network["name"]: network for network in facts["host"]["podman"]["networks"]}
    for network in networks_of(request):
        there = known.get(network["name"])
        if there is None:
            yield (
                f"{request['name']}: podman on {host} has no network {network['name']}: make it there with `podman network create --driver macvlan "
                f"--subnet … --opt parent=… {network['name']}`, or name another"
            )
            continue
        for address in filter(None, (network["ip"], network["ip6"])):
            if not any(ipaddress.ip_address(address) in ipaddress.ip_network(subnet) for subnet in there["subnets"]):
                subnets = " and ".join(there["subnets"]) or "no subnet"
                yield f"{request['name']}: {address} is in no subnet of the network {network['name']} on {host}, which has {subnets}: give it another"


def _limits(request: Request, facts: Facts, host: str) -> t.Iterator[str]:
    for key, controller in _CONTROLLERS.items():
        if request[key] not in (None, -1) and controller not in facts["host"]["controllers"]:
            yield f"{request['name']}: {host} has no controller {controller} for cgroups, which {key} needs: leave it out, or boot the host with it"


def _in_use(request: Request, facts: Facts, host: str) -> t.Iterator[str]:
    for address in _own(request, facts)["in_use"]:
        yield (
            f"{request['name']}: another machine answers for {address} on the segment of {host}: see whether {request['name']} runs on another host "
            "already, or give it another address"
        )


def _shared(request: Request, facts: Facts, host: str) -> t.Iterator[str]:
    for name, users in _own(request, facts)["volumes"].items():
        if users and (request["state"] != ABSENT or request["remove_volumes"]):
            way = "leave remove_volumes out" if request["state"] == ABSENT else "give it a volume of its own"
            yield f"{request['name']}: {', '.join(users)} on {host} has the volume {name} as well: {way}"


def _remains(request: Request, facts: Facts, host: str) -> t.Iterator[str]:
    if request["name"] in facts["host"]["podman"]["remains"]:
        yield f"{request['name']}: podman's storage on {host} still has one of that name, whose making was cut off: `podman rm --force {request['name']}`"


Check = t.Callable[[Request, Facts, str], t.Iterator[str]]
_OF_NEW: tuple[Check, ...] = (_left, _remains, _other_units, _image, _init, _networks, _limits, _in_use, _shared)
_OF_THERE: tuple[Check, ...] = (_at_work, _not_ours, _other, _other_units)
_OF_GONE: tuple[Check, ...] = (_at_work, _not_ours, _shared)


def _plan(request: Request, own: Facts) -> dict[str, t.Any]:
    """What is done for a container."""
    gone, unit = request["state"] == ABSENT, container_unit.name_of(request["name"])
    record = recorded(own["labels"]) or {}
    init = record.get("init") or own["image"].get("init", "")
    new = not gone and not own["exists"]
    # Others, as those that its image declares, are none of this role's.
    ours = {*(each.partition(":")[0] for each in record.get("volumes", [])), *(each["name"] for each in request["volumes"])}
    removed = sorted(ours) if gone and request["remove_volumes"] else []
    return {
        "name": request["name"],
        "state": request["state"],
        "unit": unit,
        # What a move has kept of it here is of no use after it has come back.
        "unit_files": [os.path.join(container_unit.FOLDER, unit + end) for end in ("", service_files.ASIDE)],
        "init": init,
        "image": request["image"],
        # Its init is known when it has come.
        "load": request["archive"] if new and not own["image"]["there"] else "",
        "make": new,
        "start": request["state"] == STARTED,
        "boot": request["boot"],
        "remove": gone and (own["exists"] or own["unit"]),
        "exists": own["exists"],
        "unit_there": own["unit"],
        "options": options(request, init) if new and init else {},
        "volumes": [] if gone else [_volume(each) for each in request["volumes"]],
        "mountpoints": [volume.default_mountpoint(each["name"]) for each in request["volumes"]],
        "volumes_removed": [{"name": each, "state": "absent", "force": True} for each in removed],
        "volumes_kept": sorted(set(own["volumes"]) - set(removed)) if gone else [],
        "stop_timeout": request["stop_timeout"],
        "authorized_keys": [key.strip() for key in request["authorized_keys"]],
    }


def _volume(wanted: Facts) -> dict[str, t.Any]:
    """As the role image_volume takes it; one without a size has to be there."""
    return {"name": wanted["name"], "fstype": wanted["fstype"], **({"size": wanted["size"]} if wanted["size"] else {})}


def _unasked(requests: t.Sequence[Request], plans: t.Sequence[Facts], facts: Facts) -> t.Iterator[str]:
    """podman gives an address in each subnet of a network."""
    made = {plan["name"] for plan in plans if plan["make"]}
    known = {network["name"]: network for network in facts["host"]["podman"]["networks"]}
    for request in requests:
        for network in networks_of(request) if request["name"] in made else []:
            given = [ipaddress.ip_address(each) for each in (network["ip"], network["ip6"]) if each]
            for subnet in known[network["name"]]["subnets"]:
                if not any(address in ipaddress.ip_network(subnet) for address in given):
                    yield f"{request['name']} gets an address of podman's choice in {subnet}, another at each start: the network {network['name']} has it, too"


def _stays(plans: t.Sequence[Facts]) -> list[str]:
    return [f"the volumes of {plan['name']} stay: {', '.join(plan['volumes_kept'])}" for plan in plans if plan["remove"] and plan["volumes_kept"]]
