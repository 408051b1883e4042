#!/usr/bin/env python
# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Writes docs/kvm-inventory.md from the rows of the inventory."""

from __future__ import annotations

import sys
import typing as t
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
PAGE = CHECKOUT / "docs" / "kvm-inventory.md"

sys.path.append(str(CHECKOUT / ".cache" / "collections"))

from ansible_collections.livefleet.handover.plugins.module_utils._kvm import rows  # noqa: E402
from ansible_collections.livefleet.handover.plugins.module_utils._kvm.inventory import ALWAYS, Row  # noqa: E402

HEAD = """# The fate of each part of a guest

<!-- Made by tests/guest_inventory.py from plugins/module_utils/_kvm/rows.py: change the rows, not this page. -->

A move begins only when every part of the guest has been accounted for. A part without a row is refused by its name. `kvm_migrate_ignore` takes
the name of a check, or `element:` and a path, and moves the guest all the same.

| fate | |
|---|---|
| carried | it is on the destination afterwards |
| same | the destination is proven to have the same |
| made anew | the destination makes its own, and nothing of value is in the old one |
| told | the check and the report say it in a sentence |
| refused | the guest is not moved; the sentence says the cure |

In a path `*` stands for one step, and a last `**` for the place and everything below it. The row that names a path most closely decides.
"""


def text() -> str:
    """The page."""
    parts = [HEAD, "## Beside the definition\n", *_table("part", rows.BESIDE), "\n## In the definition\n", *_table("path", rows.INVENTORY.rows)]
    return "\n".join(parts) + "\n"


def _table(head: str, table: t.Iterable[Row]) -> t.Iterator[str]:
    yield f"| {head} | fate | how | check |\n|---|---|---|---|"
    for row in sorted(table, key=lambda row: row.path) if head == "path" else table:
        name = f"`{row.path}`" if head == "path" else row.path
        fate = row.fate if row.when == ALWAYS else f"{row.fate} ({row.when})"
        yield f"| {name} | {fate} | {row.how} | {f'`{row.check}`' if row.check else ''} |"


if __name__ == "__main__":
    PAGE.write_text(text(), encoding="utf-8")
