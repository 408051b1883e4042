# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which workload goes to which host, and with whom.

Pure functions from the facts about the hosts to a plan, or to the sentences that say why there is none. A plan is whole: it
places every workload or none, because a host that is half empty cannot be switched off.

A host takes a workload if it answers, is not under maintenance, has the labels that the workload needs, holds nothing that
is to stay apart from it, has nothing of its name, has what runs it (podman, Docker, OpenVZ, libvirt), and has the memory and the disk that the
workload uses now, beside the reserve. Of those hosts the one is taken that keeps the larger share of its room free, in hundredths, and of equals
the one with fewer containers. Large workloads are placed first. Where a choice turns out to leave no room for a later
workload, it is taken back.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field, replace

from .sizes import format_size

# Labels of containers that the planner knows, as `podman create --label` sets them.
NEEDS = "handover.needs"
APART = "handover.apart"
WAVE = "handover.wave"

# The kind of a workload, its host's requirement, and the driver of the role `migrate` that moves it.
CONTAINER, DOCKER, OPENVZ, GUEST = "container", "docker", "openvz", "guest"
# virsh's words for a guest that does not run, and of which nothing but its definition can move.
STOPPED_GUEST = ("shut off", "crashed")
ENGINES = {CONTAINER: "podman", DOCKER: "Docker", OPENVZ: "OpenVZ", GUEST: "libvirt"}
DRIVERS = {CONTAINER: "podman", DOCKER: "docker", OPENVZ: "openvz", GUEST: ""}
NAMES = {CONTAINER: "a container", DOCKER: "a container of Docker's", OPENVZ: "a container of OpenVZ's", GUEST: "a guest"}

# The two parts of a move: until it copies, and from when it has copied. A guest has only the latter.
BEGIN, FINISH = "begin", "finish"
PARTS = {CONTAINER: (BEGIN, FINISH), DOCKER: (BEGIN, FINISH), OPENVZ: (BEGIN, FINISH), GUEST: (FINISH,)}

# Choices that are taken back before the search is given up. Where there is room to spare, none is.
CHOICES = 1000

# Sessions of the source side whose workload may run on the destination already: only that host can bring the move to its end.
PAST_RELEASE = ("released", "resumed", "settled", "done", "in_doubt")


class NoPlan(Exception):
    """Why nothing can be moved, as sentences."""

    def __init__(self, sentences: t.Sequence[str]) -> None:
        super().__init__("; ".join(sentences))
        self.sentences = list(sentences)


@dataclass(frozen=True)
class Workload:
    """A workload to move."""

    name: str
    source: str
    memory: int = 0
    disk: int = 0
    running: bool = True
    needs: frozenset[str] = frozenset()
    apart: frozenset[str] = frozenset()
    wave: str = ""
    destination: str = ""  # where it has to go; empty: where there is room
    resumed: bool = False  # an earlier move has begun to bring it there
    session: str = ""  # that move's session
    kind: str = CONTAINER
    storage: str = ""  # of a guest: whether its disks are shared, or copied
    disks: tuple[str, ...] = ()  # those that are copied
    members: frozenset[str] = frozenset()  # of several containers that move as one, the names of all
    project: str = ""  # whose containers move beside each other
    parts: tuple[Workload, ...] = ()  # of a project that moves as a wave, its containers
    bridges: frozenset[tuple[str, str]] = frozenset()  # its project, and each bridge of its host alone that it is on


@dataclass(frozen=True)
class Host:
    """Where it may go."""

    name: str
    memory: int = 0
    disk: int = 0
    labels: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()  # of the workloads that it has
    kinds: frozenset[str] = frozenset([CONTAINER])  # of workloads that it can run
    apart: t.Mapping[str, str] = field(default_factory=dict)  # group that stays apart → the workload that is of it
    obstacle: str = ""  # why nothing may be placed here, or empty


@dataclass(frozen=True)
class Move:
    """One line of a plan."""

    workload: Workload
    destination: str


def on_bridges(workloads: t.Sequence[Workload]) -> list[Workload]:
    """Those of a project that are on one bridge as one, which go side by side as a wave: what they have with each other over it stays within a host."""
    found: list[Workload] = []
    for workload in workloads:
        near = [each for each in found if _beside(each, workload)]
        found = [each for each in found if each not in near]
        found.append(_as_wave([part for each in [*near, workload] for part in each.parts or (each,)]) if near else workload)
    return found


