#!/usr/bin/env python
# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Keeps a ledger in a database: one row a commit, with a running number, and beside it a file of the numbers whose commit was acknowledged.

    ledger.py write --dsn DSN --acknowledged FILE    until SIGTERM; then prints what it saw, as JSON. With --one-connection
                                                     the first that it loses ends it
    ledger.py check --dsn DSN --acknowledged FILE    compares both, prints the result as JSON, and fails if a commit was lost

A number that is in the file and not in the table is a commit that was promised and lost. A number that is in the table twice was
written by two copies of the database. The table has no key, so that the database cannot hide the second.
"""

from __future__ import annotations

import argparse
import collections
import datetime
import json
import signal
import sys
import time
import typing as t
from pathlib import Path

import psycopg

TABLE = "CREATE TABLE IF NOT EXISTS ledger (number bigint NOT NULL, written timestamptz NOT NULL DEFAULT clock_timestamp())"

# An answer that takes longer than this comes from nobody: the connection is given up and made again.
SILENCE_SECONDS = 30


class Writer:
    """Writes until it is told to stop, and remembers what a user of the database would have noticed."""

    def __init__(self, dsn: str, acknowledged: Path, interval: float, one_connection: bool = False) -> None:
        self.dsn = dsn
        self.one_connection = one_connection
        self.acknowledged = acknowledged
        self.interval = interval
        self.number = max(read_numbers(acknowledged), default=0)
        self.commits = 0
        self.reconnects = 0
        self.errors: list[str] = []
        self.lost_at: list[str] = []
        self.stall = 0.0
        self.stall_after = 0
        self.stopped = False

    def stop(self, *_signal: t.Any) -> None:
        self.stopped = True

    def run(self) -> dict[str, t.Any]:
        connection: psycopg.Connection | None = None
        lost_one = False
        last: float | None = None
        with self.acknowledged.open("a", encoding="ascii") as log:
            while not self.stopped:
                # Never the same number again: one that got no answer may have been committed all the same.
                self.number += 1
                try:
                    if connection is None:
                        connection = connect(self.dsn)
                        connection.execute(TABLE)
                        self.reconnects += lost_one
                    connection.execute("INSERT INTO ledger (number) VALUES (%s)", (self.number,))
                except psycopg.OperationalError as error:
                    if connection is not None:
                        lost_one = True
                        self.lost_at.append(datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="milliseconds"))
                    self.stopped = self.stopped or (self.one_connection and lost_one)
                    connection = self._give_up(connection, error)
                    time.sleep(0.1)
                    continue
                now = time.monotonic()
                log.write(f"{self.number}\n")
                log.flush()
                self.commits += 1
                if last is not None and now - last > self.stall:
                    self.stall, self.stall_after = now - last, self.number
                last = now
                time.sleep(self.interval)
        if connection is not None:
            connection.close()
        return {
            "commits": self.commits,
            "last": self.number,
            "reconnects": self.reconnects,
            "lost_connections": len(self.lost_at),
            "connection_lost_at": self.lost_at,
            "errors": self.errors,
            "longest_stall_ms": round(self.stall * 1000, 1),
            "longest_stall_before": self.stall_after,
        }

    def _give_up(self, connection: psycopg.Connection | None, error: psycopg.Error) -> None:
        sentence = " ".join(str(error).split())
        if sentence not in self.errors:
            self.errors.append(sentence)
        if connection is not None:
            connection.close()


def connect(dsn: str) -> psycopg.Connection:
    return psycopg.connect(dsn, autocommit=True, connect_timeout=5, tcp_user_timeout=SILENCE_SECONDS * 1000, application_name="ledger")


def read_numbers(acknowledged: Path) -> list[int]:
    return [int(line) for line in acknowledged.read_text(encoding="ascii").split()] if acknowledged.exists() else []


def compare(acknowledged: t.Iterable[int], rows: t.Iterable[int]) -> dict[str, t.Any]:
    """What the client was promised against what the database holds."""
    promised, held = set(acknowledged), collections.Counter(rows)
    return {
        "acknowledged": len(promised),
        "rows": sum(held.values()),
        "lost": sorted(promised - held.keys()),
        "twice": sorted(number for number, times in held.items() if times > 1),
        # Committed, and the answer did not arrive: no promise was broken.
        "unanswered": len(held.keys() - promised),
    }


def check(dsn: str, acknowledged: Path) -> dict[str, t.Any]:
    with connect(dsn) as connection:
        rows = [number for (number,) in connection.execute("SELECT number FROM ledger")]
    return compare(read_numbers(acknowledged), rows)


def main() -> int:
    parser = argparse.ArgumentParser(description="Keeps a ledger in a database, and checks it.")
    parser.add_argument("verb", choices=["write", "check"])
    parser.add_argument("--dsn", required=True, help="where the database is, as libpq understands it")
    parser.add_argument("--acknowledged", required=True, type=Path, metavar="FILE", help="the numbers whose commit was acknowledged, one a line")
    parser.add_argument("--one-connection", action="store_true", help="do not connect again when the connection is lost")
    parser.add_argument("--interval", type=float, default=0.005, help="seconds between two commits (%(default)s)")
    options = parser.parse_args()
    if options.verb == "write":
        writer = Writer(options.dsn, options.acknowledged, options.interval, options.one_connection)
        signal.signal(signal.SIGTERM, writer.stop)
        signal.signal(signal.SIGINT, writer.stop)
        print(json.dumps(writer.run()))
        return 0
    found = check(options.dsn, options.acknowledged)
    print(json.dumps(found))
    return 1 if found["lost"] or found["twice"] else 0


if __name__ == "__main__":
    sys.exit(main())
