# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which moves are made, and what happens in them: all of it follows from the seed."""

from __future__ import annotations

import random
import typing as t
from dataclasses import dataclass

# Moves of one workload before it makes place for one of another shape.
MOVES_OF_A_SHAPE = 3
SIDES = ("source", "destination")


@dataclass(frozen=True)
class Shape:
    """A workload: where its ledger is, how much memory it has, and whether it runs."""

    volume: str  # image, plain
    memory: str
    runs: bool = True


SHAPES = (
    Shape("image", "24M"),
    Shape("image", "96M"),
    Shape("plain", "24M"),
    Shape("plain", "96M"),
    Shape("image", "24M", runs=False),
    Shape("plain", "24M", runs=False),
)


@dataclass(frozen=True)
class Kind:
    """A kind of fault: how often it comes beside the others, what it is done to, and what has to be true of the workload."""

    weight: int
    targets: tuple[str, ...] = ("",)
    volumes: tuple[str, ...] = ("image", "plain")
    only_running: bool = False


PROCESSES = ("pcopy", "criu", "runc", "podman", "sshd-session", "rsync")
KINDS: dict[str, Kind] = {
    "kill": Kind(6, PROCESSES),
    "stop": Kind(5, (*PROCESSES, "conmon")),
    "kill the play": Kind(2),
    "cut": Kind(3),
    "one-way cut": Kind(3),
    "loss": Kind(3),
    "full /run": Kind(2),
    "full volumes": Kind(2, volumes=("image",)),
    "power cut": Kind(3),
    "second play": Kind(2),
    "podman stop": Kind(1, only_running=True),
    "podman restart": Kind(1, only_running=True),
    "podman rename": Kind(1),
    "podman exec": Kind(1, only_running=True),
    "podman prune": Kind(1),
    "daemon-reload": Kind(1),
    "fsfreeze": Kind(1, volumes=("image",)),
}
# A power cut takes away what these lay over a host, and its own healing would undo the other's.
APART = {"full volumes": {"power cut", "full volumes"}, "power cut": {"power cut", "full volumes"}}


@dataclass(frozen=True)
class Stroke:
    """One fault: when, as a part of the time that a move takes, and for how long, if it is lifted by itself."""

    kind: str
    target: str
    side: str
    at: float
    seconds: float

    def __str__(self) -> str:
        return f"{self.kind}{f' {self.target}' if self.target else ''} on the {self.side} at {self.at:.0%}, {self.seconds:.0f} s"


@dataclass(frozen=True)
class Move:
    number: int
    shape: Shape
    mode: str
    strokes: tuple[Stroke, ...]
    new_shape: bool = False


def may_come(kind: str, shape: Shape, others: t.Collection[str]) -> bool:
    """Whether a fault has a meaning for this workload, and can be lifted beside the others of its move."""
    row = KINDS[kind]
    return shape.volume in row.volumes and (shape.runs or not row.only_running) and not APART.get(kind, set()) & set(others)


def strokes(dice: random.Random, shape: Shape) -> tuple[Stroke, ...]:
    chosen: list[Stroke] = []
    for _stroke in range(dice.choice((1, 1, 2))):
        possible = [kind for kind in KINDS if may_come(kind, shape, [stroke.kind for stroke in chosen])]
        kind = dice.choices(possible, [KINDS[each].weight for each in possible])[0]
        # Late moments are as likely as early ones: the cutover is in the second half of a play.
        chosen.append(Stroke(kind, dice.choice(KINDS[kind].targets), dice.choice(SIDES), round(dice.random(), 3), round(dice.uniform(1, 20), 1)))
    return tuple(sorted(chosen, key=lambda stroke: stroke.at))


def moves(seed: int) -> t.Iterator[Move]:
    """Without end. The first of a shape tells how long a move of it takes: nothing happens in it."""
    dice = random.Random(seed)
    number = 0
    while True:
        shape = dice.choice(SHAPES)
        for nth in range(MOVES_OF_A_SHAPE + 1):
            number += 1
            mode = dice.choice(("live", "live", "offline")) if shape.runs else "offline"
            yield Move(number, shape, mode, strokes(dice, shape) if nth else (), new_shape=nth == 0)
