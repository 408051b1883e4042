# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What podman has in its own book of a container, as far as no command of podman's writes it.

podman notes when it starts a container. One that it only restores it has never started, so `podman ps` would say "Up 292 years".
The time is written into the book of a twin that does not run, while nobody else knows it: podman keeps it when it restores.
"""

from __future__ import annotations

import json
import os
import typing as t

# The layout of podman's database that is known here: that of podman 4.8 to 5.x.
_SCHEMA = 1
# Made, and in no state in which podman itself may be about to write.
_CONFIGURED = 1
_WAIT_SECONDS = 20.0


def started_at(root: str, identifier: str, when: str) -> str:
    """Writes since when a container runs; why that cannot be is returned, and nothing is written then."""
    path = os.path.join(root, "db.sql")
    if not os.path.exists(path):
        return "podman keeps its book in another database than SQLite"
    try:
        import sqlite3
    except ImportError:
        return "Python has no module sqlite3 here"
    try:
        return _write(sqlite3.connect(path, timeout=_WAIT_SECONDS, isolation_level=None), identifier, when)
    except (sqlite3.Error, ValueError) as exc:  # or what it holds is no JSON
        return "{0}: {1}".format(path, exc)


def _write(book: t.Any, identifier: str, when: str) -> str:
    try:
        book.execute("BEGIN IMMEDIATE")
        schema = book.execute("SELECT SchemaVersion FROM DBConfig").fetchall()
        rows = book.execute("SELECT JSON FROM ContainerState WHERE ID = ?", (identifier,)).fetchall()
        if schema != [(_SCHEMA,)] or len(rows) != 1:
            return "podman's database has another layout than is known"
        text = rows[0][0]
        state = json.loads(text)
        if "startedTime" not in state or state.get("state") != _CONFIGURED:
            return "podman's database has another layout than is known"
        state["startedTime"] = when
        written = json.dumps(state, separators=(",", ":"))
        book.execute("UPDATE ContainerState SET JSON = ? WHERE ID = ?", (written.encode() if isinstance(text, bytes) else written, identifier))
        book.execute("COMMIT")
        return ""
    finally:
        book.close()
