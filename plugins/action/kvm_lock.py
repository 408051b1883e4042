# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import time
import typing as t

from ansible.plugins.action import ActionBase
from ansible_collections.livefleet.handover.plugins.module_utils._kvm.lock import PATIENCE, sentence, standing
from ansible_collections.livefleet.handover.plugins.plugin_utils._operator import at_work, myself, same_run
from ansible_collections.livefleet.handover.plugins.plugin_utils._people import say

POLL_SECONDS = 1.0


def another(seen: t.Mapping[str, t.Any], claim: t.Mapping[str, t.Any]) -> bool:
    """Whether another run's play has the guest, and is there."""
    found = seen.get("claim")
    if not found or found.get("run") == claim.get("run"):
        return False
    by = found.get("by") or {}
    # An earlier move of this very play, that could not give the guest back.
    if same_run(by, claim.get("by") or {}):
        return False
    # Of a run of another controller the last step counts, and not the first.
    return at_work({**by, "since": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - seen.get("idle", PATIENCE)))})


class ActionModule(ActionBase):
    """Looks whose the guest is, and whether that run is still there; then asks the host for the lock."""

    TRANSFERS_FILES = False
    _supports_check_mode = True

    def run(self, tmp: t.Any = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        super().run(tmp, task_vars)
        asked = dict(self._task.args)
        if asked.get("state", "taken") != "taken":
            return self._execute_module(module_name="livefleet.handover.kvm_lock", module_args=asked, task_vars=task_vars)
        guest, claim = asked["guest"], asked.get("claim") or {"by": myself(task_vars or {})}
        until, told = time.monotonic() + int(asked.get("timeout", 3600)), False
        while True:
            look = {"guest": guest, "state": "seen"}
            seen = self._execute_module(module_name="livefleet.handover.kvm_lock", module_args=look, task_vars=task_vars)
            if seen.get("failed") or seen.get("unreachable"):
                return seen
            if another(seen, claim) or (seen["held"] and (self._task.check_mode or not seen.get("claim") or time.monotonic() > until)):
                return dict(failed=True, msg=sentence(guest, seen.get("claim")))
            if not seen["held"]:
                break
            if seen.get("stopped"):
                return dict(failed=True, msg=standing(guest, seen["stopped"]))
            if not told:
                say("{0}: the play of run {1} has ended, and its last step has not: waiting for that".format(guest, seen["claim"]["run"]))
                told = True
            time.sleep(POLL_SECONDS)
        asked["over"] = (seen.get("claim") or {}).get("run", "")
        return self._execute_module(module_name="livefleet.handover.kvm_lock", module_args=asked, task_vars=task_vars)
