# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

from ansible_collections.livefleet.handover.plugins.module_utils._core.times import rows, table


class FilterModule:
    """The times of a handover."""

    def filters(self) -> dict[str, t.Callable]:
        """Name → filter."""
        return {"times_rows": rows, "times_table": table}
