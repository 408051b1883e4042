# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""State of the container that would be lost, or that CRIU cannot restore: found before anything is touched."""

from __future__ import annotations

import typing as t

from ..._core.sizes import format_size
from .. import sysctls
from ..groups import JOINT
from . import wave
from .plan import IGNORE, Check, Plan


def _init(plan: Plan) -> t.Iterator[str]:
    if plan.live and plan.container.get("init"):
        yield (
            "{0} was created with --init, whose program podman mounts from {1} and CRIU cannot mount again: "
            "create it without --init, or use migrate_mode=offline".format(plan.workload, plan.source)
        )


def without_conmon(workload: str, host: str) -> str:
    """The command ends with podman's complaint, and works. `podman restart` would stop the container and give up."""
    return (
        "the conmon of {0} on {1} has died, so podman neither keeps its output nor sees its end: "
        "run `podman stop {0}; podman start {0}` there, of which the first complains of that once more".format(workload, host)
    )


def _conmon(plan: Plan) -> t.Iterator[str]:
    if plan.container.get("conmon_gone"):
        yield without_conmon(plan.workload, plan.source)


def _user_namespace(plan: Plan) -> t.Iterator[str]:
    if plan.container.get("userns"):
        yield (
            "{0} has a user namespace ({1}), and the numbers of its users on {2} may be others on {3}: "
            "create it without --userns, --uidmap and --gidmap".format(
                plan.workload, plan.container["userns"], plan.source, plan.destination
            )
        )


def _storage_driver(plan: Plan) -> t.Iterator[str]:
    drivers = (
        (plan.source, plan.container.get("storage_driver", "overlay")),
        (plan.destination, plan.there["host"]["podman"]["store"].get("driver") or "overlay"),
    )
    for name, driver in drivers:
        if driver != "overlay":
            yield (
                "podman on {0} keeps containers with the storage driver {1}, and their layers move from overlay to overlay: "
                'set driver = "overlay" in {2}'
            ).format(
                name, driver, "/etc/containers/storage.conf there, and create {0} again".format(plan.workload)
            )


def _own_mounts(plan: Plan) -> t.Iterator[str]:
    if plan.live and plan.container.get("own_mounts"):
        yield "{0} has mounted {1} by itself, which CRIU cannot mount again on {2}: unmount it first, or use migrate_mode=offline".format(
            plan.workload, ", ".join(plan.container["own_mounts"]), plan.destination
        )


def _tmpfs_attributes(plan: Plan) -> t.Iterator[str]:
    for tmpfs in plan.container.get("tmpfs", []) if plan.live else []:
        if tmpfs["attributes"] == "…" or tmpfs["attributes"] and not plan.container["cgroup"]:
            yield (
                "the tmpfs {0} of {1} has {2}, which CRIU does not carry: "
                "move its files to a volume, or list the check 'tmpfs_attributes' in {3} if they do not matter".format(
                    tmpfs["place"],
                    plan.workload,
                    (
                        "too many files to be looked at for extended attributes in the pause"
                        if tmpfs["attributes"] == "…"
                        else "extended attributes on {0}".format(tmpfs["attributes"])
                    ),
                    IGNORE,
                )
            )


def _layer_watches(plan: Plan) -> t.Iterator[str]:
    """The session finds the ways to them, in the container's cgroup; CRIU knows a watch by its handle."""
    for watch in plan.container.get("layer_watches", []) if plan.live else []:
        if plan.container["cgroup"] and not watch["without_handle"]:
            continue
        yield (
            "{0} (pid {1}) in {2} watches {3} of the container's own layer by inotify, which CRIU finds no way to, as {4}: "
            "have it watch a volume, end it, or use migrate_mode=offline".format(
                watch["process"],
                watch["pid"],
                plan.workload,
                "a file" if watch["count"] == 1 else "{0} files".format(watch["count"]),
                "the kernel of {0} tells no handle of them".format(plan.source) if plan.container["cgroup"] else "it has no cgroup of its own to be looked at",
            )
        )


