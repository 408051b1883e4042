# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._core.progress import landmark, line, verdict


def status(**other):
    return {
        "id": "shop-1", "workload": "shop", "state": "presync", "ended": False, "running": True, "error": "", "converged": False, "pass": 1,
        "pass_bytes": 2**30, "done_bytes": 2**28, "dirty_bytes": 0, "rate": 400 * 2**20, **other,
    }  # fmt: skip


class TestLine:
    def test_the_first_pass(self):
        assert line(status()) == "shop: presync, pass 1: 25 % of 1 GiB, 400 MiB/s, 2 s to go"

    @pytest.mark.parametrize("rate, text", [(2**30, "1 s"), (2**23, "96 s"), (2**20, "13 min"), (2**15, "6.8 h"), (0, None)])
    def test_what_is_left_to_wait(self, rate, text):
        assert line(status(rate=rate)).endswith(", {0} to go".format(text) if text else "25 % of 1 GiB")

    def test_a_later_pass_says_what_is_left(self):
        text = line(status(**{"pass": 3}, converged=True, dirty_bytes=5 * 2**20, pass_bytes=2**20, done_bytes=2**20, rate=0))
        assert text == "shop: presync, pass 3: 100 % of 1 MiB, 5 MiB left, converged"
        assert line(status(converged=True, forecast_ms=312.4)).endswith(", converged, a pause now of about 0.31 s")
        assert ", a pause now of about 5.80 s, " in line(status(forecast_ms=5800.0))

    def test_a_workload_that_is_slowed_down(self):
        slow = status(converged=True, forecast_ms=912.4, throttle=40)
        assert line(slow).endswith(", converged, a pause now of about 0.91 s, processor time cut by 40 %")
        assert landmark(slow) != landmark(status(converged=True, forecast_ms=912.4, throttle=50))

    def test_one_that_copies_after_others(self):
        waiting = status(waits=2, **{"pass": 0}, pass_bytes=0, done_bytes=0, rate=0)
        assert line(waiting) == "shop: presync, waits for 2 that began earlier"
        assert landmark(waiting) == landmark(dict(waiting, waits=3)) != landmark(dict(waiting, waits=0))

    def test_outside_of_presync_the_state_says_all(self):
        assert line(status(state="frozen")) == "shop: frozen"
        assert line(status(state="prepare", **{"pass": 0})) == "shop: prepare"

    def test_a_connection_that_is_made_again(self):
        assert line(status(broken="the peer is silent")) == "shop: presync, made again: the peer is silent"

    def test_a_copy_without_a_workload_goes_by_its_name(self):
        assert line(status(workload="", state="done", ended=True)) == "shop-1: done"


class TestVerdict:
    def test_converged(self):
        assert verdict(status(), "converged") == (False, None)
        assert verdict(status(converged=True), "converged") == (True, None)

    def test_a_session_that_ended_before_has_failed(self):
        finished, sentence = verdict(status(converged=True, ended=True, state="failed", error="the disk of node2 is full"), "converged")
        assert finished
        assert sentence == "session shop-1 ended before it had converged, in the state failed: the disk of node2 is full"

    def test_a_session_whose_process_is_gone_has_failed(self):
        finished, sentence = verdict(status(running=False, error="the pcopy process of this session is gone"), "converged")
        assert finished and "is gone" in sentence

    @pytest.mark.parametrize("until", ["converged", "ended"])
    def test_a_process_that_is_started_again_goes_on(self, until):
        assert verdict(status(running=False, broken="its process died, and may be started again"), until) == (False, None)

    @pytest.mark.parametrize("state", ["done", "thawed", "discarded", "failed"])
    def test_ended_however_it_ended(self, state):
        assert verdict(status(ended=True, running=False, state=state), "ended") == (True, None)
        assert verdict(status(), "ended") == (False, None)
