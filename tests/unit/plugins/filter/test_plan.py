# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from ansible_collections.livefleet.handover.plugins.filter.consolidation import scaled
from ansible_collections.livefleet.handover.plugins.filter.plan import failed_steps


def test_a_step_has_failed_that_began_and_did_not_end_before_this_one():
    def step(number, *marks):
        return {"__handover_step": {"number": number}, **dict.fromkeys(marks, True)}

    hostvars = {
        "ended": step(1, "__handover_has_begun", "__handover_has_ended"),
        "failed": step(1, "__handover_has_begun"),
        "beside": step(2, "__handover_has_begun"),
        "left out": step(1),
    }
    assert failed_steps(list(hostvars), hostvars, 2) == ["failed"]


def test_a_measurement_of_another_length():
    assert scaled({"files": 1000, "mails": 300}, "0.001") == {"files": 1, "mails": 1}
    assert scaled({"files": 1000}, 1) == {"files": 1000}
