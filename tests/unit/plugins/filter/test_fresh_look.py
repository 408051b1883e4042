# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import copy
import re
from pathlib import Path

import pytest
from ansible_collections.livefleet.handover.plugins.filter.fresh_look import FRESH_SECONDS, FilterModule, fresh_look

FOLDERS = {"images": "/images", "sessions": "/sessions"}
HOST = {"images": {"path": "/images", "free": 1}, "sessions": {"path": "/sessions"}, "name": "node"}


def answer(exists, at):
    return {"workload": {"exists": exists, "name": "shop"}, "host": copy.deepcopy(HOST), "sessions": [], "problems": [], "asked_at": at}


@pytest.fixture
def hosts():
    return [answer(True, 1000.5), answer(False, 1000.0)]


def look(hosts, now=1003.0, asked="shop"):
    return fresh_look(*hosts, "shop", asked=asked, folders=FOLDERS, now=now)


def test_what_was_just_told_is_passed_on_with_the_moment_of_the_first_question(hosts):
    assert look(hosts) == {"here": hosts[0], "there": hosts[1], "at": 1000.0}
    hosts[1]["sessions"] = [{"workload": "shop", "role": "destination"}]
    assert look(hosts), "the preflight refuses what the destination still has of it"
    assert FilterModule().filters() == {"fresh_look": fresh_look}


@pytest.mark.parametrize("now", [1000.0 + FRESH_SECONDS + 0.1, 999.0])
def test_it_grows_old_and_no_clock_that_was_set_makes_it_young(hosts, now):
    assert look(hosts, now) == {}
    assert look(hosts, 1000.0 + FRESH_SECONDS)


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize(
    "spoil",
    [
        lambda told: told.clear(),
        lambda told: told.pop("host"),
        lambda told: told.pop("sessions"),
        lambda told: told.pop("asked_at"),
        lambda told: told["problems"].append("podman does not answer"),
        lambda told: told["host"]["images"].update(path="/elsewhere"),
        lambda told: told["host"]["sessions"].update(path="/elsewhere"),
    ],
)
def test_a_host_that_did_not_tell_everything_is_asked_again(hosts, side, spoil):
    spoil(hosts[side])
    assert look(hosts) == {}


@pytest.mark.parametrize("silent", ["", None, {"unreachable": True, "msg": "no route"}])
def test_a_host_that_did_not_answer_is_asked_again(hosts, silent):
    assert look([hosts[0], silent]) == {}
    assert look([silent, hosts[1]]) == {}


def test_an_earlier_move_may_change_what_was_told(hosts):
    hosts[0]["sessions"] = [{"workload": "till", "role": "source"}]
    assert look(hosts)
    hosts[0]["sessions"].append({"workload": "shop", "role": "source", "state": "presync"})
    assert look(hosts) == {}


def test_an_id_is_another_on_the_destination(hosts):
    assert look(hosts, asked="0123456789ab") == {}


def test_without_the_workload_on_the_source_the_preflight_looks_itself(hosts):
    hosts[0]["workload"]["exists"] = False
    assert look(hosts) == {}


def test_no_task_that_may_be_skipped_takes_the_place_of_what_was_told():
    tasks = Path(__file__).resolve().parents[4] / "roles" / "migrate" / "tasks"
    each = [task for path in tasks.glob("*.yml") for task in re.split(r"^(?=\s*- name: )", path.read_text(encoding="utf-8"), flags=re.M)]
    asked = [task for task in each if re.search(r"^\s*register: __migrate_(here|there)$", task, re.M)]
    assert len(asked) == 3
    assert [task for task in asked if re.search(r"^\s*when:", task, re.M)] == []
