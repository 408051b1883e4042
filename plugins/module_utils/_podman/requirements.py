# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The containers that one of podman's requires (--requires), in podman's own book.

podman makes a container only beside those that it requires, readies it only while they run, and removes one only behind those that require it. The
containers of a project move each by itself: so a twin requires the others from when all are there, and what has left is required by none.
"""

from __future__ import annotations

import json
import typing as t

from .book import SCHEMA, in_book

_KEY, _COMMAND = "Dependencies", "CreateCommand"
_UNKNOWN = "podman's database has another layout than is known"


def require(root: str, identifier: str, others: t.Mapping[str, str], write: bool = True) -> tuple[list[str], str]:
    """Writes that a container requires others (name → ID). Those that it did not, and why it cannot be written."""
    found, why = in_book(root, lambda opened: _require(opened, identifier, others, write))
    return found.get("names", []), why


def release(root: str, identifier: str, dependents: t.Container[str]) -> str:
    """Writes that none of these (IDs) requires a container any more; why that cannot be is returned."""
    return in_book(root, lambda opened: ({}, _release(opened, identifier, dependents)))[1]


def _require(book: t.Any, identifier: str, others: t.Mapping[str, str], write: bool) -> tuple[dict[str, t.Any], str]:
    book.execute("BEGIN IMMEDIATE")
    noted, raw = _config(book, identifier)
    if noted is None or not isinstance(noted.get(_COMMAND), list) or "create" not in noted[_COMMAND]:
        return {}, _UNKNOWN
    names = sorted(name for name, other in others.items() if other not in (noted.get(_KEY) or []))
    if names and write:
        noted[_KEY] = [*(noted.get(_KEY) or []), *(others[name] for name in names)]
        # A later move reads it there.
        noted[_COMMAND].insert(noted[_COMMAND].index("create") + 1, "--requires=" + ",".join(names))
        _write(book, identifier, noted, raw)
        for name in names:
            book.execute("INSERT OR IGNORE INTO ContainerDependency (ID, DependencyID) VALUES (?, ?)", (identifier, others[name]))
        book.execute("COMMIT")
    return {"names": names}, ""


def _release(book: t.Any, identifier: str, dependents: t.Container[str]) -> str:
    book.execute("BEGIN IMMEDIATE")
    for (dependent,) in book.execute("SELECT ID FROM ContainerDependency WHERE DependencyID = ?", (identifier,)).fetchall():
        if dependent not in dependents:
            continue
        noted, raw = _config(book, dependent)
        if noted is None or identifier not in (noted.get(_KEY) or []):
            return _UNKNOWN
        noted[_KEY] = [other for other in noted[_KEY] if other != identifier]
        _write(book, dependent, noted, raw)
        book.execute("DELETE FROM ContainerDependency WHERE ID = ? AND DependencyID = ?", (dependent, identifier))
    book.execute("COMMIT")
    return ""


def _config(book: t.Any, identifier: str) -> tuple[dict[str, t.Any] | None, t.Any]:
    schema = book.execute("SELECT SchemaVersion FROM DBConfig").fetchall()
    rows = book.execute("SELECT JSON FROM ContainerConfig WHERE ID = ?", (identifier,)).fetchall()
    if schema != [(SCHEMA,)] or len(rows) != 1:
        return None, None
    return json.loads(rows[0][0]), rows[0][0]


def _write(book: t.Any, identifier: str, noted: t.Mapping[str, t.Any], raw: t.Any) -> None:
    written = json.dumps(noted, separators=(",", ":"), ensure_ascii=False)
    book.execute("UPDATE ContainerConfig SET JSON = ? WHERE ID = ?", (written.encode() if isinstance(raw, bytes) else written, identifier))
