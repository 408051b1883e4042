# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import copy
import json
import os
import pathlib

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._core.inventory import REFUSED, TOLD, row_of
from ansible_collections.livefleet.handover.plugins.module_utils._docker import facts, inventory, told
from ansible_collections.livefleet.handover.plugins.module_utils._drivers import docker_live
from ansible_collections.livefleet.handover.plugins.module_utils._drivers.examiners import EXAMINERS

RECORDED = json.loads((pathlib.Path(__file__).parent / "recorded" / "docker-26.1-inspect.json").read_text(encoding="utf-8"))
PAGE = pathlib.Path(__file__).parents[5] / "docs" / "docker-inventory.md"


def without_row(value, key=""):
    """Every key that no row is about, whatever it holds."""
    if key and row_of(inventory.INSPECT, key):
        return []
    if isinstance(value, dict):
        return [found for name, below in value.items() for found in without_row(below, "{0}.{1}".format(key, name) if key else name)]
    if isinstance(value, list) and all(isinstance(each, dict) for each in value):
        return [found for each in value for found in without_row(each, key + "[]")]
    return [key]


@pytest.mark.parametrize("inspect", RECORDED, ids=lambda each: each["Name"])
def test_every_key_of_docker_has_a_row(inspect):
    assert without_row(inspect) == [] and inventory.unaccounted(inspect) == []


@pytest.mark.parametrize(
    ("path", "key"),
    [
        (("NewThing",), "NewThing"),
        (("HostConfig", "NewThing"), "HostConfig.NewThing"),
        (("Mounts", 0, "NewThing"), "Mounts[].NewThing"),
        (("NetworkSettings", "Networks", "lan", "NewThing"), "NetworkSettings.Networks.lan.NewThing"),
    ],
)
def test_a_key_without_a_row_is_named_once_it_holds_something(path, key):
    inspect = copy.deepcopy(RECORDED[0])
    place = inspect
    for step in path[:-1]:
        place = place[step]
    for nothing in (None, "", 0, [], {}, False):
        place[path[-1]] = nothing
        assert inventory.unaccounted(inspect) == []
    place[path[-1]] = {"Deeper": 1}
    assert inventory.unaccounted(inspect) == [key + ".Deeper"]


def test_a_row_that_says_compared_is_compared():
    compared = {key for key, row in inventory.INSPECT.items() if row.how == inventory.COMPARED}
    assert compared and compared <= set(facts.essence({}))


def test_a_check_that_a_row_names_is_there():
    rows = [*inventory.INSPECT.values(), *inventory.STATE.values()]
    assert {row.check for row in rows if row.check} <= {*EXAMINERS["docker"].checks, *told.TOLD, *docker_live.TOLD}
    assert all(row.check for row in rows if row.fate in (TOLD, REFUSED))


def test_the_page_is_made_of_the_rows():
    if os.environ.get("HANDOVER_WRITE_DOCS"):
        PAGE.write_text(inventory.page(), encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == inventory.page()
