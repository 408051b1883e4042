# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The record of a container in podman's own book that no command of podman's writes.

podman notes when it starts a container. One that it only restores it has never started, so `podman ps` would say "Up 292 years".
The time is written into the book of a twin that does not run, while no other process knows it: podman keeps it when it restores. So it is
with the word that the health checks of the start-up are over.
"""

from __future__ import annotations

import json
import os
import typing as t

from .volume import bound_options

# The layout of podman's database that is known here: that of podman 4.8 to 5.x.
SCHEMA = 1
# Made, and in no state in which podman itself may be about to write.
_CONFIGURED = 1
_WAIT_SECONDS = 20.0


def started_at(root: str, identifier: str, when: str, startup_passed: bool = False) -> str:
    """Writes since when a container runs; why that cannot be is returned, and nothing is written then."""
    changes: dict[str, t.Any] = {"startedTime": when}
    if startup_passed:
        # The unit that it noted when it made the twin is the start-up's.
        changes.update(startupHCPassed=True, hcUnitName="")
    _nothing, why = in_book(root, lambda opened: ({}, _write(opened, identifier, changes)))
    return why


def state(root: str, identifier: str) -> dict[str, t.Any]:
    """What podman notes of a container's state; empty where its book cannot be read."""
    found, _why = in_book(root, lambda opened: (_read(opened, identifier), ""))
    return found


_BY_ITSELF = "io.podman.annotations.autoremove"


def removed_by_itself(root: str, identifier: str, whether: bool) -> str:
    """Writes whether podman removes a container when it ends, which it does not dump else; why that cannot be is returned.

    The process beside the container removes it all the same, and so does its unit.
    """
    _nothing, why = in_book(root, lambda opened: ({}, _mark(opened, identifier, whether)))
    return why


_Answer = t.Tuple[t.Dict[str, t.Any], str]


def in_book(root: str, use: t.Callable[[t.Any], _Answer]) -> _Answer:
    path = os.path.join(root, "db.sql")
    if not os.path.exists(path):
        return {}, "podman keeps its book in another database than SQLite"
    try:
        import sqlite3
    except ImportError:
        return {}, "Python has no module sqlite3 here"
    try:
        opened = sqlite3.connect(path, timeout=_WAIT_SECONDS, isolation_level=None)
        try:
            return use(opened)
        finally:
            opened.close()
    except (sqlite3.Error, ValueError) as exc:  # or its content is no JSON
        return {}, "{0}: {1}".format(path, exc)


def _read(book: t.Any, identifier: str) -> dict[str, t.Any]:
    rows = book.execute("SELECT JSON FROM ContainerState WHERE ID = ?", (identifier,)).fetchall()
    return json.loads(rows[0][0]) if len(rows) == 1 else {}


def _write(book: t.Any, identifier: str, changes: t.Mapping[str, t.Any]) -> str:
    book.execute("BEGIN IMMEDIATE")
    schema = book.execute("SELECT SchemaVersion FROM DBConfig").fetchall()
    rows = book.execute("SELECT JSON FROM ContainerState WHERE ID = ?", (identifier,)).fetchall()
    if schema != [(SCHEMA,)] or len(rows) != 1:
        return "podman's database has another layout than is known"
    text = rows[0][0]
    noted = json.loads(text)
    if "startedTime" not in noted or noted.get("state") != _CONFIGURED:
        return "podman's database has another layout than is known"
    written = json.dumps({**noted, **changes}, separators=(",", ":"))
    book.execute("UPDATE ContainerState SET JSON = ? WHERE ID = ?", (written.encode() if isinstance(text, bytes) else written, identifier))
    book.execute("COMMIT")
    return ""


