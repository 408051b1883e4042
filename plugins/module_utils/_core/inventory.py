# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The fate of each piece of a container's state in a move: the form of an engine's inventory.

A row says that a piece is `carried` (by what), the `same` on both hosts (how that is proven), `made anew` (nothing of value is in it),
`told` (a sentence in the check and after the move) or `refused` (with the cure). Rows are about keys of an engine's inspect; a key that has no
row and holds something is refused by name.
"""

from __future__ import annotations

import typing as t

CARRIED, SAME, ANEW, TOLD, REFUSED = "carried", "same", "made anew", "told", "refused"


class Row(t.NamedTuple):
    """The fate of one piece of state."""

    fate: str
    how: str
    check: str = ""  # of the preflight, where a fate is told or refused


# By key of an engine's inspect. A row is about all that is below its key; [] is any element of a list, * any key of a map.
Rows = t.Mapping[str, Row]


def rows(fate: str, how: str, *keys: str, check: str = "") -> dict[str, Row]:
    """The same row for several keys."""
    return {key: Row(fate, how, check) for key in keys}


def row_of(inventory: Rows, key: str) -> Row | None:
    """The row about a key of an engine's inspect, if there is one."""
    if key in inventory:
        return inventory[key]
    parts = key.split(".")
    starred = (".".join([*parts[:index], "*", *parts[index + 1 :]]) for index in range(len(parts)))
    return next((inventory[star] for star in starred if star in inventory), None)


def unaccounted(inventory: Rows, inspect: t.Any, key: str = "") -> list[str]:
    """The keys below that hold something and that no row is about."""
    if not inspect or key and row_of(inventory, key):
        return []
    if isinstance(inspect, dict):
        return sorted({found for name, value in inspect.items() for found in unaccounted(inventory, value, below(key, name))})
    if isinstance(inspect, list) and all(isinstance(each, dict) for each in inspect):
        return sorted({found for each in inspect for found in unaccounted(inventory, each, key + "[]")})
    return [key]


def below(key: str, name: str) -> str:
    """The key of a value in a map. Names of networks have dots, which part the keys here."""
    return "{0}.{1}".format(key, name.replace(".", "_")) if key else name


def lines(inventory: Rows) -> str:
    """The rows as lines of a table of the documentation."""
    checks = {key: "`{0}`".format(row.check) if row.check else "" for key, row in inventory.items()}
    return "\n".join("| {0} | {1} | {2} | {3} |".format(key, row.fate, row.how, checks[key]) for key, row in inventory.items())
