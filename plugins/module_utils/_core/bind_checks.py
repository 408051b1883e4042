# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Bind mounts: that they can be carried, or are the same on both hosts."""

from __future__ import annotations

import typing as t

from . import bind_rules as rules
from .move import IGNORE, Facts, Move
from .move_checks import Need

OPTION = "handover_bind_mounts"


def _refused(plan: Move) -> t.Iterator[str]:
    for mount in _mounts(plan, rules.REFUSE):
        if rules.fate(plan.bind_mounts, mount) != plan.bind_mounts:
            yield (
                "{0} writes to the {1} {2} of {3}, which is the system's own and is never copied to another host: mount it read-only, "
                "or move {4} to a volume".format(
                    plan.workload, mount["kind"], mount["source"], plan.source, "what is in it" if mount["kind"] == rules.FOLDER else "the file"
                )
            )
            continue
        yield (
            "{0} mounts the {1} {2} of {3}, which would stay behind: have it copied to {4} with {5}=carry, {6}or move its files to a volume; "
            "or list the check 'directories' in {7}".format(
                plan.workload,
                mount["kind"],
                mount["source"],
                plan.source,
                plan.destination,
                OPTION,
                "have it found equal there with {0}=same, ".format(OPTION) if mount["read_only"] else "",
                IGNORE,
            )
        )


def _same(plan: Move) -> t.Iterator[str]:
    for mount in _mounts(plan, rules.SAME):
        path = mount["source"]
        here, there = plan.binds_here.get(path, {}), plan.binds_there.get(path, {})
        if not mount["read_only"]:
            yield (
                "{0} writes to the {1} {2} of {3}, and what it writes on one host the other does not have: "
                "have it copied with {4}=carry, or mount it read-only".format(plan.workload, mount["kind"], path, plan.source, OPTION)
            )
        elif not there.get("kind"):
            yield "{0} mounts the {1} {2}, which {3} does not have: copy it there with its owners and modes".format(
                plan.workload, mount["kind"], path, plan.destination
            )
        elif not here.get("digest") or here["digest"] != there.get("digest"):
            yield "the {0} {1}, which {2} mounts, is not the same on {3} and {4}: copy it there with its owners, modes and attributes".format(
                mount["kind"], path, plan.workload, plan.source, plan.destination
            )


def _carried(plan: Move) -> t.Iterator[str]:
    mounts = rules.carried(plan.bind_mounts, plan.mounts)
    for mount in mounts:
        here = plan.binds_here.get(mount["source"], {})
        yield from _carried_from(plan, mount, here)
        others = [each["source"] for each in mounts if each["source"].startswith(mount["source"] + "/")]
        if others:
            yield "{0} mounts {1}, and {2} that is in it once more, and each would be copied by itself: mount {1} alone".format(
                plan.workload, mount["source"], ", ".join(others)
            )


def _carried_from(plan: Move, mount: Facts, here: Facts) -> t.Iterator[str]:
    """The source's obstacles to copying."""
    path, kind = mount["source"], mount["kind"]
    if here.get("real", path) != path:
        yield "{0} mounts {1} of {2}, which is a link to {3}: create it with the path that the link leads to".format(
            plan.workload, path, plan.source, here["real"]
        )
        return
    if mount.get("replaced"):
        yield "{0} still has the file that was {1} on {2} when it was started, and another has that name now: restart {0}, so that it mounts that one".format(
            plan.workload, path, plan.source
        )
    if mount.get("names", 1) > 1:
        yield "the file {0} that {1} mounts on {2} has further names there, which would be files of their own: mount a copy of it".format(
            path, plan.workload, plan.source
        )
    if here.get("users"):
        yield "{0} shares the {1} {2} on {3} with {4}, and only one of them would have it afterwards: give each its own".format(
            plan.workload, kind, path, plan.source, ", ".join(here["users"])
        )
    if here.get("fstype") not in rules.WATCHED:
        yield (
            "{0} mounts the {1} {2} of {3}, which is on {4}, where the kernel does not tell what is written to: "
            "move it to one of {5}, or its files to a volume".format(
                plan.workload, kind, path, plan.source, here.get("fstype") or "an unknown file system", ", ".join(rules.WATCHED)
            )
        )
    if here.get("mounted"):
        yield (
            "{0} mounts the {1} {2} of {3}, which is a mount point there and could not be put aside after the move: "
            "mount {4} into the container".format(
                plan.workload, kind, path, plan.source, "a folder in it" if kind == rules.FOLDER else "the file by its own path"
            )
        )
    if here.get("mounts_below"):
        yield "{0} mounts the {1} {2} of {3}, and another file system is mounted in it, on {4}: unmount it, or mount it into the container by itself".format(
            plan.workload, kind, path, plan.source, ", ".join(here["mounts_below"])
        )
    if here.get("kept"):
        yield "{0} on {1} is left from an earlier move, and {2} is to be put aside under that name: remove it, or rename it".format(
            path + rules.KEPT, plan.source, path
        )


