# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The fault matrix: every step of the protocol, and everything that may happen while a move is exactly there."""

from __future__ import annotations

import random
import typing as t
from dataclasses import dataclass

# What a step is recognised by: a task of the play, which is stopped there, or a state in which a helper is told to stop.
TASKS = {
    "preflight": "Preflight | Find the obstacles",
    "prepare": "Prepare | Listen on the destination",
    "settle": "Settle | Make the destination its home",
    "cleanup": "Cleanup | Remove the workload and its volumes from the source",
}
STATES = ("presync", "barrier", "frozen", "flushed", "prepared", "released", "resumed")
STEPS = ("preflight", "prepare", *STATES, "settle", "cleanup")

# What happens, and the side whose helper stands still when it does: it is the one that it happens to.
FAULTS = {
    "sender killed": "source",
    "receiver killed": "destination",
    "controller killed": "source",
    "dumping CRIU killed": "source",
    "restoring CRIU killed": "destination",
    "source loses power": "source",
    "destination loses power": "destination",
    "network cut, later healed": "source",
    "destination disk full": "destination",
    "restore fails": "destination",
    "byte flipped on the wire": "source",
    "freeze command hangs": "source",
    "offline: source loses power": "source",
    "offline: destination loses power": "destination",
}
# Those of an engine that has a daemon, which ends what it runs when it is restarted, and starts it again by its restart policy.
DAEMON_FAULTS = {
    "source's daemon killed": "source",
    "destination's daemon killed": "destination",
    "source's daemon restarted": "source",
    "destination's daemon restarted": "destination",
    "offline: source's daemon restarted": "source",
}
SIDES = {**FAULTS, **DAEMON_FAULTS}
# A fault with this beginning strikes a move in the offline mode: the workload is stopped here and started there.
OFFLINE = "offline: "


@dataclass(frozen=True)
class Case:
    """One cell."""

    fault: str
    step: str

    @property
    def side(self) -> str:
        return SIDES[self.fault]

    @property
    def variables(self) -> dict[str, t.Any]:
        """What the move is told besides. A host without power is not waited for as long as one that is busy."""
        mode = {"migrate_mode": "offline"} if self.fault.startswith(OFFLINE) else {}
        return {**mode, **({"migrate_cutover_timeout": 35} if self.fault.endswith("loses power") else {})}

    @property
    def name(self) -> str:
        return f"{self.fault} at {self.step}"


def cases(of: t.Iterable[str] = tuple(FAULTS)) -> list[Case]:
    """All of them, fault by fault."""
    return [Case(fault, step) for fault in of for step in STEPS]


def sample(count: int, seed: int, of: t.Iterable[str] = tuple(FAULTS)) -> list[Case]:
    """So many of them: each of these faults as often as any other, every step, and which with which decided by the seed."""
    dice = random.Random(seed)
    faults, steps, distances = list(of), list(STEPS), list(range(len(STEPS)))
    for each in (faults, steps, distances):
        dice.shuffle(each)
    # Diagonals of the shuffled table.
    chosen = [Case(fault, steps[(at + distance) % len(steps)]) for distance in distances for at, fault in enumerate(faults)]
    return sorted(chosen[:count], key=cases(SIDES).index)


def asked(words: t.Mapping[str, str], of: t.Collection[str] = tuple(FAULTS)) -> list[Case]:
    """What the environment asks for: FAULTS=all, a number of them (with FAULTS_SEED), the name of one, or
    words, with commas between them, of which a case's name has to contain one."""
    what = words.get("FAULTS", "all")
    if what.isdigit():
        return sample(int(what), int(words.get("FAULTS_SEED", "1")), of)
    named = [case for case in cases(of) if case.name == what]
    words_of = [word.strip() for word in what.split(",")]
    return named or [case for case in cases(of) if what == "all" or any(word in case.name for word in words_of)]
