# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The sessions of this host."""

from __future__ import annotations

import time
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ..._core.pcopy import Pcopy
from ..._core.progress import verdict
from ..._core.runtime import Runtime
from ..._core.step import Step
from ..sessions import ROOT, Sessions

LOOK_SECONDS = 0.1


def run(module: AnsibleModule) -> dict[str, t.Any]:
    """The result of the module."""
    sessions = Sessions(Pcopy(Runtime(module, module.params["timeout"])), module.params["sessions"])
    if module.params["session"] is None:
        return {"changed": False, "sessions": sessions.statuses()}
    session = sessions.session(module.params["session"])
    known = session.known()
    end = time.monotonic() + module.params["patience"]
    while known is not None and not verdict(known, "converged")[0] and time.monotonic() < end:
        time.sleep(LOOK_SECONDS)
        known = session.known()
    return {"changed": False, "sessions": [] if known is None else [known]}


STEP = Step(
    arguments={
        "session": {"type": "str"},
        "sessions": {"type": "path", "default": ROOT},
        "patience": {"type": "float", "default": 0},
        "timeout": {"type": "int", "default": 30},
    },
    run=run,
)
