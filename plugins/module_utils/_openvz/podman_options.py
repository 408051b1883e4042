# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How podman is told a value of the imported container's. One entry a value: `test_each_value_has_its_way` walks them against the translation."""

from __future__ import annotations

import typing as t

from .networks import VENET

Values = t.Mapping[str, t.Any]
# What the destination has.
Offer = t.Mapping[str, t.Any]

# A container of OpenVZ has these beside podman's own. They reach no further than the container's processes, network and volume.
RIGHTS = (
    "AUDIT_WRITE", "IPC_LOCK", "IPC_OWNER", "LEASE", "LINUX_IMMUTABLE", "MKNOD", "NET_ADMIN", "NET_BROADCAST", "NET_RAW", "SYS_BOOT", "SYS_NICE", "SYS_PTRACE",
    "SYS_TTY_CONFIG",
)  # fmt: skip
# OpenVZ's kernel kept these within the container, and a stock kernel does not.
NOT_GIVEN = ("DAC_READ_SEARCH", "SYS_ADMIN", "SYS_MODULE", "SYS_RAWIO", "SYS_RESOURCE")


class Answer(t.NamedTuple):
    """Options of `podman create`; or a word for the table (`told`); or the reason for a refusal."""

    options: t.Sequence[str] = ()
    told: str = ""
    refused: str = ""


Way = t.Callable[[Values, Offer], Answer]


def option(name: str, key: str) -> Way:
    return lambda values, _offer: Answer([f"--{name}={values[key]}"])


def elsewhere(text: str) -> Way:
    """Not an option of the container's, but of its volume, its unit, or its import."""
    return lambda _values, _offer: Answer(told=text)


def limit(key: str, controller: str, tell: t.Callable[[Values], list[str]]) -> Way:
    """A limit needs a controller of the destination's control groups."""

    def apply(values: Values, offer: Offer) -> Answer:
        if values[key] is None:
            return Answer(tell(values) if controller in offer["controllers"] else ())
        if controller not in offer["controllers"]:
            return Answer(refused=f"the destination's control groups have no controller {controller}, so that it cannot limit this")
        return Answer(tell(values))

    return apply


def _memory(values: Values) -> list[str]:
    memory = values["memory_bytes"]
    return [] if memory is None else [f"--memory={memory}"]


def _swap(values: Values) -> list[str]:
    """podman's limit is of both together."""
    memory, swap = values.get("memory_bytes") or values.get("privvm_bytes"), values["swap_bytes"]
    if memory is None:
        return []
    return [f"--memory-swap={-1 if swap is None else memory + swap}"]


def _private_memory(values: Values, offer: Offer) -> Answer:
    """Before VSwap this was the limit of memory."""
    if values.get("memory_bytes") is not None or values["privvm_bytes"] is None:
        return Answer(told="PHYSPAGES is the limit of memory" if values["privvm_bytes"] is not None else "")
    return limit("privvm_bytes", "memory", lambda each: [f"--memory={each['privvm_bytes']}"])(values, offer)


def _cpus(values: Values) -> list[str]:
    given = [each for each in (values.get("cpus"), values.get("cpu_limit")) if each]
    return [f"--cpus={min(given):g}"] if given else []


def _once(first: str, second: str, tell: t.Callable[[Values], list[str]]) -> Way:
    """Two values make one option: it stands at the first that is there."""

    def apply(values: Values, offer: Offer) -> Answer:
        if values.get(first):
            return Answer(told=f"together with {first}")
        return limit(second, "cpu", tell)(values, offer)

    return apply


def _cpuset(values: Values, offer: Offer) -> Answer:
    if values["cpuset_cpus"] is None:
        return Answer()
    highest = max(int(number) for word in values["cpuset_cpus"].split(",") for number in word.split("-"))
    if highest >= offer["processors"]:
        return Answer(refused=f"the destination has {offer['processors']} processors, and none of the number {highest}")
    return limit("cpuset_cpus", "cpuset", lambda each: [f"--cpuset-cpus={each['cpuset_cpus']}"])(values, offer)


def _rights(values: Values, _offer: Offer) -> Answer:
    beyond = [each for each in values["cap_add"] if each in NOT_GIVEN]
    if beyond:
        return Answer(refused=f"{', '.join(beyond)} reaches the host on a stock kernel, which it did not in OpenVZ")
    return Answer([f"--cap-add={each}" for each in values["cap_add"] if each not in RIGHTS] + [f"--cap-drop={each}" for each in values["cap_drop"]])


