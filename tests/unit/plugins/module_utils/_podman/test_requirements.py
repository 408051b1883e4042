# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import sqlite3

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._podman.requirements import release, require

COMMAND = ["podman", "--log-level=warn", "create", "--pull=never", "--name=web", "image"]


def book(root, schema=1, command=tuple(COMMAND), **configs):
    """podman's database with containers and those that each requires."""
    database = sqlite3.connect(str(root / "db.sql"))
    database.execute("CREATE TABLE DBConfig (ID INTEGER, SchemaVersion INTEGER)")
    database.execute("INSERT INTO DBConfig VALUES (1, ?)", (schema,))
    database.execute("CREATE TABLE ContainerConfig (ID TEXT, JSON TEXT)")
    database.execute("CREATE TABLE ContainerDependency (ID TEXT, DependencyID TEXT, PRIMARY KEY (ID, DependencyID))")
    for name, requires in configs.items():
        noted = {"id": name, "CreateCommand": command, **({"Dependencies": requires} if requires else {})}
        database.execute("INSERT INTO ContainerConfig VALUES (?, ?)", (name, json.dumps(noted)))
        database.executemany("INSERT INTO ContainerDependency VALUES (?, ?)", [(name, other) for other in requires])
    database.commit()
    database.close()


def noted(root):
    """Container → those that it requires, by its own configuration and by the table; and its command."""
    database = sqlite3.connect(str(root / "db.sql"))
    configs = {name: json.loads(text) for name, text in database.execute("SELECT ID, JSON FROM ContainerConfig")}
    table = database.execute("SELECT ID, DependencyID FROM ContainerDependency ORDER BY DependencyID").fetchall()
    database.close()
    for name, config in configs.items():
        assert sorted(config.get("Dependencies") or []) == [other for each, other in table if each == name]
    return {name: (config.get("Dependencies") or [], config["CreateCommand"]) for name, config in configs.items()}


def test_a_container_requires_others_from_then_on(tmp_path):
    book(tmp_path, web=[], db=[], cache=[])
    assert require(str(tmp_path), "web", {"shop_db": "db", "shop_cache": "cache"}, write=False) == (["shop_cache", "shop_db"], "")
    assert noted(tmp_path)["web"] == ([], COMMAND)
    assert require(str(tmp_path), "web", {"shop_db": "db", "shop_cache": "cache"}) == (["shop_cache", "shop_db"], "")
    # A later move makes its twin by that command.
    written = [*COMMAND[:3], "--requires=shop_cache,shop_db", *COMMAND[3:]]
    assert noted(tmp_path) == {"web": (["cache", "db"], written), "db": ([], COMMAND), "cache": ([], COMMAND)}
    assert require(str(tmp_path), "web", {"shop_db": "db", "shop_cache": "cache"}) == ([], "")
    assert noted(tmp_path)["web"] == (["cache", "db"], written)


def test_none_of_those_that_have_left_requires_it_any_more(tmp_path):
    book(tmp_path, db=[], web=["db", "cache"], cache=[], stranger=["db"])
    assert release(str(tmp_path), "db", {"web", "cache"}) == ""
    assert {name: requires for name, (requires, _command) in noted(tmp_path).items()} == {"db": [], "web": ["cache"], "cache": [], "stranger": ["db"]}


@pytest.mark.parametrize("layout", [{"schema": 2}, {"command": None}, {"command": ["podman", "run"]}])
def test_a_book_that_is_not_known_is_left_alone(tmp_path, layout):
    book(tmp_path, **layout, web=[], db=[])
    before = (tmp_path / "db.sql").read_bytes()
    assert require(str(tmp_path), "web", {"shop_db": "db"}) == ([], "podman's database has another layout than is known")
    assert (tmp_path / "db.sql").read_bytes() == before


def test_a_requirement_that_is_noted_elsewhere_is_left_alone(tmp_path):
    book(tmp_path, db=[], web=[])
    database = sqlite3.connect(str(tmp_path / "db.sql"))
    database.execute("INSERT INTO ContainerDependency VALUES ('web', 'db')")
    database.commit()
    database.close()
    before = (tmp_path / "db.sql").read_bytes()
    assert release(str(tmp_path), "db", {"web"}) == "podman's database has another layout than is known"
    assert (tmp_path / "db.sql").read_bytes() == before
