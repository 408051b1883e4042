# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The table that a run of faults leaves on a page."""

from __future__ import annotations

import sys
from pathlib import Path

FAULTS = Path(__file__).resolve().parent.parent.parent / "faults"
sys.path.insert(0, str(FAULTS))
from page import Table

TEXT = "Before.\n\n<!-- begin -->\n<!-- end -->\n\nAfter.\n"


def test_a_run_puts_its_cells_in_and_leaves_the_others(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(TEXT, encoding="utf-8")
    found = Table(page, "<!-- begin -->", "<!-- end -->", ("power lost", "cut"), ("early", "late"))
    found.keep("cut", "late", "moved")
    found.keep("power lost", "early", "stayed")
    found.keep("cut", "late", "**FAILED**")
    assert page.read_text(encoding="utf-8") == (
        "Before.\n\n<!-- begin -->\n\n"
        "| fault | early | late |\n| --- | --- | --- |\n| power lost | stayed |  |\n| cut |  | **FAILED** |\n"
        "\n<!-- end -->\n\nAfter.\n"
    )


def test_what_is_no_row_of_it_any_more_goes() -> None:
    found = Table(Path(), "<!-- begin -->", "<!-- end -->", ("cut",), ("early", "late"))
    old = TEXT.replace("<!-- end -->", "| fault | early | late |\n| --- | --- | --- |\n| fire | stayed | |\n| cut | moved | |\n<!-- end -->")
    assert "fire" not in found.put(old, {})
    assert "| cut | moved |  |" in found.put(old, {})
