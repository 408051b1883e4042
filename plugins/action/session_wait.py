# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import time
import typing as t

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase
from ansible_collections.livefleet.handover.plugins.module_utils._core.progress import landmark, left, line, verdict
from ansible_collections.livefleet.handover.plugins.plugin_utils._host_steps import ask
from ansible_collections.livefleet.handover.plugins.plugin_utils._live import key, tell
from ansible_collections.livefleet.handover.plugins.plugin_utils._people import say

# A host that is out of reach for a moment has not stopped copying.
UNREACHABLE_SECONDS = 60.0
# Without a live display a line is printed when it says something new, and otherwise from time to time.
PLAIN_SECONDS = 10.0
# A question costs the controller something, and many moves may wait. A pass with a forecast of its length is asked again after half
# of that; where nothing is said, the questions come the rarer the longer it has taken.
PATIENCE, SLOWEST = 20, 10.0


class ActionModule(ActionBase):
    """Asks session_info until it is enough, and shows the changes."""

    TRANSFERS_FILES = False
    _VALID_ARGS = frozenset(("session", "until", "interval", "timeout", "sessions", "known"))

    def run(self, tmp: t.Any = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        super().run(tmp, task_vars)
        _validation, arguments = self.validate_argument_spec(
            argument_spec={
                "session": {"type": "str", "required": True},
                "until": {"type": "str", "choices": ["converged", "ended"], "default": "converged"},
                "interval": {"type": "float", "default": 1.0},
                "timeout": {"type": "int", "default": 3600},
                "sessions": {"type": "path", "default": "/var/lib/handover/sessions"},
                "known": {"type": "dict", "default": {}},
            }
        )
        began = heard = time.monotonic()
        last = ""
        shown: tuple[t.Any, float] = (None, began)
        to_go: float | None = None
        known: dict[str, t.Any] | None = arguments["known"]
        if [each.get("id") for each in arguments["known"].get("sessions") or []] != [arguments["session"]]:
            known = None
        whose = key(task_vars or {}) or arguments["session"]
        while True:
            now = time.monotonic()
            answer = known or self._ask(arguments, task_vars)
            known = None
            if answer is None:
                if now - heard > UNREACHABLE_SECONDS:
                    raise AnsibleConnectionFailure("session {0}: its host has been out of reach for {1:.0f} s".format(arguments["session"], now - heard))
            elif answer.get("failed"):
                return dict(failed=True, msg=answer.get("msg") or "session_info failed and said nothing")
            else:
                heard = now
                if not answer["sessions"] and arguments["until"] == "ended":
                    return {"changed": False, "status": None, "waited": round(now - began, 1)}
                if not answer["sessions"]:
                    return dict(failed=True, msg="there is no session {0} on this host: it was never begun, or was removed".format(arguments["session"]))
                status = answer["sessions"][0]
                last, to_go = line(status), left(status)
                live = tell(key=whose, stage="presync", status=status) if arguments["until"] == "converged" else tell(key=whose)
                if not live and (landmark(status) != shown[0] or now - shown[1] >= PLAIN_SECONDS):
                    say(last)
                    shown = landmark(status), now
                finished, sentence = verdict(status, arguments["until"])
                if finished:
                    result = {"changed": False, "status": status, "waited": round(now - began, 1)}
                    return dict(result, failed=True, msg=sentence) if sentence else result
            if now - began + arguments["interval"] > arguments["timeout"]:
                return dict(
                    failed=True,
                    msg="session {0} has not {1} within {2} s{3}: give it longer (timeout), or less to do (target_dirty, limit)".format(
                        arguments["session"], "converged" if arguments["until"] == "converged" else "ended", arguments["timeout"], ", " + last if last else ""
                    ),
                )
            time.sleep(min(SLOWEST, max(arguments["interval"], (now - began) / PATIENCE if to_go is None else to_go / 2)))

    def _ask(self, arguments: dict[str, t.Any], task_vars: dict[str, t.Any] | None) -> dict[str, t.Any] | None:
        """The answer of session_info, or None where the host cannot be reached."""
        try:
            answer = ask(self, "session_info", {"session": arguments["session"], "sessions": arguments["sessions"]}, task_vars)
        except AnsibleConnectionFailure:
            return None
        return None if answer.get("unreachable") else answer
