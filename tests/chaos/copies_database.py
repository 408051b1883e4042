# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A writer that keeps a ledger in a database which goes back in time, and what the ledger may hold at each moment.

The database is one line of numbers until it goes back. Then another line begins with the numbers that it holds again, and those of the line that was left
must not come back, unless the database goes back to that line.
"""

from __future__ import annotations

import contextlib
import threading
import time
import typing as t
from dataclasses import dataclass

import psycopg
from ledger import TABLE

# An answer that takes longer comes from nobody. A database that stands still for a snapshot with memory may take a while.
SILENCE_MS = 5000
ANSWER_SECONDS = 90


@dataclass(frozen=True)
class Moment:
    """What the ledger may hold at a moment: no less than what was acknowledged before it, and no more than what had been given out after it."""

    acknowledged: frozenset[int]
    base: frozenset[int]  # of the line, when it began
    since: int  # the last number that had been given out by then
    given: int

    def holds(self, rows: t.Sequence[int]) -> str:
        """What is wrong with these rows; empty if nothing is."""
        found = set(rows)
        if len(found) != len(rows):
            return f"{len(rows) - len(found)} numbers are there twice"
        lost = sorted(self.acknowledged - found)
        if lost:
            return f"{len(lost)} that were acknowledged are lost: {lost[:5]}"
        foreign = sorted(number for number in found - self.base if not self.since < number <= self.given)
        return f"{len(foreign)} are of another line: {foreign[:5]}" if foreign else ""


class Writer:
    """Writes number after number, each acknowledged before the next.

    When it loses its connection it makes another only after it has been still: until then it is not known from which moment the database goes on.
    """

    def __init__(self, address: str) -> None:
        self.dsn = f"host={address} user=postgres dbname=postgres"
        self.given = 0
        self.since, self.base = 0, frozenset[int]()
        self.acknowledged: set[int] = set()
        self.lock, self.over = threading.Lock(), threading.Event()
        self.welcome = True
        self.connection: psycopg.Connection | None = None
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def connect(self) -> psycopg.Connection:
        return psycopg.connect(self.dsn, autocommit=True, connect_timeout=3, tcp_user_timeout=SILENCE_MS, application_name="ledger")

    def _run(self) -> None:
        while not self.over.is_set():
            with self.lock:
                written = self._write()
            time.sleep(0.01 if written else 0.2)

    def _write(self) -> bool:
        had = self.connection is not None
        if not had and not self.welcome:
            return False
        try:
            if self.connection is None:
                self.connection = self.connect()
                self.connection.execute(TABLE)
            # Never the same number again: one that got no answer may have been committed all the same.
            self.given += 1
            self.connection.execute("INSERT INTO ledger (number) VALUES (%s)", (self.given,))
        except psycopg.Error:
            self._hang_up()
            self.welcome = not had
            return False
        self.acknowledged.add(self.given)
        return True

    def _hang_up(self) -> None:
        if self.connection is not None:
            self.connection.close()
        self.connection = None

    @contextlib.contextmanager
    def still(self) -> t.Iterator[None]:
        """Nothing is written, and no connection is open."""
        if not self.lock.acquire(timeout=ANSWER_SECONDS):
            raise AssertionError("the database has stood still for {0} s".format(ANSWER_SECONDS))
        try:
            self._hang_up()
            yield
            self.welcome = True
        finally:
            self.lock.release()

    def rows(self) -> list[int]:
        """While it is still."""
        end = time.monotonic() + ANSWER_SECONDS
        while True:
            try:
                with self.connect() as connection:
                    return [number for (number,) in connection.execute("SELECT number FROM ledger")]
            except psycopg.Error:
                if time.monotonic() > end:
                    raise
                time.sleep(0.2)

    def moment(self) -> Moment:
        return Moment(frozenset(self.acknowledged), self.base, self.since, self.given)

    def has_gone_back(self, rows: t.Iterable[int]) -> None:
        """Another line begins, while it is still."""
        self.base = frozenset(rows)
        self.acknowledged, self.since = set(self.base), self.given

    def writes(self) -> bool:
        before = len(self.acknowledged)
        time.sleep(0.1)
        return len(self.acknowledged) > before

    def end(self) -> None:
        self.over.set()
        self.thread.join(ANSWER_SECONDS)
        self._hang_up()
