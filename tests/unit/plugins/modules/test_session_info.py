# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""session_info tells what the helper knows, and what was only planned."""

from __future__ import annotations

import json

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._podman.sessions import Session
from ansible_collections.livefleet.handover.plugins.module_utils._podman.steps import session_info as step
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


class Told:
    """What the helper says, one answer after the other; the last one stays. Time passes only while somebody sleeps."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.now = 0.0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds

    def known(self, _session):
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


COPYING = {"id": "shop-1", "state": "presync", "ended": False, "running": True, "error": "", "converged": False}


@pytest.mark.parametrize(
    ("answers", "patience", "state", "waited"),
    [
        ([COPYING, COPYING, {**COPYING, "converged": True}], 2, "presync", 0.2),
        ([COPYING, {**COPYING, "ended": True, "state": "failed"}], 2, "failed", 0.1),
        ([COPYING, None], 2, None, 0.1),
        ([COPYING], 2, "presync", 2.0),
        ([COPYING], 0, "presync", 0.0),
    ],
)
def test_with_patience_the_host_waits_until_it_has_converged_or_failed(run_module, helper, monkeypatch, answers, patience, state, waited):
    told = Told(*answers)
    monkeypatch.setattr(step, "time", told)

    def known(session):
        return told.known(session)

    monkeypatch.setattr(Session, "known", known)
    found = run_module(session_info.main, {"session": "shop-1", "sessions": str(helper.root), "patience": patience})["sessions"]
    assert [each["state"] for each in found] == ([state] if state else [])
    assert told.now == pytest.approx(waited, abs=0.11)
