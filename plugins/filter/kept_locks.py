# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t


def kept_locks(results: t.Sequence[t.Mapping[str, t.Any]], guest: str) -> list[str]:
    """A line for each host that has not given the guest's lock back."""
    return ["{0} keeps the lock of {1}, and the next run takes it over: {2}".format(each["item"], guest, each["msg"]) for each in results if "msg" in each]


class FilterModule:
    """The end of a guest's move."""

    def filters(self) -> dict[str, t.Callable]:
        """Name → filter."""
        return {"kept_locks": kept_locks}
