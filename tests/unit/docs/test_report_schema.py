# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json

import pytest
import yaml
from ansible_collections.livefleet.handover.plugins.filter.move_lines import move_record
from ansible_collections.livefleet.handover.plugins.filter.report_files import SCHEMA
from ansible_collections.livefleet.handover.plugins.plugin_utils._declaration import COLLECTION

jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed beside this ansible-core: the part `python` has it")

PAGE = "docs/reference/move-report.schema.json"
PUBLISHED = json.loads((COLLECTION / PAGE).read_text(encoding="utf-8"))


def test_the_schema_knows_each_property_of_a_report_and_no_other():
    words = yaml.safe_load((COLLECTION / "roles/migrate/vars/main/record.yml").read_text(encoding="utf-8"))["__migrate_report_words"]
    record = move_record(words, {"frozen_ms": 1.0}, {"memory": 1})
    assert set(PUBLISHED["properties"]) == set(PUBLISHED["required"]) == set(record)


def test_the_schema_is_one_and_stands_where_the_page_links_to():
    jsonschema.Draft202012Validator.check_schema(PUBLISHED)
    assert PUBLISHED["$id"] == SCHEMA
    assert SCHEMA.endswith("/blob/main/" + PAGE)
