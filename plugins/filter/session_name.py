# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import re
import typing as t

# With the time behind it, the name of a session stays within what a path of a socket may have.
WORKLOAD_CHARACTERS = 34


def session_name(workload: str, moment: str) -> str:
    """The name of a new session: the workload's, as far as it is of letters and digits, and when it began."""
    return (re.sub("[^a-z0-9]+", "-", workload.lower())[:WORKLOAD_CHARACTERS] + moment).lstrip("-")


class FilterModule:
    """A session that begins."""

    def filters(self) -> dict[str, t.Callable]:
        """Name → filter."""
        return {"session_name": session_name}
