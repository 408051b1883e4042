# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Settings that the kernel keeps for a container's tasks and sockets, which CRIU's dump does not hold."""

from __future__ import annotations

import os
import re
import typing as t

from .._core.host import has_own_namespace, numbers, processors_left, read_text
from .container_facts import name_of

# Groups that every host is in: all hosts, of IPv4 and of IPv6 by interface and by link.
_EVERY_HOST = ("010000E0", "ff020000000000000000000000000001", "ff010000000000000000000000000001")
# The kernel joins all of these on each interface that it forwards for.
_EVERY_ROUTER = ("ff010000000000000000000000000002", "ff020000000000000000000000000002", "ff050000000000000000000000000002")
_SOLICITED_NODE = "ff0200000000000000000001ff"

Found = t.List[t.Dict[str, t.Any]]


def multicast_groups(pid: int, proc: str = "/proc") -> list[str]:
    """Interfaces in whose multicast groups a program has joined, in the network namespace of a process; none where that is the host's.

    Those that every host is in do not count, nor those that the kernel of a router joins by itself.
    """
    if not has_own_namespace(pid, "net", proc):
        return []
    found, interface = set(), ""
    for line in read_text(os.path.join(proc, str(pid), "net/igmp")).splitlines()[1:]:
        words = line.split()
        if line[:1].isdigit():
            interface = words[1].rstrip(":")
        elif words and words[0] not in _EVERY_HOST:
            found.add(interface)
    members: dict[str, dict[str, int]] = {}
    for line in read_text(os.path.join(proc, str(pid), "net/igmp6")).splitlines():
        words = line.split()
        if len(words) > 3 and words[2] not in _EVERY_HOST and not words[2].startswith(_SOLICITED_NODE):
            members.setdefault(words[1], {})[words[2]] = int(words[3])
    for interface, groups in members.items():
        of_router = {group for group in _EVERY_ROUTER if groups.get(group) == 1}
        if set(groups) - (of_router if len(of_router) == len(_EVERY_ROUTER) else set()):
            found.add(interface)
    return sorted(found)


def pinned(pids: t.Iterable[int], proc: str = "/proc", root: str = "/") -> Found:
    """Processes with a thread that may not run on all processors that its cgroup leaves it, and on which these may.

    Those that the host keeps from its own init, and so from all that it starts, do not count.
    """
    of_init = _processors(os.path.join(proc, "1"))
    found = []
    for pid in pids:
        left = processors_left(pid, proc, root)
        left = left & of_init or left
        bound = [processors for processors in map(_processors, _tasks(pid, proc)) if processors and not processors >= left]
        if bound:
            found.append({"process": name_of(pid, proc), "pid": pid, "processors": sorted(set().union(*bound))})
    return found


def _tasks(pid: int, proc: str) -> list[str]:
    directory = os.path.join(proc, str(pid), "task")
    try:
        return [os.path.join(directory, task) for task in os.listdir(directory)]
    except OSError:
        return []


def _processors(task: str) -> set[int]:
    match = re.search(r"^Cpus_allowed_list:\s+(\S+)", read_text(os.path.join(task, "status")), re.M)
    return set(numbers(match.group(1))) if match else set()
