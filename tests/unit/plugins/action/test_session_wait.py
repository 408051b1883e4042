# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible.errors import AnsibleConnectionFailure
from ansible_collections.livefleet.handover.plugins.action import session_wait
from ansible_collections.livefleet.handover.plugins.action.session_wait import ActionModule


def status(**other):
    return {
        "id": "shop-1", "workload": "shop", "state": "presync", "ended": False, "running": True, "error": "", "converged": False, "pass": 1,
        "pass_bytes": 100, "done_bytes": 10, "dirty_bytes": 0, "rate": 0, **other,
    }  # fmt: skip


@pytest.fixture
def wait(monkeypatch, clock):
    """Runs the action against a list of answers, the last of which stays; returns the result, and what was shown."""
    monkeypatch.setattr(session_wait, "time", clock)

    def run(answers, **arguments):
        answers, shown = list(answers), []
        action = ActionModule.__new__(ActionModule)
        monkeypatch.setattr(session_wait.ActionBase, "run", lambda *args, **kwargs: {})
        monkeypatch.setattr(session_wait, "say", lambda text: shown.append("  " + text))
        arguments = {"session": "shop-1", "until": "converged", "interval": 1.0, "timeout": 100, "sessions": "/s", "known": {}, **arguments}
        monkeypatch.setattr(ActionModule, "validate_argument_spec", lambda self, argument_spec: (None, arguments))

        def execute(action, name, asked, task_vars):
            assert (name, asked) == ("session_info", {"session": "shop-1", "sessions": "/s"})
            answer = answers.pop(0) if len(answers) > 1 else answers[0]
            if isinstance(answer, Exception):
                raise answer
            return answer if "sessions" in answer or "failed" in answer else {"sessions": [answer]}

        monkeypatch.setattr(session_wait, "ask", execute)
        return action.run(task_vars={}), shown

    return run


def test_a_log_gets_a_line_when_it_says_something_new(wait):
    second = status(**{"pass": 2}, dirty_bytes=30)
    result, shown = wait([status(), status(done_bytes=50), status(done_bytes=90), second, status(converged=True, done_bytes=100)])
    assert not result.get("failed")
    assert result["status"]["converged"]
    assert result["waited"] == 4.0
    assert shown == [
        "  shop: presync, pass 1: 10 % of 100 B",
        "  shop: presync, pass 2: 10 % of 100 B, 30 B left",
        "  shop: presync, pass 1: 100 % of 100 B, 0 B left, converged",
    ]


def test_a_log_gets_a_line_from_time_to_time(wait):
    _result, shown = wait([status(done_bytes=number) for number in range(25)] + [status(converged=True)])
    assert [line.split(" % ")[0].split()[-1] for line in shown] == ["0", "10", "20", "10"]


def test_where_lines_are_shown_live_the_log_stays_empty(wait, monkeypatch):
    told = []
    monkeypatch.setattr(session_wait, "tell", lambda **news: told.append(news) or True)
    _result, shown = wait([status(), status(converged=True)])
    assert shown == []
    assert [(news["key"], news["stage"], news["status"]["converged"]) for news in told] == [("shop-1", "presync", False), ("shop-1", "presync", True)]


def test_the_longer_it_takes_the_less_often_it_is_asked(wait):
    asked = [status()] * 60 + [status(converged=True)]
    result, _shown = wait(asked, timeout=1000)
    assert result["waited"] > 2 * 60


def test_a_pass_that_says_how_long_it_will_take_is_asked_again_after_half_of_that(wait):
    hour = status(pass_bytes=3600, rate=1)
    assert wait([hour, hour, status(converged=True)])[0]["waited"] == 20.0
    assert wait([status(pass_bytes=18, rate=1), status(pass_bytes=12, done_bytes=11, rate=1), status(converged=True)])[0]["waited"] == 5.0


def test_a_session_that_fails_fails_the_task_with_its_own_reason(wait):
    result, _shown = wait([status(), status(ended=True, running=False, state="failed", error="the disk of node2 is full")])
    assert result["failed"]
    assert result["msg"] == "session shop-1 ended before it had converged, in the state failed: the disk of node2 is full"


def test_a_host_that_is_out_of_reach_for_a_moment_is_asked_again(wait):
    result, _shown = wait([status(), AnsibleConnectionFailure("no route"), {"sessions": [], "unreachable": True}, status(converged=True)])
    assert not result.get("failed")


def test_a_host_that_stays_out_of_reach_is_unreachable(wait):
    with pytest.raises(AnsibleConnectionFailure, match="session shop-1: its host has been out of reach for 6"):
        wait([status(), AnsibleConnectionFailure("no route")])


def test_a_wait_that_is_too_long_says_what_to_do(wait):
    result, _shown = wait([status()], timeout=5)
    assert result["msg"].startswith("session shop-1 has not converged within 5 s, shop: presync, pass 1: 10 % of 100 B: give it longer")


def test_a_session_that_is_not_there(wait):
    result, _shown = wait([{"sessions": []}])
    assert result["msg"] == "there is no session shop-1 on this host: it was never begun, or was removed"


def test_a_session_whose_records_were_removed_has_ended(wait):
    result, _shown = wait([{"sessions": []}], until="ended")
    assert not result.get("failed")
    assert result["status"] is None


def test_what_session_info_could_not_do_is_told(wait):
    result, _shown = wait([{"failed": True, "msg": "the helper is missing"}])
    assert result["msg"] == "the helper is missing"


def test_an_answer_from_just_now_stands_for_the_first_question(wait):
    converged = {"sessions": [status(converged=True, dirty_bytes=7)]}
    result, _shown = wait([RuntimeError("the host was asked")], known=converged)
    assert result["status"]["dirty_bytes"] == 7 and not result.get("failed")
    result, _shown = wait([status(converged=True, dirty_bytes=3)], known={"sessions": [status()]})
    assert (result["status"]["dirty_bytes"], result["waited"]) == (3, 1.0)


@pytest.mark.parametrize("known", [{"sessions": []}, {"sessions": [{**status(converged=True), "id": "shop-0"}]}, {"msg": "no helper"}])
def test_an_answer_about_another_session_is_none(wait, known):
    result, _shown = wait([status(converged=True, dirty_bytes=3)], known=known)
    assert (result["status"]["dirty_bytes"], result["waited"]) == (3, 0.0)
