# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import re
from xml.etree import ElementTree

import pytest
from ansible_collections.livefleet.handover.plugins.filter.report_files import moves_files
from ansible_collections.livefleet.handover.plugins.plugin_utils._declaration import COLLECTION

TEMPLATES = str(COLLECTION / "roles" / "migrate" / "templates")
WENT = {"workload": "shop", "from": "node1", "to": "node2", "verdict": "moved", "frozen_ms": 212.4, "path": "/srv/reports/shop-1.html", "why": ""}
STAYED = {"workload": "a<b", "from": "node1", "to": "node3", "verdict": "failed", "frozen_ms": None, "path": "", "why": "node3 has no room & no hope"}


def page(*moves):
    """The page, read as a browser does; the document type and the tags that need no end are left out."""
    drawn = moves_files(list(moves), TEMPLATES, "A drain", "drain-1", "2026-11-26T04:15:00Z")["drain-1.html"]
    body = drawn[drawn.index("<body>") : drawn.index("</html>")].replace("&#10003;", "").replace("&#10007;", "")
    return ElementTree.fromstring(body)


def words(found):
    return " ".join(" ".join(found.itertext()).split())


def test_a_page_leads_to_the_report_of_each_move():
    drawn = page(WENT, STAYED)
    assert [(link.get("href"), link.text) for link in drawn.iter("a")] == [("shop-1.html", "shop"), ("drain-1.json", "drain-1.json")]
    assert [words(card) for card in drawn.iter("div") if "card" in (card.get("class") or "")] == [
        "1 of 2 moved", "0.212 s longest pause", "0.212 s mean pause", "1 not moved",
    ]  # fmt: skip


def test_a_page_says_why_a_workload_has_not_moved():
    assert "a<b node3 has no room & no hope" in words(page(WENT, STAYED))
    assert "Why not" not in words(page(WENT))


@pytest.mark.parametrize("moves", [(), (STAYED,), ({**WENT, "frozen_ms": 0},)])
def test_a_page_without_a_pause_names_none(moves):
    assert "– longest pause" in words(page(*moves))


def test_the_same_is_there_as_data():
    files = moves_files([WENT], TEMPLATES, "A drain", "drain-1", "2026-11-26T04:15:00Z")
    assert json.loads(files["drain-1.json"]) == {"title": "A drain", "finished": "2026-11-26T04:15:00Z", "moves": [WENT]}


def test_each_heading_of_a_table_says_of_what():
    """Of its column or of its row, in the pages of all roles: a reader by ear has no other way to tell."""
    pages = {str(path): path.read_text(encoding="utf-8") for path in COLLECTION.glob("roles/*/templates/*.j2")}
    headings = [(name, heading) for name, text in pages.items() for heading in re.findall(r"<th\b[^>]*>", text)]
    assert len(headings) >= 20 and not [each for each in headings if 'scope="' not in each[1]]
