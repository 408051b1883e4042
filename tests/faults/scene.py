# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A move that stands still at its step, until it is told to go on."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from fleet import PCOPY, SESSIONS, Fleet, Host, Play, until
from matrix import STATES, TASKS, Case


@dataclass
class Scene:
    """The move of a case, from source to destination."""

    fleet: Fleet
    source: Host
    destination: Host
    session: str = ""
    step: str = ""
    play: Play | None = field(default=None)
    others: list[Play] = field(default_factory=list)  # of other operators

    def stand_still(self, case: Case, **variables: t.Any) -> None:
        """Begins the move, and returns when it has come to the step and no further."""
        self.step = case.step
        pause_at = {case.side: case.step} if case.step in STATES else {}
        self.session, play = self.fleet.begin(self.source, pause_at, TASKS.get(case.step, ""), **variables)
        self.play = play
        host = self.source if case.side == "source" else self.destination
        reached = play.stopped.is_set if case.step in TASKS else lambda: host.paused(self.session)
        until(f"the move comes to {case.step}", lambda: reached() or play.process.poll() is not None, 600)
        assert reached(), play.text[-4000:]

    def go_on(self) -> None:
        for host in (self.source, self.destination):
            host.ask(f"test ! -d {SESSIONS}/{self.session} || {PCOPY} session continue {SESSIONS}/{self.session}", 30)
        self.play.go_on()

    def end(self) -> None:
        """Nothing of the play stays, whatever the test came to."""
        for play in (self.play, *self.others):
            if play is not None:
                play.kill()
