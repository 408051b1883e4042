# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""session_info tells what the helper knows, and what was only planned."""

from __future__ import annotations

import json

from ansible_collections.livefleet.handover.plugins.modules import session_info


def test_all_and_one_and_none(run_module, helper):
    helper.place("shop-1")
    helper.place("till-2", workload="till")
    (helper.root / "unfinished").mkdir()
    (helper.root / "a file").write_text("")
    ask = {"sessions": str(helper.root)}
    assert [each["workload"] for each in run_module(session_info.main, ask)["sessions"]] == ["shop", "till"]
    assert [each["id"] for each in run_module(session_info.main, {**ask, "session": "till-2"})["sessions"]] == ["till-2"]
    assert run_module(session_info.main, {**ask, "session": "gone"})["sessions"] == []
    assert run_module(session_info.main, {"sessions": str(helper.root / "missing")})["sessions"] == []


def test_what_was_planned_is_told_also_when_nothing_came_after_it(run_module, helper):
    helper.place("shop-1", state="presync")
    till = {"boot_id": "another", "plan": {"role": "destination", "workload": "till"}}
    for name, text in (("shop-1", '{"boot_id": "", "plan": {"destination": "node2"}}'), ("till-2", json.dumps(till)), ("torn-3", '{"boot_id"')):
        (helper.root / name).mkdir(exist_ok=True)
        (helper.root / name / "plan.json").write_text(text)
    shop, till = run_module(session_info.main, {"sessions": str(helper.root)})["sessions"]
    assert (shop["state"], shop["plan"]) == ("presync", {"destination": "node2"})
    assert till["restarted"]
    assert (till["id"], till["role"], till["workload"], till["state"], till["running"]) == ("till-2", "destination", "till", "prepare", False)
