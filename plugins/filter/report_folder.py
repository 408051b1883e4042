# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import typing as t


def report_folder(folder: str) -> str:
    """An absolute path on the controller. A relative one begins where the operator stands, and not where the playbook lies."""
    return folder if folder.startswith("/") else os.environ.get("PWD", "") + "/" + folder


def with_page(lines: t.Sequence[str], files: t.Sequence[str] | None) -> list[str]:
    """The lines, and at their end where the page of a report is, if one of the files that were written is a page."""
    page = next((path for path in files or () if path.endswith(".html")), "")
    return [*lines, *(["", f"Report: {page}"] if page else [])]


class FilterModule:
    """Where a report goes."""

    def filters(self) -> dict[str, t.Callable]:
        """Name → filter."""
        return {"report_folder": report_folder, "with_page": with_page}
