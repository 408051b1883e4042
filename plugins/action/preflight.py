# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

from ansible.plugins.action import ActionBase
from ansible_collections.livefleet.handover.plugins.module_utils._core import site
from ansible_collections.livefleet.handover.plugins.modules.preflight import ARGUMENTS, run
from ansible_collections.livefleet.handover.plugins.plugin_utils._operator import prepares
from ansible_collections.livefleet.handover.plugins.plugin_utils._people import say


def link(check: str) -> str:
    """The part of the site on a check. Properties of podman's that have no row are a page of their own."""
    return site.page("container-inventory.html" if check.startswith("inventory:") else site.section("troubleshooting.html", "check", check))


class ActionModule(ActionBase):
    """Compares on the controller: the facts are there already, and are too large to be sent to a host for nothing."""

    TRANSFERS_FILES = False
    _VALID_ARGS = frozenset(ARGUMENTS)
    _requires_connection = False

    def run(self, tmp: t.Any = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        super().run(tmp, task_vars)
        _validation, asked = self.validate_argument_spec(argument_spec=ARGUMENTS)
        for facts in (asked["source_facts"], asked["destination_facts"]):
            for session in (((facts or {}).get("host") or {}).get("pcopy") or {}).get("sessions") or ():
                # Only the controller can see whether the run that prepares a move is still at work.
                session["prepared_now"] = prepares(session)
        result = run(asked)
        for check in dict.fromkeys(finding["check"] for finding in result.get("findings") or ()):
            say("{0}: {1}".format(check, link(check)))
        if "msg" in result:
            return dict(result, failed=True)
        for line in result.get("told") or ():
            say(line)
        return result
