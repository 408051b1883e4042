# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._core.times import base, expected, rows, table

STATUS = {
    "mode": "live",
    "frozen_ms": 395.2,
    "stages": [
        {"stage": "dump", "start_ms": 72.0, "ms": 51.0},
        {"stage": "barrier", "start_ms": -6.0, "ms": 6.0},
        {"stage": "arm", "start_ms": -2.0, "ms": 2.0},
        {"stage": "freeze", "start_ms": 0.0, "ms": 72.4},
        {"stage": "made_up", "start_ms": 80, "ms": 1},
    ],
}


def test_rows_stand_in_the_order_of_their_beginning():
    found = rows(STATUS)
    assert [row["label"] for row in found] == ["Barrier", "Get ready", "Freeze", "Dump", "Made up"]
    assert [row["frozen"] for row in found] == [False, False, True, True, True]


def test_a_table_as_vzmigrate_printed_it():
    assert table(STATUS) == [
        "Stage                         from          took",
        "------------------------------------------------",
        "Barrier                   -0.006 s       0.006 s",
        "Get ready                 -0.002 s       0.002 s",
        "Freeze                     0.000 s       0.072 s",
        "Dump                       0.072 s       0.051 s",
        "Made up                    0.080 s       0.001 s",
        "------------------------------------------------",
        "Total suspended time                     0.395 s",
    ]


def test_a_workload_that_did_not_run_was_not_suspended():
    assert table(STATUS, ran=False)[-1] == "Total time                               0.395 s"


def test_the_time_at_risk_stands_behind_the_pause():
    assert table({**STATUS, "at_risk_ms": 912.3})[-2:] == [
        "Total suspended time                     0.395 s",
        "Time at risk                             0.912 s",
    ]


def test_offline_the_stages_have_other_names_and_no_memory_moves():
    found = rows({**STATUS, "mode": "offline"})
    assert [row["label"] for row in found] == ["Barrier", "Stop", "Made up"]


def test_without_stages_there_is_only_the_total():
    assert table({})[-1].endswith("0.000 s")


def test_what_a_trial_says_of_a_move():
    trial = {"stages": [{"stage": "freeze", "start_ms": 0.0, "ms": 30.0}, {"stage": "dump", "start_ms": 30.0, "ms": 100.0}], "state_bytes": 50_000_000}
    # 30 to freeze, 100 to dump, 400 to send, 100 to restore.
    assert expected(trial, 125_000_000, False) == 630.0
    assert expected({}, 1, False) == expected({}, 1, True) == 0.0
    # With placed memory the link does not matter, and of its dump 50 ms were for the memory.
    memory = {**trial, "state_bytes": 65 * 2**20}
    assert expected(memory, 1, True) == pytest.approx(30 + 2 * 50 + 0.65 * 50)


def test_what_a_pause_takes_in_any_case():
    trial = {"stages": [{"stage": "freeze", "start_ms": 0.0, "ms": 30.0}, {"stage": "dump", "start_ms": 30.0, "ms": 100.0}], "state_bytes": 65 * 2**20}
    assert base(trial) == 30 + 2 * 50
    assert base({**trial, "state_bytes": 2**30}) == 30
    assert base({}) == 0
