# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which moves are made, and what happens in them: all of it follows from the seed of each round."""

from __future__ import annotations

import random
import typing as t
from dataclasses import dataclass

# So many rounds that follow each other have one shape of workload, which is then made once.
ROUNDS_OF_A_SHAPE = 5
SIDES = ("source", "destination")


@dataclass(frozen=True)
class Shape:
    """A workload: its volumes, of which the first has its ledger; how much memory it has; whether it runs."""

    volumes: tuple[str, ...]  # image, plain, anonymous
    memory: str = "24M"
    runs: bool = True
    health: bool = False

    def __str__(self) -> str:
        return f"{' and '.join(self.volumes)}, {self.memory}{', with a health check' if self.health else ''}{'' if self.runs else ', stopped'}"


SHAPES = (
    Shape(("image",)),
    Shape(("image",), memory="96M"),
    Shape(("plain",)),
    Shape(("plain",), memory="96M"),
    Shape(("anonymous",)),
    Shape(("image", "plain", "anonymous")),
    Shape(("plain", "image")),
    Shape(("anonymous", "image"), health=True),
    Shape(("image",), health=True),
    Shape(("image",), runs=False),
    Shape(("plain",), runs=False),
)


@dataclass(frozen=True)
class Kind:
    """A kind of fault: how often it comes beside the others, what it is done to, and what has to be true of the workload."""

    weight: int
    targets: tuple[str, ...] = ("",)
    sides: tuple[str, ...] = SIDES
    needs: str = ""  # a kind of volume, or one that has not the ledger: "image", "second image"
    only_running: bool = False
    ends_clients: bool = False  # the workload itself ends or begins anew, as was asked for
    ends_workload: bool = False  # until somebody starts it again
    ends_play: bool = False  # its session belongs to no play afterwards
    small_disk: bool = False  # a disk of its own lies over a folder of the host for as long as the move lasts


PROCESSES = ("pcopy", "criu", "runc", "podman", "sshd-session", "python3")
KINDS: dict[str, Kind] = {
    "kill": Kind(7, PROCESSES),
    "stop": Kind(6, (*PROCESSES, "conmon")),
    "kill the play": Kind(2, ends_play=True),
    "interrupt the play": Kind(1, ends_play=True),
    "stop the play": Kind(1),
    "cut": Kind(3),
    "one-way cut": Kind(3),
    "loss": Kind(3),
    "slow link": Kind(2),
    "long queue": Kind(2),
    "full /run": Kind(2),
    "full volumes": Kind(2, sides=("destination",), needs="image", small_disk=True),
    "full plain volumes": Kind(2, sides=("destination",), needs="plain", small_disk=True),
    "full volume": Kind(3, sides=("source",), needs="second image", only_running=True),
    "full sessions": Kind(2, small_disk=True),
    "power cut": Kind(4, ends_clients=True),
    "reboot": Kind(3, ends_clients=True),
    "second play": Kind(2),
    "recovery": Kind(2),
    "stop of the session": Kind(2),
    "podman stop": Kind(1, only_running=True, ends_clients=True, ends_workload=True),
    "podman restart": Kind(1, only_running=True, ends_clients=True),
    "podman pause": Kind(1, only_running=True),
    "podman kill": Kind(1, only_running=True, ends_clients=True, ends_workload=True),
    "podman rename": Kind(1),
    "podman exec": Kind(1, only_running=True),
    "podman prune": Kind(1, sides=("destination",), only_running=True, ends_clients=True),
    "podman rm": Kind(2, sides=("destination",), only_running=True, ends_clients=True),
    "daemon-reload": Kind(1),
    "daemon-reexec": Kind(1),
    "reload of the firewall": Kind(1, ends_clients=True),
    "fsfreeze": Kind(1, needs="image"),
    "volume grown": Kind(1, sides=("source",), needs="image"),
}
# A loss of power takes away the small disks, and a full disk is laid over one folder at a time.
APART = {"power cut", "reboot"} | {kind for kind, row in KINDS.items() if row.small_disk}


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
    seed: int
    shape: Shape
    mode: str
    strokes: tuple[Stroke, ...]

    @property
    def keeps_clients(self) -> bool:
        return self.mode == "live" and not any(KINDS[stroke.kind].ends_clients for stroke in self.strokes)

    @property
    def power_cuts(self) -> int:
        return sum(stroke.kind in ("power cut", "reboot") for stroke in self.strokes)


def may_come(kind: str, shape: Shape, others: t.Collection[str]) -> bool:
    """Whether a fault has a meaning for this workload, and can be lifted beside the others of its move."""
    row = KINDS[kind]
    has = {"", *shape.volumes, *(f"second {volume}" for volume in shape.volumes[1:])}
    return row.needs in has and (shape.runs or not row.only_running) and not (kind in APART and APART & set(others))


def moment(dice: random.Random) -> float:
    """Any time of a play; more often than not after its preflight, when there is something to break."""
    return round(dice.uniform(0.35, 0.95) if dice.random() < 0.7 else dice.random(), 3)


def strokes(dice: random.Random, shape: Shape) -> tuple[Stroke, ...]:
    chosen: list[Stroke] = []
    for _stroke in range(dice.choice((1, 1, 2))):
        possible = [kind for kind in KINDS if may_come(kind, shape, [stroke.kind for stroke in chosen])]
        kind = dice.choices(possible, [KINDS[each].weight for each in possible])[0]
        row = KINDS[kind]
        chosen.append(Stroke(kind, dice.choice(row.targets), dice.choice(row.sides), moment(dice), round(dice.uniform(1, 20), 1)))
    return tuple(sorted(chosen, key=lambda stroke: stroke.at))


def shape_of(seed: int) -> Shape:
    return random.Random(f"shape {seed // ROUNDS_OF_A_SHAPE}").choice(SHAPES)


def round_of(seed: int) -> Move:
    dice, shape = random.Random(seed), shape_of(seed)
    mode = dice.choice(("live", "live", "offline")) if shape.runs else "offline"
    return Move(seed, shape, mode, strokes(dice, shape))
