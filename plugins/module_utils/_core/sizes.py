# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Sizes as people write and read them, in powers of 1024."""

from __future__ import annotations

import re

_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40, "P": 2**50}
_SIZE = re.compile(r"(?P<number>\d+)\s*(?P<unit>[KMGTP]?)(?P<suffix>iB|B)?", re.IGNORECASE)


def parse_size(text: str) -> int:
    """Bytes of `4096`, `512M`, `10G` or `10GiB`; ValueError says how to write it instead."""
    stripped = text.strip()
    match = _SIZE.fullmatch(stripped)
    if not match:
        raise ValueError(f"'{text}' is not a size: write a whole number with K, M, G, T or P, as in 512M or 10G")
    unit = match.group("unit").upper()
    suffix = (match.group("suffix") or "").lower()
    if unit and suffix == "b":
        # Some read GB as a power of 1000, some of 1024; the difference is 7 %, and it grows.
        raise ValueError(f"'{text}' is ambiguous: write {match.group('number')}{unit} for powers of 1024")
    if not unit and suffix == "ib":
        raise ValueError(f"'{text}' is not a size: write a whole number with K, M, G, T or P, as in 512M or 10G")
    return int(match.group("number")) * _UNITS[unit]


def format_size(size: int) -> str:
    """`10 GiB`, `1.5 GiB`, `512 B`: for messages, so with at most one digit after the point."""
    for unit in ("P", "T", "G", "M", "K"):
        if size >= _UNITS[unit]:
            number = f"{size / _UNITS[unit]:.1f}"
            return f"{number[:-2] if number.endswith('.0') else number} {unit}iB"
    return f"{size} B"
