# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The cutover: the workload is frozen here, and resumed on the other host."""

from __future__ import annotations

import os
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ..._core.pcopy import Pcopy
from ..._core.runtime import HandoverError, Runtime
from ..._core.step import Step
from ..sessions import ROOT, Sessions, outcome


def run(module: AnsibleModule) -> dict[str, t.Any]:
    """The result of the module; with `msg` where the workload has not moved."""
    params = module.params
    runtime = Runtime(module, params["timeout"])
    session = Sessions(Pcopy(runtime), params["sessions"]).session(params["session"])
    if not session.specified:
        raise HandoverError("there is no session {0} on this host: begin it with livefleet.handover.session".format(params["session"]))
    status = session.status()
    reasons: list[str] = []
    if not status["ended"]:
        reasons.append("{0} runs on {1} and is to run on {2}".format(status["workload"], params["source"], params["destination"]))
        if module.check_mode:
            return {"changed": True, "reasons": reasons, "status": status}
        # The time left for the way back of the answer, when the helper's own limit has passed.
        wave = [os.path.join(params["sessions"], name) for name in params["wave"]]
        status = session.cutover(max(1.0, runtime.remaining() - 15), wave)
    result: dict[str, t.Any] = {"changed": bool(reasons), "reasons": reasons, "status": status}
    sentence = outcome(status, params["source"], params["destination"])
    if sentence is not None:
        result["msg"] = sentence
    return result


STEP = Step(
    arguments={
        "session": {"type": "str", "required": True},
        "wave": {"type": "list", "elements": "str", "default": []},
        "source": {"type": "str", "default": "the source"},
        "destination": {"type": "str", "default": "the destination"},
        "sessions": {"type": "path", "default": ROOT},
        "timeout": {"type": "int", "default": 300},
    },
    run=run,
)
