# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.livefleet.handover.plugins.filter.backups_files import backups_files, days, months

ROLES = Path(__file__).resolve().parents[4] / "roles"
TEMPLATES = [str(ROLES / role / "templates") for role in ("backup", "migrate")]


def backup(taken, stored, name="", workload="shop"):
    return {
        "workload": workload,
        "id": "{0:016x}".format(stored),
        "name": name,
        "taken": taken,
        "size": 2**30,
        "stored": stored,
        "frozen_ms": 12.4,
        "current": False,
    }


BACKUPS = (
    backup("2026-09-30T23:59:59Z", 2**30),
    backup("2026-11-01T02:30:00Z", 2**20, name="<before>"),
    backup("2026-11-26T02:30:00Z", 0),
    backup("2026-11-26T14:30:00Z", 600 * 2**20),
    backup("2026-11-25T02:30:00Z", 5, workload="wiki"),
)


def drawn(backups=BACKUPS, faults=(), verified=False):
    return backups_files({"backups": list(backups), "faults": list(faults)}, TEMPLATES, "backups-node1", "/srv/a&b on node1", verified)


def test_the_calendar_has_the_months_with_backups_and_what_each_day_stored():
    found = days(BACKUPS[:4])
    assert found["2026-11-26"] == {"number": 2, "stored": 600 * 2**20, "named": False}
    september, november = months(found, 2**30)
    assert (september["title"], november["title"]) == ("September 2026", "November 2026")
    cells = {day["day"]: day for week in november["weeks"] for day in week if day}
    assert len(cells) == 30 and all(len(week) == 7 for week in november["weeks"])
    assert november["weeks"][0][6]["day"] == 1, "it was a Sunday, and weeks begin on Monday"
    assert (cells[1]["shade"], cells[1]["named"], cells[2]["shade"], cells[26]["shade"]) == (1, True, 0, 4)
    assert (cells[2]["said"], cells[26]["said"]) == ("no backup", "2 backups, 600 MiB stored")


def test_a_year_and_a_month_are_in_the_calendar():
    backups = [backup("20{0}-{1:02d}-01T00:00:00Z".format(year, month), 1) for year in (24, 25, 26) for month in range(1, 13)]
    assert [each["title"] for each in months(days(backups), 1)][::12] == ["December 2025", "December 2026"]


def test_the_page_and_its_data():
    files = drawn()
    assert json.loads(files["backups-node1.json"])["backups"] == list(BACKUPS)
    page = files["backups-node1.html"]
    assert "/srv/a&amp;b on node1" in page and "&lt;before&gt;" in page and "<before>" not in page
    assert re.findall(r"<h2>(\w+)</h2>", page) == ["shop", "wiki"]
    assert "<b>26 Nov</b><span>the latest, 2026, 14:30 UTC</span>" in page
    assert re.findall(r"(\d{4}-\d\d-\d\d) \d\d:\d\d:\d\d</td>", page)[:3] == ["2026-11-26", "2026-11-26", "2026-11-01"], "the latest first"
    assert "not read back now" in page and "{{" not in page and not re.search(r"https?://|<script|url\(", page)


def test_damage_is_seen_at_the_backups_that_need_the_file():
    fault = {
        "workload": "shop",
        "file": "layers/x.qcow2",
        "text": "it is not as it was written",
        "points": "{0}, {1}".format(BACKUPS[0]["id"], BACKUPS[1]["id"]),
    }
    page = drawn(faults=[fault], verified=True)["backups-node1.html"]
    assert page.count("damaged</span></td>") == 2 and "&#10007; 1</b><span>files damaged" in page
    assert "as they were written</span>" in drawn(verified=True)["backups-node1.html"]


def test_an_empty_repository():
    assert "There is no backup." in drawn([])["backups-node1.html"]
    with pytest.raises(AnsibleFilterError, match="the result of backup_info is needed"):
        backups_files([], TEMPLATES, "x", "/srv", False)


def test_a_guest_is_told_from_a_container():
    page = drawn([*BACKUPS, {**backup("2026-11-26T02:30:00Z", 5, workload="web"), "kind": "KVM guest"}])["backups-node1.html"]
    assert "<h2>web <small>KVM guest</small></h2>" in page and "<h2>shop</h2>" in page and "backups of 3 workloads" in page
