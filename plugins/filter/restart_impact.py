# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleFilterError
from ansible_collections.livefleet.handover.plugins.module_utils._ceph.restart_impact import Row, beside, picture, row


def restart_beside(rows: t.Sequence[Row], record: str = "", path: str = "") -> list[Row]:
    """The rows of this run beside those of an earlier one."""
    try:
        return beside(rows, record, path)
    except ValueError as exc:
        raise AnsibleFilterError(str(exc)) from None


class FilterModule:
    """The cost of OSD restarts."""

    def filters(self) -> dict[str, t.Callable]:
        """Name → filter."""
        return {"restart_impact": row, "restart_beside": restart_beside, "restart_picture": picture}