def _own_cgroups(plan: Plan) -> t.Iterator[str]:
    """The session reads them below the container's cgroup. CRIU makes a cgroup namespace only of a dump that has them."""
    if not plan.live or plan.container["cgroup"]:
        return
    if plan.container.get("divided"):
        yield (
            "{0} has made cgroups below its own, as systemd does, and on {1} that is none of the second version that can be frozen: "
            "boot {1} with the second version alone, or use migrate_mode=offline".format(plan.workload, plan.source)
        )
    elif plan.container.get("cgroup_namespace"):
        yield (
            "{0} has a cgroup namespace of its own, which CRIU makes again only in a cgroup of the second version that is the container's, "
            "and it has none on {1} that can be frozen: boot {1} with the second version alone, create it without --cgroups=disabled, "
            "or use migrate_mode=offline".format(plan.workload, plan.source)
        )


def _huge_pages(plan: Plan) -> t.Iterator[str]:
    need, free = plan.container.get("huge_pages", 0), plan.there["host"].get("huge_pages", 0)
    if plan.live and need > free:
        yield "{0} uses {1} of huge pages, and {2} has {3} of them free: reserve more there with vm.nr_hugepages, or use migrate_mode=offline".format(
            plan.workload, format_size(need), plan.destination, format_size(free)
        )


def _multicast(plan: Plan) -> t.Iterator[str]:
    if plan.live and plan.container.get("multicast"):
        yield (
            "{0} has joined multicast groups on {1}, in which it would not be on {2}: "
            "use migrate_mode=offline, or list the check 'multicast' in {3} if its program joins again".format(
                plan.workload, ", ".join(plan.container["multicast"]), plan.destination, IGNORE
            )
        )


def _sysctls(plan: Plan) -> t.Iterator[str]:
    names = plan.there["host"].get("network_settings", [])
    for name in sysctls.missing(plan.container.get("sysctls", []), names):
        yield (
            "{0} was created with --sysctl {1}, a setting that the kernel of {2} does not have: "
            "load the kernel module there that brings it, or create {0} without it".format(plan.workload, name, plan.destination)
        )


def _own_network(plan: Plan) -> t.Iterator[str]:
    if plan.live and plan.container.get("own_network"):
        yield (
            "{0} has made {1} in its network namespace, which would be missing on {2}: have podman make it (--network, podman network create), "
            "or list the check 'own_network' in {3} if its program makes it again".format(
                plan.workload, ", ".join(plan.container["own_network"]), plan.destination, IGNORE
            )
        )


def _own_tables(plan: Plan) -> t.Iterator[str]:
    tables = plan.container.get("own_tables", [])
    for name, host in plan.hosts if plan.live and tables else []:
        if not host.get("nft", True):
            yield "{0} has the nftables table {1} in its network namespace, and {2} has no program nft: install the package nftables there".format(
                plan.workload, ", ".join(tables), name
            )


def _log_folder(plan: Plan) -> t.Iterator[str]:
    folder = (plan.container.get("log") or {}).get("folder") or ""
    there = plan.binds_there.get(folder, {"kind": "directory"})["kind"]
    if folder and there != "directory":
        yield "{0} has its log in the folder {1}, which is {2} on {3}, and podman starts nothing without it: make it there with `mkdir --parents {1}`".format(
            plan.workload, folder, "a {0}".format(there) if there else "missing", plan.destination
        )


def _required_by(plan: Plan) -> t.Iterator[str]:
    together = plan.container.get("together", [])
    if together and not plan.container.get("pod") and not plan.in_group and not plan.container.get("wave"):
        yield (
            "{0} on {1} cannot be parted (--requires, --network container:, --volumes-from, or a volume that they share): "
            "move them as one with -e handover_workload={2} -e migrate_mode=offline".format(", ".join(together), plan.source, JOINT.join(together))
        )


def _pod(plan: Plan) -> t.Iterator[str]:
    if plan.container.get("wave"):
        yield from () if plan.in_wave else wave.refusal(plan)
    elif plan.container.get("pod") and not plan.in_group:
        yield "{0} is a member of the pod {1} on {2}, which moves as one: move it with -e handover_workload={1}".format(
            plan.workload, plan.pod_name, plan.source
        )


CHECKS: dict[str, Check] = {
    "pod": _pod,
    "required_by": _required_by,
    "init": _init,
    "conmon": _conmon,
    "user_namespace": _user_namespace,
    "storage_driver": _storage_driver,
    "own_mounts": _own_mounts,
    "tmpfs_attributes": _tmpfs_attributes,
    "layer_watches": _layer_watches,
    "own_cgroups": _own_cgroups,
    "huge_pages": _huge_pages,
    "multicast": _multicast,
    "sysctls": _sysctls,
    "own_network": _own_network,
    "own_tables": _own_tables,
    "log_folder": _log_folder,
}