def _beside(one: Workload, other: Workload) -> bool:
    same = (one.source, one.destination) == (other.source, other.destination)
    return same and bool(one.bridges & other.bridges) and not one.apart & other.apart


def _as_wave(parts: t.Sequence[Workload]) -> Workload:
    project = min(parts[0].bridges)[0]
    return replace(
        parts[0],
        # A container that is none of them may have the project's name.
        name="+".join(sorted(each.name for each in parts)),
        memory=sum(each.memory for each in parts),
        disk=sum(each.disk for each in parts),
        needs=frozenset(label for each in parts for label in each.needs),
        apart=frozenset(group for each in parts for group in each.apart),
        resumed=any(each.resumed for each in parts),
        members=frozenset(each.name for each in parts),
        bridges=frozenset(bridge for each in parts for bridge in each.bridges),
        parts=tuple(replace(each, wave=project) for each in parts),
    )


def place(workloads: t.Sequence[Workload], hosts: t.Sequence[Host], spare_memory: int = 0, spare_disk: int = 0) -> list[Move]:
    """Where each of them goes; NoPlan if one of them has no place."""
    order = sorted(workloads, key=lambda each: (not each.destination, -max(_share(each.memory, hosts, "memory"), _share(each.disk, hosts, "disk")), each.name))
    search = _Search({host.name: _Room(host, spare_memory, spare_disk) for host in hosts})
    if not search.place(order, 0):
        raise NoPlan(search.reasons())
    # Those of a project go where there is room for all of them.
    return [
        Move(part, search.chosen[each.name]) for each in sorted(workloads, key=lambda each: (each.source, each.name)) for part in each.parts or (each,)
    ]


def _share(amount: int, hosts: t.Sequence[Host], resource: str) -> float:
    most = max((getattr(host, resource) for host in hosts), default=0)
    return amount / most if most else 0.0


class _Room:
    """A host, and the plan's workloads on it so far."""

    def __init__(self, host: Host, spare_memory: int, spare_disk: int) -> None:
        self.host = host
        self.memory, self.disk = host.memory - spare_memory, host.disk - spare_disk
        self.names = set(host.names)
        self.apart = dict(host.apart)

    def put(self, workload: Workload) -> None:
        self.memory -= workload.memory
        self.disk -= workload.disk
        self.names |= {workload.name} | workload.members
        self.apart.update(dict.fromkeys(workload.apart, workload.name))

    def take(self, workload: Workload) -> None:
        """Undoes put."""
        self.memory += workload.memory
        self.disk += workload.disk
        self.names -= ({workload.name} | workload.members) - self.host.names
        for group in workload.apart:
            del self.apart[group]

    def refusal(self, workload: Workload) -> str:
        """Why the workload cannot be here; empty if it can."""
        near = sorted(workload.apart & self.apart.keys())
        if self.host.name == workload.source:
            return "it is there"
        if workload.resumed:
            return ""
        if self.host.obstacle:
            return self.host.obstacle
        taken = sorted(({workload.name} | workload.members) & self.names)
        if taken:
            return "it has a workload of that name" if taken == [workload.name] else "it has a container named {0}".format(taken[0])
        if workload.kind not in self.host.kinds:
            return "it has no {0}".format(ENGINES[workload.kind])
        if not workload.needs <= self.host.labels:
            return "it has no label {0}".format(", ".join(sorted(workload.needs - self.host.labels)))
        if near:
            return "{0} is there, which is to stay apart from it ({1})".format(self.apart[near[0]], near[0])
        if workload.memory > self.memory:
            return "{0} of memory is free there and {1} is needed".format(format_size(max(0, self.memory)), format_size(workload.memory))
        if workload.disk > self.disk:
            return "{0} of disk is free there and {1} is needed".format(format_size(max(0, self.disk)), format_size(workload.disk))
        return ""

    def left(self, workload: Workload) -> float:
        """The smaller share of its room that stays free."""
        return min((self.memory - workload.memory) / max(1, self.host.memory), (self.disk - workload.disk) / max(1, self.host.disk))


