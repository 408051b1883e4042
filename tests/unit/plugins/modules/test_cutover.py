# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""cutover asks the helper once, and a workload that has not moved is a failure."""

from __future__ import annotations

import pytest
from ansible_collections.livefleet.handover.plugins.modules import cutover


@pytest.fixture
def ask(run_module, helper):
    def run(check=False):
        params = {"session": "shop-1", "sessions": str(helper.root), "source": "node1", "destination": "node2"}
        return run_module(cutover.main, params, check=check)

    return run


def test_it_asks_once_and_tells_the_outcome(helper, ask):
    helper.place("shop-1", state="presync", running=True)
    helper.answers["cutover"] = {"state": "done", "ended": True, "frozen_ms": 395.2}
    result = ask()
    assert result["changed"]
    assert result["status"]["frozen_ms"] == 395.2
    assert result["reasons"] == ["shop runs on node1 and is to run on node2"]
    assert not ask()["changed"]
    assert len(helper.commands) == 1


def test_a_workload_that_has_not_moved_is_a_failure(helper, ask):
    helper.place("shop-1", state="presync", running=True)
    helper.answers["cutover"] = {"state": "thawed", "ended": True, "error": "restoring failed"}
    with pytest.raises(Exception, match="shop was not moved and runs on node1 as before: restoring failed") as failed:
        ask()
    assert failed.value.result["status"]["state"] == "thawed"


def test_a_session_that_is_not_there(helper, ask):
    with pytest.raises(Exception, match="there is no session shop-1 on this host"):
        ask()


def test_check_mode_asks_nothing(helper, ask):
    helper.place("shop-1", state="presync", running=True)
    assert ask(check=True)["changed"]
    assert helper.commands == []
