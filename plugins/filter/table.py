# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleFilterError


def table(rows: t.Sequence[t.Mapping[str, t.Any]], columns: t.Mapping[str, str]) -> list[str]:
    """Lines of text: a heading, a rule, and a line a row. A column of numbers stands to the right."""
    for row in rows:
        missing = [key for key in columns if key not in row]
        if missing:
            raise AnsibleFilterError(f"table: a row has no {missing[0]}: it has {', '.join(map(str, row))}")
    keys = list(columns)
    cells = [[_text(row[key]) for key in keys] for row in rows]
    numbers = [bool(rows) and all(_is_number(row[key]) for row in rows) for key in keys]
    widths = [max(map(len, [columns[key], *(line[at] for line in cells)])) for at, key in enumerate(keys)]

    def line(words: t.Sequence[str]) -> str:
        return "  ".join(word.rjust(width) if number else word.ljust(width) for word, width, number in zip(words, widths, numbers)).rstrip()

    return [line([columns[key] for key in keys]), "-" * (sum(widths) + 2 * (len(widths) - 1)), *map(line, cells)]


def _text(value: t.Any) -> str:
    return "-" if value is None else str(value)


def _is_number(value: t.Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


class FilterModule:
    """Rows for people to read."""

    def filters(self) -> dict[str, t.Callable]:
        """Name → filter."""
        return {"table": table}
