# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.livefleet.handover.plugins.filter.osds import (
    impact_sentence,
    osd_batches,
    osd_names,
    osds_asked_for,
    osds_by_host,
    osds_held,
    restart_aftermath,
)

THERE = [{"id": 1, "running": True}, {"id": 2, "running": False}, {"id": 3, "running": True}]
IMPACT = {"score": 1.25, "peak": 7, "clean": 2.5, "worst": 0.126, "whole": True}


def test_osds_have_the_names_that_an_operator_types():
    assert (osd_names([1, 12]), osd_names([]), osd_names([], "nothing")) == ("osd.1, osd.12", "", "nothing")


@pytest.mark.parametrize(
    ("named", "state", "wanted"),
    (
        ([], "restarted", [1, 2, 3]),
        ([3], "restarted", [3]),
        ([], "started", [2]),
        ([1], "started", [1]),
        ([1], "rebooted", [1, 2, 3]),
    ),
)
def test_which_osds_a_run_is_about(named, state, wanted):
    assert osds_asked_for(THERE, named, state) == wanted


@pytest.mark.parametrize(
    ("state", "run", "together", "batches"),
    (
        ("restarted", {"order": [3, 1, 2], "done": [1]}, 1, [[3], [2]]),
        ("restarted", {"order": [3, 1, 2], "done": []}, "2", [[3, 1], [2]]),
        ("restarted", {"order": [1], "done": [1]}, 1, []),
        ("rebooted", {"order": [3, 1, 2], "done": [3]}, 1, [[1, 2]]),
        ("rebooted", {"order": [1], "done": [1]}, 1, []),
        ("started", {"skipped": True}, 1, [[1, 2, 3]]),
    ),
)
def test_only_a_restart_has_more_than_one_batch(state, run, together, batches):
    assert osd_batches([1, 2, 3], state, run, together) == batches


def test_what_an_earlier_run_holds_is_known_by_its_files():
    paths = ["/run/handover-ceph/osd.3", "/run/handover-ceph/osd.3.json", "/run/handover-vmtouch/osd.12", "/run/other/osd.1", "/run/handover-ceph/osd.7"]
    assert osds_held([{"path": path} for path in paths], [1, 3, 12]) == [3, 12]


def test_each_host_has_its_osds():
    assert osds_by_host({"ceph1": {"osds": THERE}, "ceph2": {"osds": []}}) == {"ceph1": [1, 2, 3], "ceph2": []}


@pytest.mark.parametrize(
    ("impact", "seen", "sentence"),
    (
        (IMPACT, {},
         "Placement groups were peering for 1.2 PG·s, up to 7 at once; the last was clean 2.5 s after the OSD was up; the longest operation took 0.13 s."),
        ({**IMPACT, "clean": None, "worst": None, "whole": False}, {},
         "Placement groups were peering for 1.2 PG·s, up to 7 at once, as far as was seen: the watch did not see it come up."),
        ({}, {"msg": "no pool"}, "The effect on the cluster was not measured: no pool"),
        ({}, {}, "The effect on the cluster was not measured: the watch did not come to its end"),
    ),
)  # fmt: skip
def test_the_impact_of_a_restart_in_one_sentence(impact, seen, sentence):
    assert impact_sentence(impact, seen) == sentence


@pytest.mark.parametrize(
    ("reason", "answers", "aftermath"),
    (
        ("", [{}, {}], ""),
        ("it did not come up.", [{}, {"skipped": True}], "it did not come up. The flags of its OSDs are as before"),
        ("it did not come up", [{"msg": "no answer."}, {"msg": "no answer."}], "it did not come up. no answer"),
        ("", [{"msg": "no answer"}], "no answer"),
    ),
)
def test_after_a_failure_the_flags_are_told_of(reason, answers, aftermath):
    assert restart_aftermath(reason, answers) == aftermath
