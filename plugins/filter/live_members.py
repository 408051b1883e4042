# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

Member = t.Mapping[str, t.Any]
Members = t.Sequence[Member]

_LIBEXEC = "/usr/local/libexec/handover"
_CRIU = ["--keep", "--tcp-established", "--file-locks"]
# The namespaces that members have in common and that CRIU restores a process into: its word, the key of the fact, and the name below /proc.
_COMMON = {"ipc": "ipc_mode", "uts": "uts_mode"}


def live_members(
    members: Members,
    side: str,
    podman: str,
    ran: t.Sequence[str],
    timeout: int,
    tmpfs: t.Sequence[t.Mapping[str, t.Any]] = (),
    netavark: str = "",
    cgroups: t.Mapping[str, str] | None = None,
) -> list[dict[str, t.Any]]:
    """The members that CRIU dumps on the C(source), or restores on the C(destination), as the session is told of them. C(tmpfs) are those that it
    carries: the CRIU of their members finds another tar. C(cgroups) are those that members are restored in, of their units."""
    hooks = {"source": _freeze, "destination": _restore}
    infra, carried = _infra(members), {each["member"] for each in tmpfs}
    dumped = [{**member, "unit_cgroup": (cgroups or {}).get(member["name"])} for member in members if _is_dumped(member, ran)]
    return [
        {
            "name": member["name"],
            **hooks[side](member, podman, int(timeout), netavark, _LIBEXEC + ("/carry" if member["name"] in carried else "/hold")),
            "joins": _joins(member, infra),
        }
        for member in dumped
    ]


def _freeze(member: Member, podman: str, timeout: int, _netavark: str, stand_ins: str) -> dict[str, t.Any]:
    return {
        "freeze": {
            "argv": [podman, "container", "checkpoint", *_CRIU, member["name"]],
            "timeout": timeout,
            "log": member["static_dir"] + "/dump.log",
            "gate": member["checkpoint_dir"],
            "cgroup": member["cgroup"],
            # What stands in for CRIU has it leave the memory out, or keep the cgroups that the container has made.
            "hold": stand_ins,
        }
    }


def _restore(member: Member, podman: str, timeout: int, netavark: str, stand_ins: str) -> dict[str, t.Any]:
    within = [_LIBEXEC + "/pcopy", "internal", "within", member["unit_cgroup"]] if member["unit_cgroup"] else []
    return {
        "restore": {
            "argv": [*within, podman, "container", "restore", *_CRIU, member["name"]],
            "timeout": timeout,
            "log": member["static_dir"] + "/restore.log",
            "env": {
                "CONTAINERS_HELPER_BINARY_DIR": _LIBEXEC + "/podman",
                "HANDOVER_NETAVARK": netavark,
                "HANDOVER_GATE": member["checkpoint_dir"],
            },
            "gate": member["checkpoint_dir"],
            "container": member["id"],
            "hold": stand_ins,
        }
    }


def _joins(member: Member, infra: Member | None) -> dict[str, str]:
    """Of each common namespace, where it is on this host."""
    if infra is None:
        return {}
    return {kind: "/proc/{0}/ns/{1}".format(infra["pid"], kind) for kind, mode in _COMMON.items() if _is_common(member, mode)}


def _is_common(member: Member, mode: str) -> bool:
    return str(member[mode]).startswith("container:")


def _is_dumped(member: Member, ran: t.Sequence[str]) -> bool:
    return not member["infra"] and member["name"] in ran


def _infra(members: Members) -> Member | None:
    return next((member for member in members if member["infra"]), None)


def live_trees(members: Members, ran: t.Sequence[str], staged: bool = False) -> list[dict[str, str]]:
    """What travels as trees: the layers, the shared memory that has a path, and the dumps. C(staged) on the source, which says when."""
    found = [("layer", member, "upper_dir", "presync") for member in members if not member["infra"]]
    dumped = [member for member in members if _is_dumped(member, ran)]
    infra = _infra(members)
    if infra is not None and any(_is_common(member, "ipc_mode") for member in dumped):
        found.append(("shm", {**infra, "name": "infra"}, "shm_dir", "freeze"))
    found += [("shm", member, "shm_dir", "freeze") for member in dumped if not _is_common(member, "ipc_mode")]
    found += [("dump", member, "checkpoint_dir", "dump") for member in dumped]
    return [
        {"name": "{0}-{1}".format(what, member["name"]), "path": member[key], **({"stage": stage} if staged else {})} for what, member, key, stage in found
    ]  # fmt: skip


def live_network(members: Members, side: str, only: bool = False) -> dict[str, t.Any]:
    """The network that the members have in common, as the session is told of it; C(only) leaves out what they have made in it by themselves."""
    infra = _infra(members)
    if infra is None:
        return {}
    network: dict[str, t.Any] = {"namespace": infra["network_namespace"]}
    if side == "destination":
        return {**network, "silent": bool(infra["networks"])}
    names = [attached["interface"] for attached in infra["networks"] if attached["interface"]]
    return {**network, "only": ["lo", *names]} if only else network


class FilterModule:
    """A pod whose members are dumped and restored."""

    def filters(self) -> dict[str, t.Callable]:
        """Name → filter."""
        return {"live_members": live_members, "live_trees": live_trees, "live_network": live_network}
