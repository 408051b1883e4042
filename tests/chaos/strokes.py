# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The faults of one move, each in a thread of its own, since their times may overlap."""

from __future__ import annotations

import threading
import time

from deeds import DEEDS
from plan import Move, Stroke
from scene import Scene


class Strokes:
    def __init__(self, scene: Scene, move: Move, seconds: float) -> None:
        self.scene, self.over = scene, threading.Event()
        self.struck: list[Stroke] = []
        self.errors: list[str] = []
        self.threads = [threading.Thread(target=self._one, args=(stroke, stroke.at * seconds), daemon=True) for stroke in move.strokes]
        for thread in self.threads:
            thread.start()

    def _one(self, stroke: Stroke, after: float) -> None:
        deed = DEEDS[stroke.kind]
        if self.over.wait(after):
            return  # the move was faster than the one before
        self.struck.append(stroke)
        try:
            deed.strike(self.scene, stroke)
            if deed.brief:
                # Lifted when its time has come, and not with the play: the play may wait for just that.
                time.sleep(stroke.seconds)
                deed.lift(self.scene, stroke)
        except Exception as error:
            self.errors.append(f"{stroke}: {error}")

    def end(self) -> None:
        self.over.set()
        for thread in self.threads:
            thread.join(180)
        for stroke in self.struck:
            if not DEEDS[stroke.kind].brief:
                DEEDS[stroke.kind].lift(self.scene, stroke)
