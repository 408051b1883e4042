# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

SILENT = "a task failed and said nothing"


def failure_reason(result: t.Mapping[str, t.Any]) -> str:
    """Why a block failed, out of C(ansible_failed_result): of a loop, the reason of the first item that failed."""
    items = [item.get("msg") for item in result.get("results") or [] if item.get("failed")]
    return str((items[0] if items else "") or result.get("msg") or SILENT).strip()


# Ansible's message where a command says more in its output: ssh with a terminal has all of it there.
UNTOLD = "non-zero return code"


def last_words(result: t.Mapping[str, t.Any]) -> str:
    """The last line of the output of a command that failed; without any, its exit status."""
    said = next((text.strip() for text in map(result.get, ("stderr", "msg", "stdout")) if text and text.strip() not in ("", UNTOLD)), "")
    return (said or f"it ended with status {result.get('rc')}").splitlines()[-1].strip().rstrip(".")


class FilterModule:
    """Why a block failed."""

    def filters(self) -> dict[str, t.Callable]:
        """Name → filter."""
        return {"failure_reason": failure_reason, "last_words": last_words}
