# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ansible_collections.livefleet.handover.plugins.action import controller_files, move_report

STATUS = {"mode": "live", "stages": [{"stage": "dump", "ms": 200.0}], "frozen_ms": 300.0, "error": "", "sent_bytes": 2**20}
RECORD = {
    "session": "shop-1", "workload": "shop", "source": "node1", "destination": "node2", "frozen_ms": 300.0, "memory": 2**20, "running": True,
    "volumes": [], "directories": [], "source_session": STATUS,
}  # fmt: skip


@pytest.fixture(name="report")
def the_action(action, monkeypatch):
    said = []
    monkeypatch.setattr(move_report, "say", said.append)
    templates = str(Path(__file__).resolve().parents[4] / "roles" / "migrate" / "templates")

    def report(directory, **arguments):
        arguments = {"record": RECORD, "told": ["the log stays"], "templates": templates, "directory": str(directory), **arguments}
        return action(move_report, arguments, {}), said

    return report


def test_record_page_and_times(report, tmp_path):
    result, said = report(tmp_path)
    assert result["written"] and result["paths"] == [str(tmp_path / "shop-1.json"), str(tmp_path / "shop-1.html")]
    assert json.loads((tmp_path / "shop-1.json").read_text(encoding="utf-8")) == RECORD
    assert "shop" in (tmp_path / "shop-1.html").read_text(encoding="utf-8")
    assert said[0] == "shop has moved from node1 to node2 (live)." and "the log stays" in said
    assert said[-1] == "Report: {0}".format(tmp_path / "shop-1.html")


def test_the_times_are_shown_where_no_file_can_be_written(report, monkeypatch):
    warned = []
    monkeypatch.setattr(controller_files.display, "warning", warned.append)
    result, said = report("/dev/null/reports")
    assert not result["written"] and not result.get("failed") and "the report was not written: /dev/null" in warned[0]
    assert said[0] == "shop has moved from node1 to node2 (live)." and not any(line.startswith("Report: ") for line in said)