def _mark(book: t.Any, identifier: str, whether: bool) -> str:
    book.execute("BEGIN IMMEDIATE")
    schema = book.execute("SELECT SchemaVersion FROM DBConfig").fetchall()
    rows = book.execute("SELECT JSON FROM ContainerConfig WHERE ID = ?", (identifier,)).fetchall()
    noted = json.loads(rows[0][0]) if len(rows) == 1 else {}
    annotations = (noted.get("spec") or {}).get("annotations")
    if schema != [(SCHEMA,)] or not isinstance(annotations, dict):
        return "podman's database has another layout than is known"
    if annotations.get(_BY_ITSELF) == ("TRUE" if whether else None):
        return ""
    if whether:
        annotations[_BY_ITSELF] = "TRUE"
    else:
        del annotations[_BY_ITSELF]
    text = rows[0][0]
    written = json.dumps(noted, separators=(",", ":"), ensure_ascii=False)
    book.execute("UPDATE ContainerConfig SET JSON = ? WHERE ID = ?", (written.encode() if isinstance(text, bytes) else written, identifier))
    book.execute("COMMIT")
    return ""


def exit_policy(root: str, pod: str, policy: str) -> str:
    """Writes whether podman stops a pod when the last of its members has ended; why that cannot be is returned.

    No command of podman's changes it, and podman reads it anew each time.
    """
    _nothing, why = in_book(root, lambda opened: ({}, _set_exit_policy(opened, pod, policy)))
    return why


_EXIT_POLICY = "ExitPolicy"


def _set_exit_policy(book: t.Any, pod: str, policy: str) -> str:
    book.execute("BEGIN IMMEDIATE")
    schema = book.execute("SELECT SchemaVersion FROM DBConfig").fetchall()
    rows = book.execute("SELECT JSON FROM PodConfig WHERE ID = ?", (pod,)).fetchall()
    noted = json.loads(rows[0][0]) if len(rows) == 1 else {}
    if schema != [(SCHEMA,)] or _EXIT_POLICY not in noted:
        return "podman's database has another layout than is known"
    if noted[_EXIT_POLICY] != policy:
        text, written = rows[0][0], json.dumps({**noted, _EXIT_POLICY: policy}, separators=(",", ":"), ensure_ascii=False)
        book.execute("UPDATE PodConfig SET JSON = ? WHERE ID = ?", (written.encode() if isinstance(text, bytes) else written, pod))
        book.execute("COMMIT")
    return ""


def bound_to(root: str, volume: str, folder: str, write: bool = True) -> str:
    """Writes that a plain volume is bound to a folder, as `podman volume create --opt=o=bind` does for a new one; why that cannot be is returned.

    podman has no command for it: a volume that a container has cannot be made anew. With `write` false it is only looked at.
    """
    _nothing, why = in_book(root, lambda opened: ({}, _bind(opened, volume, folder, write)))
    return why


def unbound(root: str, volume: str, folder: str) -> str:
    """Writes that a volume which is bound to a folder is a plain one again; why that cannot be is returned."""
    _nothing, why = in_book(root, lambda opened: ({}, _bind(opened, volume, folder, write=True, free=True)))
    return why


_OPTIONS = "volumeOptions"


def _bind(book: t.Any, volume: str, folder: str, write: bool, free: bool = False) -> str:
    book.execute("BEGIN IMMEDIATE")
    schema = book.execute("SELECT SchemaVersion FROM DBConfig").fetchall()
    rows = book.execute("SELECT JSON FROM VolumeConfig WHERE Name = ?", (volume,)).fetchall()
    noted = json.loads(rows[0][0]) if len(rows) == 1 else {}
    if schema != [(SCHEMA,)] or noted.get("name") != volume or noted.get("volumeDriver") != "local" or not noted.get("mountPoint"):
        return "podman's database has another layout than is known"
    found, options = noted.pop(_OPTIONS, None) or {}, bound_options(folder)
    if found == ({} if free else options):
        return ""
    if found and found != options:
        return "it has options already"
    if write:
        text, written = rows[0][0], json.dumps({**noted, **({} if free else {_OPTIONS: options})}, separators=(",", ":"), ensure_ascii=False)
        book.execute("UPDATE VolumeConfig SET JSON = ? WHERE Name = ?", (written.encode() if isinstance(text, bytes) else written, volume))
        book.execute("COMMIT")
    return ""