def _taken(plan: Move) -> t.Iterator[str]:
    for mount in rules.carried(plan.bind_mounts, plan.mounts):
        path = mount["source"]
        there = plan.binds_there.get(path, {})
        if there.get("kind") and (there["kind"] != mount["kind"] or not there["empty"]):
            yield "{0} exists on {1} already, where the {2} of {3} is to be, and is never written over: move it away, or remove it".format(
                path, plan.destination, mount["kind"], plan.workload
            )
        elif there.get("inside", rules.FOLDER) != rules.FOLDER:
            yield "{0} cannot be made on {1}, where the {2} of {3} is to be: something above it is no folder".format(
                path, plan.destination, mount["kind"], plan.workload
            )
        elif there.get("real", path) != path:
            yield "{0} leads to {1} on {2}, where the {3} of {4} is to be: remove that link".format(
                path, there["real"], plan.destination, mount["kind"], plan.workload
            )
        elif there.get("mounted"):
            yield "something is mounted on {0} of {1} already, where the {2} of {3} is to be: unmount it".format(
                path, plan.destination, mount["kind"], plan.workload
            )


def _mounts(plan: Move, fate: str) -> list[Facts]:
    """Its bind mounts of which that becomes, each once."""
    return [mount for mount in plan.mounts if rules.is_bind(mount) and rules.fate(plan.bind_mounts, mount) == fate]


def directories(plan: Move) -> list[dict[str, t.Any]]:
    """The bind mounts that are carried, as the session is told them."""
    return [
        {"name": mount["source"], "path": mount["source"], "size": plan.binds_here[mount["source"]]["size"], "file": mount["kind"] == rules.FILE, "bind": True}
        for mount in rules.carried(plan.bind_mounts, plan.mounts)
        if mount["source"] in plan.binds_here
    ]


def needs(plan: Move) -> list[Need]:
    """The room that they take on the destination, each on the file system of its path."""
    return [
        Need("the {0} {1}".format("file" if each["file"] else "directory", each["path"]), plan.destination, plan.binds_there[each["path"]], each["size"])
        for each in directories(plan)
        if each["path"] in plan.binds_there
    ]


def folders(plan: Move) -> list[str]:
    """Paths that are made on the destination for them, the deepest first, and that go again if the move is undone."""
    found: dict[str, None] = {}
    for mount in rules.carried(plan.bind_mounts, plan.mounts):
        found.update(dict.fromkeys(plan.binds_there.get(mount["source"], {}).get("missing", [])))
    return sorted(found, key=lambda path: (-path.count("/"), path))


def flags(plan: Move) -> t.Iterator[str]:
    """Flags of files (chattr) in those that are carried: that they can be, and that the destination can have them."""
    for each in directories(plan):
        there = plan.binds_there.get(each["path"], {})
        yield from flags_of_tree(plan, plan.binds_here[each["path"]].get("flags", []), there.get("flags_missing", []), each["path"])


def flags_of_tree(plan: Move, found: t.Iterable[Facts], missing: t.Container[str], place: str) -> t.Iterator[str]:
    for flag in found:
        if not flag["carried"]:
            yield "{0} of {1} has the flag '{2}' (lsattr), and with it a read does not give all that is in a file: copy that to a file without it".format(
                flag["path"], plan.source, flag["name"]
            )
        elif flag["name"] in missing:
            yield (
                "{0} of {1} has the flag '{2}' (lsattr), which the file system for {3} on {4} cannot have: "
                "take it away with chattr, or have another file system there, as ext4".format(flag["path"], plan.source, flag["name"], place, plan.destination)
            )


def told(plan: Move) -> t.Iterator[str]:
    """What an operator has to know of those that are carried."""
    for mount in rules.carried(plan.bind_mounts, plan.mounts):
        yield "the {0} {1} that {2} mounts goes along, and what {3} has of it is kept there as {1}{4}: remove that when it is not needed any more".format(
            mount["kind"], mount["source"], plan.workload, plan.source, rules.KEPT
        )


CHECKS: dict[str, t.Callable[[t.Any], t.Iterator[str]]] = {
    "directories": _refused,
    "bind_mounts": _carried,
    "bind_mounts_same": _same,
    "bind_mounts_taken": _taken,
}
