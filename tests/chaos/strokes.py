# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The faults of one play, each in a thread of its own, since their times may overlap."""

from __future__ import annotations

import threading
import time
import typing as t

from deeds import DEEDS, Deed
from plan import Stroke
from scene import Scene


class Strokes:
    def __init__(self, scene: Scene, strokes: t.Sequence[Stroke], seconds: float, deeds: t.Mapping[str, Deed] | None = None) -> None:
        self.scene, self.deeds, self.over = scene, deeds or DEEDS, threading.Event()
        self.struck: list[Stroke] = []
        self.errors: list[str] = []
        self.threads = [threading.Thread(target=self._one, args=(stroke, stroke.at * seconds), daemon=True) for stroke in strokes]
        for thread in self.threads:
            thread.start()

    def _one(self, stroke: Stroke, after: float) -> None:
        deed = self.deeds[stroke.kind]
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
            if not self.deeds[stroke.kind].brief:
                self.deeds[stroke.kind].lift(self.scene, stroke)