def _devices(values: Values, offer: Offer) -> Answer:
    paths = [each.partition(":")[0] for each in values["devices"]]
    missing = [path for path in paths if path not in offer["paths"]]
    if missing:
        return Answer(refused=f"the destination has no {', '.join(missing)}: load its module there")
    return Answer([f"--device={path}:{path}:{each.partition(':')[2] or 'rwm'}" for path, each in zip(paths, values["devices"])])


def _bind_mounts(values: Values, offer: Offer) -> Answer:
    found = [bind_mount(each) for each in values["bind_mounts"]]
    missing = [each.partition(":")[0] for each in found if each.partition(":")[0] not in offer["paths"]]
    if missing:
        return Answer(refused=f"the destination has no {', '.join(missing)}: bring it there first")
    return Answer([f"--volume={each}" for each in found])


def bind_mount(text: str) -> str:
    """`source:place:options` of `[source:]place[,option…]` (libvzctl's form), or of a form that it is in already."""
    if "," not in text and text.count(":") == 2:
        return text
    places, _comma, options = text.partition(",")
    source, _colon, place = places.partition(":")
    return ":".join(filter(None, [source, place or source, options]))


def _owners(key: str) -> Way:
    def apply(values: Values, _offer: Offer) -> Answer:
        if values[key]:
            return Answer(refused=f"its files belong to users from {values[key]} on: give them back their own (chown in a user namespace) first")
        return Answer()

    return apply


def _names(name: str, key: str) -> Way:
    return lambda values, _offer: Answer([f"--{name}={each}" for each in values[key] or []])


def _search(values: Values, offer: Offer) -> Answer:
    """Where podman leaves resolv.conf alone, it takes no word about it."""
    if "nameservers" not in values:
        return Answer(told="as the container's own /etc/resolv.conf has them" if values["search_domains"] else "")
    return _names("dns-search", "search_domains")(values, offer)


def _io(values: Values, key: str) -> Answer:
    return Answer(told="" if values[key] is None else "podman's limit names a device whose number changes: set it on the host (systemctl set-property)")


WAYS: dict[str, Way] = {
    "name": elsewhere("the container's name there, unless import_openvz_name says otherwise"),
    "hostname": option("hostname", "hostname"),
    "description": option("label=description", "description"),
    "env": lambda values, _offer: Answer([f"--env={key}={value}" for key, value in values["env"].items()]),
    "onboot": elsewhere("its unit of systemd"),
    "boot_order": elsewhere("the order of its unit of systemd"),
    "stop_timeout": option("stop-timeout", "stop_timeout"),
    "disabled": elsewhere(""),
    "template": elsewhere("by the container's own files"),
    "distribution": elsewhere("by the container's own files"),
    "private": elsewhere(""),
    "layout": elsewhere("as it is found there"),
    "disk_bytes": elsewhere("image_volume"),
    "disk_inodes": elsewhere("image_volume"),
    "noatime": elsewhere("image volumes are always mounted so"),
    "memory_bytes": limit("memory_bytes", "memory", _memory),
    "privvm_bytes": _private_memory,
    "swap_bytes": limit("swap_bytes", "memory", _swap),
    "pids_limit": limit("pids_limit", "pids", lambda values: [f"--pids-limit={-1 if values['pids_limit'] is None else values['pids_limit']}"]),
    "cpus": limit("cpus", "cpu", _cpus),
    "cpu_limit": _once("cpus", "cpu_limit", _cpus),
    "cpu_shares": limit("cpu_shares", "cpu", lambda values: [f"--cpu-shares={values['cpu_shares']}"]),
    "cpuset_cpus": _cpuset,
    "cpuset_mems": limit("cpuset_mems", "cpuset", lambda values: [f"--cpuset-mems={values['cpuset_mems']}"] if values["cpuset_mems"] else []),
    "io_bytes": lambda values, _offer: _io(values, "io_bytes"),
    "io_operations": lambda values, _offer: _io(values, "io_operations"),
    "addresses": elsewhere(f"those of {VENET}"),
    "interfaces": elsewhere("under their names"),
    "nameservers": _names("dns", "nameservers"),
    "search_domains": _search,
    "cap_add": _rights,
    "cap_drop": elsewhere(""),
    "devices": _devices,
    "device_rules": lambda values, _offer: Answer([f"--device-cgroup-rule={each}" for each in values["device_rules"]]),
    "bind_mounts": _bind_mounts,
    "first_uid": _owners("first_uid"),
    "first_gid": _owners("first_gid"),
}


def ways(keys: t.Iterable[str], values: Values, offer: Offer) -> list[Answer]:
    """The answers about these values."""
    return [WAYS[key](values, offer) for key in keys]