class _Search:
    """Depth first, the best host first."""

    def __init__(self, rooms: dict[str, _Room]) -> None:
        self.rooms = rooms
        self.chosen: dict[str, str] = {}
        self.taken_back = 0
        self.deepest = -1
        self.stuck: list[str] = []

    def place(self, order: t.Sequence[Workload], at: int) -> bool:
        # Not by recursion: a fleet has more workloads than Python has stack.
        trail: list[t.Iterator[str]] = []
        while at < len(order):
            workload = order[at]
            if len(trail) == at:
                trail.append(iter(self._candidates(workload, at)))
            else:
                self.rooms[self.chosen.pop(workload.name)].take(workload)
                self.taken_back += 1
            name = next(trail[at], None) if self.taken_back <= CHOICES else None
            if name is None:
                trail.pop()
                at -= 1
                if at < 0 or self.taken_back > CHOICES:
                    return False
                continue
            self.rooms[name].put(workload)
            self.chosen[workload.name] = name
            at += 1
        return True

    def _candidates(self, workload: Workload, at: int) -> list[str]:
        if workload.destination and workload.destination not in self.rooms:
            self._note(workload, at, ["{0} is not among the hosts".format(workload.destination)])
            return []
        asked = [self.rooms[workload.destination]] if workload.destination else list(self.rooms.values())
        refusals = {room.host.name: room.refusal(workload) for room in asked}
        fitting = [room for room in asked if not refusals[room.host.name]]
        if not fitting:
            self._note(workload, at, ["{0}: {1}".format(name, why) for name, why in refusals.items() if name != workload.source or len(refusals) == 1])
        return [room.host.name for room in sorted(fitting, key=lambda room: (-round(room.left(workload), 2), len(room.names), room.host.name))]

    def _note(self, workload: Workload, at: int, whys: t.Sequence[str]) -> None:
        """The first workload that stuck at the furthest point says most."""
        if at > self.deepest:
            self.deepest = at
            self.stuck = ["there is no host for {0}: {1}".format(workload.name, "; ".join(whys) or "no other host was asked")]

    def reasons(self) -> list[str]:
        return self.stuck or ["no plan was found in {0} attempts: name the destination of some workloads, or keep less room free".format(CHOICES)]


def batches(moves: t.Sequence[Move], size: int, most: int) -> list[list[Move]]:
    """The moves in groups of `size` that do a step together; those of one wave are never parted, and are `most` at most."""
    waves: dict[str, list[Move]] = {}
    for move in moves:
        waves.setdefault(move.workload.wave or "\0" + move.workload.name, []).append(move)
    for wave in waves.values():
        guests = [move.workload.name for move in wave if move.workload.wave and move.workload.kind == GUEST]
        if guests:
            raise NoPlan(["{0} is a guest, and waves are of containers: take it out of the wave {1}".format(guests[0], wave[0].workload.wave)])
        hosts = sorted({move.workload.source for move in wave})
        if len(hosts) > 1:
            raise NoPlan(
                [
                    "the wave {0} is on {1}: what freezes at the same moment has to be on one host: bring it together first".format(
                        wave[0].workload.wave, " and ".join(hosts)
                    )
                ]
            )
        if len(wave) > most:
            name = wave[0].workload.wave
            raise NoPlan(["the wave {0} has {1} workloads and at most {2} go side by side: raise handover_serial".format(name, len(wave), most)])
    groups: list[list[Move]] = []
    for wave in sorted(waves.values(), key=lambda each: -len(each)):
        group = next((each for each in groups if len(each) + len(wave) <= size), None)
        if group is None:
            groups.append(group := [])
        group.extend(wave)
    return groups


def steps(sizes: t.Sequence[int], most: int) -> list[tuple[str, int]]:
    """When which batch, by its number from 0, is begun and finished, if at most `most` moves are on their way at once.

    A batch begins as soon as there is room for it, so that the link has something to carry while others are prepared and cut over; those that
    have copied for longest are finished first.
    """
    order: list[tuple[str, int]] = []
    under_way: list[int] = []
    for number, size in enumerate(sizes):
        while under_way and sum(sizes[each] for each in under_way) + size > most:
            order.append((FINISH, under_way.pop(0)))
        order.append((BEGIN, number))
        under_way.append(number)
    return order + [(FINISH, number) for number in under_way]
