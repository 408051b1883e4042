# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who writes to the ledger, and how far it has come."""

from __future__ import annotations

import itertools
import threading
import typing as t

from fleet import LINE, Fleet, Host


class Lines:
    """What was seen of a ledger on one host: a line has a number and its time, by the one clock that all hosts of the lab have."""

    def __init__(self, host: str, its_own: bool) -> None:
        self.host, self.its_own = host, its_own
        self.first = ""
        self.highest = 0
        self.written: list[tuple[int, str, int]] = []  # when, where, which line

    def see(self, line: str) -> None:
        """A last line; one that is not whole is none."""
        whole = LINE.fullmatch(line.strip())
        if whole is None:
            return
        self.highest = max(self.highest, int(whole[1]))
        # What the destination shows first came with the copy, and nobody wrote it there.
        self.first = self.first or whole[0]
        if self.its_own or whole[0] != self.first:
            self.written.append((int(whole[2]), self.host, int(whole[1])))


class Turn(t.NamedTuple):
    """A time in which nobody else wrote: the first and the last line that were seen of it."""

    host: str
    first: int
    last: int
    began: int  # ns
    ended: int


def turns(*seen: Lines) -> list[Turn]:
    """Who wrote, in the order of time: if one of them is there again after another, both were at it."""
    found = []
    for host, written in itertools.groupby(sorted(each for lines in seen for each in lines.written), key=lambda each: each[1]):
        lines = list(written)
        found.append(Turn(host, lines[0][2], lines[-1][2], lines[0][0], lines[-1][0]))
    return found


class Watch:
    """Looks all the time at the ledger on both hosts."""

    def __init__(self, fleet: Fleet, source: Host) -> None:
        self.over = threading.Event()
        self.seen = [Lines(host.name, host is source) for host in fleet.hosts]
        self.threads = [threading.Thread(target=self._follow, args=each, daemon=True) for each in zip(fleet.hosts, self.seen)]
        for thread in self.threads:
            thread.start()

    def _follow(self, host: Host, seen: Lines) -> None:
        while not self.over.is_set():
            with host.follow() as ssh:
                assert ssh.stdout is not None
                for line in ssh.stdout:
                    seen.see(line)
                    if self.over.is_set():
                        ssh.kill()
                        break
            self.over.wait(0.5)

    def end(self) -> None:
        self.over.set()
        for thread in self.threads:
            thread.join(30)

    @property
    def highest(self) -> int:
        return max(lines.highest for lines in self.seen)

    @property
    def turns(self) -> list[Turn]:
        return turns(*self.seen)
