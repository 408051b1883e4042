# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

Answer = t.Mapping[str, t.Any]


def first_session(answer: Answer) -> dict[str, t.Any]:
    """The session that a host was asked for; empty if it has none, or gave no answer."""
    return dict(next(iter(answer.get("sessions") or []), {}))


def messages(answer: Answer) -> list[str]:
    """The sentences of those items of a loop that have one."""
    return [item["msg"] for item in answer.get("results") or [] if item.get("msg")]


class FilterModule:
    """A host's answer."""

    def filters(self) -> dict[str, t.Callable]:
        """Name → filter."""
        return {"first_session": first_session, "messages": messages}
