# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""From the command that made a pod on one host to the command that makes it on another. Pure functions."""

from __future__ import annotations

import typing as t

from . import workload
from .create_command import CommandError, CreateCommand, Grammar, networks_of, read_options, spell

Facts = t.Mapping[str, t.Any]

_UNIT = "PODMAN_SYSTEMD_UNIT"
_NOT_CARRIED = frozenset(("infra-conmon-pidfile", "pod-id-file", "replace"))
_PINNED = frozenset(("name", "hostname", "ip", "ip6", "mac-address", "network", "publish"))
_REFUSED = {
    "device": "it has devices of its host (--device)", "userns": "it has a user namespace (--userns)", "uidmap": "it has a user namespace (--uidmap)",
    "gidmap": "it has a user namespace (--gidmap)", "volumes-from": "it has volumes of another container (--volumes-from)",
    "volume": "it mounts volumes into all its members (--volume)",
}  # fmt: skip


def parse(command: t.Sequence[str], podman: Grammar, create: Grammar) -> list[tuple[str, str | None]]:
    """The options of a `podman pod create`."""
    words = list(command)
    if not words:
        raise CommandError("podman has not kept the command that made it (it was made through the API or by `podman kube play`)")
    _global, rest = read_options(words[1:], podman)
    if rest[:2] != ["pod", "create"]:
        raise CommandError("it was made by '{0}', and not by podman pod create".format(" ".join(words[:3])))
    options, names = read_options(rest[2:], create)
    if len(names) > 1:
        raise CommandError("its command has the words {0} behind its name".format(" ".join(names[1:])))
    return options


def unsupported(options: t.Sequence[tuple[str, str | None]]) -> str:
    """Why the pod cannot be made on another host; empty if it can."""
    return next((_REFUSED[name] for name, _value in options if _REFUSED.get(name)), "")


def pod_twin(pod: Facts, infra: Facts | None, podman: Grammar, create: Grammar) -> list[str]:
    """The arguments of `podman` that make the same pod; with the addresses and ports that its infra container has now, if it runs."""
    options = parse(pod["create_command"], podman, create)
    why = unsupported(options)
    if why:
        raise CommandError(why)
    written: list[tuple[str, str | None]] = [("name", pod["name"])]
    if infra is not None and infra["running"]:
        identity = workload.identity_of(infra, "")
        asked = [value for name, value in options if name == "hostname"]
        written += [("hostname", value) for value in asked]
        written += networks_of(CreateCommand(tuple(options), "", ()), identity)
        written += [("publish", str(port)) for port in identity.ports]
    else:
        written += [(name, value) for name, value in options if name in _PINNED - {"name"}]
    written += [(name, value) for name, value in options if name not in _PINNED and name not in _NOT_CARRIED]
    # podman takes the name of the unit that it is in from its environment.
    unit = ((pod.get("essence") or {}).get("Labels") or {}).get(_UNIT)
    if unit and not any(name == "label" and (value or "").startswith(_UNIT) for name, value in options):
        written.append(("label", "{0}={1}".format(_UNIT, unit)))
    return ["pod", "create", *spell(written)]
