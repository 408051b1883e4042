# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is done to a container's snapshots and backups, and what strikes it: all of it follows from the seed of each round.

Six rounds from a seed that six divides have every deed, and every kind of stroke twice.
"""

from __future__ import annotations

import random
import typing as t
from dataclasses import dataclass

from plan import Stroke

# Going back changes the most, and comes twice. A backup with a policy prunes.
DEEDS = ("snapshot", "rollback", "rollback", "delete", "backup", "prune")
BLOCK = len(DEEDS)
# As a part of the time that the deed takes: before, nothing has begun. A policy is applied when the backup has been taken.
USUALLY, MOMENTS = (0.25, 1), {"prune": (0.5, 1)}


@dataclass(frozen=True)
class Kind:
    """The targets of a stroke, and the seconds that it lasts: a host is without power, or a process has run when it is killed."""

    targets: tuple[str, ...]
    seconds: tuple[float, ...]


KINDS = {
    # The helper; the module, which has the helper do one step after the other.
    "kill what runs": Kind(("pcopy", "pcopy", "pcopy", "python3"), (0, 0, 0.02, 0.05, 0.1, 0.3)),
    "kill the play": Kind(("",), (0,)),
    "reboot": Kind(("",), (0, 1, 3)),
}


@dataclass(frozen=True)
class Round:
    seed: int
    deed: str
    memory: bool  # with a snapshot; a way back has it if the snapshot does
    choice: float  # which of those that are there
    strokes: tuple[Stroke, ...]

    def __str__(self) -> str:
        return f"{self.deed}{' with memory' if self.memory else ''}: {self.strokes[0]}"

    def of(self, those: t.Sequence[str]) -> str:
        return those[int(self.choice * len(those))]


def round_of(seed: int) -> Round:
    together, dice = random.Random(f"block {seed // BLOCK}"), random.Random(seed)
    deeds = together.sample(DEEDS, BLOCK)
    kinds = together.sample([*KINDS] * (BLOCK // len(KINDS)), BLOCK)
    deed, kind = deeds[seed % BLOCK], kinds[seed % BLOCK]
    at = dice.uniform(*MOMENTS.get(deed, USUALLY))
    stroke = Stroke(kind, dice.choice(KINDS[kind].targets), "source", round(at, 3), dice.choice(KINDS[kind].seconds))
    return Round(seed, deed, deed in ("snapshot", "rollback") and dice.random() < 0.5, dice.random(), (stroke,))
