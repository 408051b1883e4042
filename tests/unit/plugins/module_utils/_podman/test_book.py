# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import sqlite3

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._podman.book import bound_to, exit_policy, removed_by_itself, started_at, state, unbound

WHEN = "2026-11-26T00:19:19.903008932Z"
STATE = {"state": 1, "pid": 7, "startedTime": "0001-01-01T00:00:00Z", "finishedTime": "0001-01-01T00:00:00Z", "Service": {"servicePods": None}}


def book(root, state=None, schema=1):
    database = sqlite3.connect(str(root / "db.sql"))
    database.execute("CREATE TABLE DBConfig (ID INTEGER, SchemaVersion INTEGER)")
    database.execute("INSERT INTO DBConfig VALUES (1, ?)", (schema,))
    database.execute("CREATE TABLE ContainerState (ID TEXT, State INTEGER, JSON TEXT)")
    for name, content in (("one", state or STATE), ("two", STATE)):
        database.execute("INSERT INTO ContainerState VALUES (?, 1, ?)", (name, json.dumps(content).encode()))
    database.commit()
    database.close()


def torn(root):
    """A book with a page that is no JSON."""
    book(root)
    database = sqlite3.connect(str(root / "db.sql"))
    database.execute("UPDATE ContainerState SET JSON = '{' WHERE ID = 'one'")
    database.commit()
    database.close()


def states(root):
    database = sqlite3.connect(str(root / "db.sql"))
    found = dict(database.execute("SELECT ID, JSON FROM ContainerState"))
    database.close()
    return found


def test_the_time_is_written_and_nothing_else_changes(tmp_path):
    book(tmp_path)
    assert started_at(str(tmp_path), "one", WHEN) == ""
    found = states(tmp_path)
    assert json.loads(found["one"]) == {**STATE, "startedTime": WHEN}
    assert isinstance(found["one"], bytes)
    assert json.loads(found["two"]) == STATE


@pytest.mark.parametrize(
    ("plant", "identifier", "why"),
    [
        (lambda root: book(root, schema=2), "one", "another layout"),
        (book, "three", "another layout"),
        (lambda root: book(root, {"state": 1}), "one", "another layout"),
        (torn, "one", "db.sql: "),
        # It runs: podman writes here, too.
        (lambda root: book(root, {**STATE, "state": 3}), "one", "another layout"),
        (lambda root: None, "one", "another database than SQLite"),
        (lambda root: (root / "db.sql").write_text("no database at all, and long enough to be read as one"), "one", "db.sql: file is not a database"),
    ],
)
def test_a_book_that_is_not_known_is_left_alone(tmp_path, plant, identifier, why):
    plant(tmp_path)
    before = (tmp_path / "db.sql").read_bytes() if (tmp_path / "db.sql").exists() else b""
    assert why in started_at(str(tmp_path), identifier, WHEN)
    assert ((tmp_path / "db.sql").read_bytes() if before else b"") == before


def test_that_the_start_up_is_over_is_written_beside_it(tmp_path):
    book(tmp_path)
    assert started_at(str(tmp_path), "one", WHEN, startup_passed=True) == ""
    assert json.loads(states(tmp_path)["one"]) == {**STATE, "startedTime": WHEN, "startupHCPassed": True, "hcUnitName": ""}
    assert state(str(tmp_path), "one")["startupHCPassed"]


def test_of_what_the_book_does_not_tell_nothing_is_known(tmp_path):
    assert state(str(tmp_path), "one") == {}
    book(tmp_path)
    assert state(str(tmp_path), "one") == STATE
    assert state(str(tmp_path), "three") == {}


class TestRemovedByItself:
    CONFIG = {"name": "é", "spec": {"annotations": {"io.podman.annotations.autoremove": "TRUE", "io.podman.annotations.cid-file": "/run/shop.cid"}}}

    @pytest.fixture
    def configs(self, tmp_path):
        book(tmp_path)
        database = sqlite3.connect(str(tmp_path / "db.sql"))
        database.execute("CREATE TABLE ContainerConfig (ID TEXT, Name TEXT, JSON TEXT)")
        database.execute("INSERT INTO ContainerConfig VALUES ('one', 'shop', ?)", (json.dumps(self.CONFIG).encode(),))
        database.execute("INSERT INTO ContainerConfig VALUES ('two', 'web', ?)", (json.dumps({"spec": {}}).encode(),))
        database.commit()
        database.close()

        def read():
            database = sqlite3.connect(str(tmp_path / "db.sql"))
            found = dict(database.execute("SELECT ID, JSON FROM ContainerConfig"))
            database.close()
            return json.loads(found["one"])

        return read

    def test_for_the_time_of_a_dump_and_then_as_before(self, tmp_path, configs):
        assert removed_by_itself(str(tmp_path), "one", False) == ""
        assert configs()["spec"]["annotations"] == {"io.podman.annotations.cid-file": "/run/shop.cid"}
        assert removed_by_itself(str(tmp_path), "one", False) == "" and configs()["name"] == "é"
        assert removed_by_itself(str(tmp_path), "one", True) == "" and configs() == self.CONFIG

    @pytest.mark.parametrize("identifier", ["two", "three"])
    def test_not_where_the_layout_is_another(self, tmp_path, configs, identifier):
        assert "another layout" in removed_by_itself(str(tmp_path), identifier, False)
        assert configs() == self.CONFIG


