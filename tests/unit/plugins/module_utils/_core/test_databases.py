# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which of SQLite's files a container has open in a volume."""

from __future__ import annotations

import mmap
import os
import sqlite3

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._core.databases import is_sqlites, open_databases, open_in, open_on, volume_of

DATABASE = b"SQLite format 3\0".ljust(512, b"x")


@pytest.fixture
def proc(tmp_path):
    """Three processes, of which the last is in another process namespace."""

    def opens(pid, kind, name, target):
        os.makedirs(tmp_path / "proc" / pid / kind, exist_ok=True)
        os.symlink(target, tmp_path / "proc" / pid / kind / name)

    for pid, namespace in (("7", "one"), ("8", "one"), ("9", "other")):
        opens(pid, "ns", "pid", namespace)
    (tmp_path / "data").mkdir()
    return opens


def found(tmp_path):
    return [os.path.basename(path) for path in open_databases(7, [str(tmp_path / "data")], str(tmp_path / "proc"))]


@pytest.mark.parametrize(
    ("pid", "kind", "name", "content", "counts"),
    [
        ("7", "fd", "a.db", DATABASE, True),
        ("8", "map_files", "a.db", DATABASE, True),
        ("8", "fd", "a.db-wal", b"", True),
        ("7", "map_files", "a.db-shm", None, True),
        ("7", "fd", "a.db-journal (deleted)", None, True),
        ("7", "fd", "gone", None, False),
        ("7", "fd", "kmsg", DATABASE[:16], False),
        ("7", "fd", "a.txt", b"SQLite format", False),
        ("9", "fd", "a.db", DATABASE, False),
        ("7", "fd", "../database/a.db-wal", b"", False),
    ],
)
def test_a_file_of_sqlites_is_known_by_its_name_or_its_beginning(proc, tmp_path, pid, kind, name, content, counts):
    target = tmp_path / "data" / name
    (tmp_path / "database").mkdir()
    if content is not None:
        target.write_bytes(content)
    proc(pid, kind, "3", os.path.normpath(target))
    os.mkfifo(tmp_path / "data/fifo")
    proc("7", "fd", "4", tmp_path / "data/fifo")
    assert found(tmp_path) == ([name.replace(" (deleted)", "")] if counts else [])


def test_a_real_database_is_seen(tmp_path):
    """This process is its own first one here."""
    assert open_databases(os.getpid(), [str(tmp_path)]) == []
    database = sqlite3.connect(str(tmp_path / "a.db"))
    try:
        database.execute("pragma journal_mode=wal")
        database.execute("create table lines (number)")
        names = {os.path.basename(path) for path in open_databases(os.getpid(), [str(tmp_path)])}
    finally:
        database.close()
    assert names == {"a.db", "a.db-wal", "a.db-shm"}


@pytest.mark.skipif(os.getuid() != 0, reason="needs root: /proc/PID/map_files")
def test_one_that_is_mapped_alone_is_seen(tmp_path):
    (tmp_path / "a.db").write_bytes(b"SQLite format 3\0" + bytes(5000))
    with open(tmp_path / "a.db", "rb") as opened:
        mapped = mmap.mmap(opened.fileno(), 0, prot=mmap.PROT_READ)
    names = open_databases(os.getpid(), [str(tmp_path)])
    mapped.close()
    assert names == [str(tmp_path / "a.db")]


DATA = {"image": "/v/data.img", "device": "/dev/loop0"}
MOUNTS = [{"destination": "/data", "image_volume": DATA}, {"destination": "/data/plain", "image_volume": None}, {"destination": "/docker"}]


@pytest.mark.parametrize(
    ("path", "volume"),
    [("/data/a.db", DATA), ("/data/plain/a.db", None), ("/database/a.db", None), ("/docker/a.db", None), ("/var/a.db", None)],
)
def test_the_volume_of_a_file_is_that_of_the_innermost_mount(path, volume):
    assert volume_of(MOUNTS, path) == volume


def test_the_volumes_with_an_open_database():
    obstacles = [{"check": "databases", "detail": path} for path in ("/data/a.db", "/data/a.db-wal", "/data/plain/b.db")]
    assert open_on({"mounts": MOUNTS, "obstacles": obstacles}) == {"/v/data.img"}
    assert open_on({"mounts": MOUNTS, "obstacles": [{"check": "files", "detail": "/data/a.db"}]}) == set()
    assert open_on({"mounts": MOUNTS}) == set()


def test_those_of_processes_with_a_root_of_their_own(tmp_path, proc):
    root = tmp_path / "root"
    root.mkdir()
    for name, content in (("a.db", DATABASE), ("a.db-wal", b""), ("b.db", DATABASE)):
        (root / name).write_bytes(content)
    proc("7", "fd", "3", root / "a.db")
    proc("7", "fd", "4", root / "a.db-wal")
    proc("8", "fd", "3", root / "b.db")
    os.symlink(root, tmp_path / "proc/7/root")
    os.symlink(tmp_path, tmp_path / "proc/8/root")
    assert open_in(str(root), str(tmp_path / "proc")) == [str(root / "a.db")]
    assert open_in(str(tmp_path / "gone"), str(tmp_path / "proc")) == []


def test_a_file_that_cannot_be_read_is_no_database(tmp_path, monkeypatch):
    path = tmp_path / "a.db"
    path.write_bytes(DATABASE)
    assert is_sqlites(str(path), str(path))

    def fails(*words):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "pread", fails)
    assert not is_sqlites(str(path), str(path))