class TestExitPolicy:
    POD = {"id": "one", "name": "é", "hasInfra": True, "ExitPolicy": "stop", "lockID": 3}

    @pytest.fixture
    def pods(self, tmp_path):
        book(tmp_path)
        database = sqlite3.connect(str(tmp_path / "db.sql"))
        database.execute("CREATE TABLE PodConfig (ID TEXT, Name TEXT, JSON TEXT)")
        for name, content in (("one", self.POD), ("two", {**self.POD, "id": "two"}), ("old", {"id": "old"})):
            database.execute("INSERT INTO PodConfig VALUES (?, ?, ?)", (name, name, json.dumps(content).encode()))
        database.commit()
        database.close()

        def read():
            database = sqlite3.connect(str(tmp_path / "db.sql"))
            found = dict(database.execute("SELECT ID, JSON FROM PodConfig"))
            database.close()
            return found

        return read

    def test_for_the_time_of_a_move_and_then_as_before(self, tmp_path, pods):
        before = pods()
        for _twice in range(2):
            assert exit_policy(str(tmp_path), "one", "continue") == ""
        held = pods()
        assert json.loads(held["one"]) == {**self.POD, "ExitPolicy": "continue"} and isinstance(held["one"], bytes)
        assert held["two"] == before["two"]
        assert exit_policy(str(tmp_path), "one", "stop") == "" and json.loads(pods()["one"]) == self.POD

    @pytest.mark.parametrize("identifier", ["old", "three"])
    def test_not_where_the_layout_is_another(self, tmp_path, pods, identifier):
        before = pods()
        assert "another layout" in exit_policy(str(tmp_path), identifier, "continue")
        assert pods() == before


VOLUME = {"name": "shop", "lockID": 3, "volumeDriver": "local", "mountPoint": "/volumes/shop/_data", "labels": {"of": "us"}}
BOUND = {"type": "none", "o": "bind", "device": "/mnt/shop"}


def volumes(root, volume=None, schema=1):
    database = sqlite3.connect(str(root / "db.sql"))
    database.execute("CREATE TABLE DBConfig (ID INTEGER, SchemaVersion INTEGER)")
    database.execute("INSERT INTO DBConfig VALUES (1, ?)", (schema,))
    database.execute("CREATE TABLE VolumeConfig (Name TEXT, JSON TEXT)")
    for name in ("shop", "other"):
        database.execute("INSERT INTO VolumeConfig VALUES (?, ?)", (name, json.dumps({**(volume or VOLUME), "name": name}).encode()))
    database.commit()
    database.close()


def in_book(root):
    database = sqlite3.connect(str(root / "db.sql"))
    found = {name: json.loads(text) for name, text in database.execute("SELECT Name, JSON FROM VolumeConfig")}
    database.close()
    return found


def test_a_plain_volume_is_bound_and_no_other(tmp_path):
    volumes(tmp_path)
    assert bound_to(str(tmp_path), "shop", "/mnt/shop", write=False) == ""
    assert in_book(tmp_path)["shop"] == VOLUME
    for _twice in range(2):
        assert bound_to(str(tmp_path), "shop", "/mnt/shop") == ""
        assert in_book(tmp_path) == {"shop": {**VOLUME, "volumeOptions": BOUND}, "other": {**VOLUME, "name": "other"}}


def test_a_volume_that_was_bound_is_a_plain_one_again_and_no_other(tmp_path):
    volumes(tmp_path, {**VOLUME, "volumeOptions": BOUND})
    assert "it has options already" in unbound(str(tmp_path), "shop", "/mnt/other")
    for _twice in range(2):
        assert unbound(str(tmp_path), "shop", BOUND["device"]) == ""
        assert in_book(tmp_path)["shop"] == VOLUME and in_book(tmp_path)["other"]["volumeOptions"] == BOUND


@pytest.mark.parametrize(
    ("volume", "schema", "name", "why"),
    [
        (None, 2, "shop", "another layout"),
        (None, 1, "none", "another layout"),
        ({**VOLUME, "volumeDriver": "image"}, 1, "shop", "another layout"),
        ({**VOLUME, "volumeOptions": {"device": "/other"}}, 1, "shop", "it has options already"),
    ],
)
def test_any_other_volume_stays_as_it_is(tmp_path, volume, schema, name, why):
    volumes(tmp_path, volume, schema)
    before = in_book(tmp_path)
    assert why in bound_to(str(tmp_path), name, "/mnt/shop") and in_book(tmp_path) == before
    assert "another database than SQLite" in bound_to(str(tmp_path / "none"), name, "/mnt/shop")
