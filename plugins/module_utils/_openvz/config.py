# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reads a container's configuration (CTID.conf) of OpenVZ 6, Virtuozzo 7 and later, as vzctl reads it.

A line is NAME=value or NAME="value"; blanks around it and lines that begin with # mean nothing. Of a parameter that is set twice, vzctl 4 takes the
first and libvzctl the last. libvzctl alone knows single quotes, and remarks behind a value.
"""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass

# Parameters that only libvzctl writes. One of them tells a newer file from an older.
NEWER = frozenset(("UUID", "VE_TYPE", "VEFORMAT", "DISTRIBUTION", "TECHNOLOGIES", "BINDMOUNT", "DISK", "TEMPLATES", "JOURNALED_QUOTA", "HA_ENABLE"))
PAGE = 4096
SUFFIXES = {"": 1, "B": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
# A limit that is none: the programs write the largest number of 32 or of 64 bits. A product beyond the latter is none, too.
LARGEST_OF_32, LARGEST = (1 << 31) - 1, (1 << 63) - 1
_AMOUNT = re.compile(r"(\d+)(\.\d+)?([BKMGTP]?)", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True)
class Line:
    """One line that says something. `fault` is why it cannot be read."""

    number: int
    name: str
    value: str
    fault: str = ""


def unescaped(text: str) -> str:
    """Without backslashes, each of which protects the character behind it."""
    found, protected = [], False
    for character in text:
        if character == "\\" and not protected:
            protected = True
            continue
        found.append(character)
        protected = False
    return "".join(found)


def without_remark(text: str) -> str:
    """Up to a word that begins with #, outside of quotes."""
    quote, between = "", True
    for index, character in enumerate(text):
        if quote:
            quote = "" if character == quote else quote
        elif character == "#" and between:
            return text[:index]
        else:
            quote, between = character if character in "\"'" else "", character.isspace()
    return text


def read_line(number: int, text: str, newer: bool) -> Line | None:
    """A line of the file; None if it is empty or a remark."""
    text = unescaped(text).strip()
    if newer:
        text = without_remark(text).strip()
    if not text or text.startswith("#"):
        return None
    name, equals, value = text.partition("=")
    if not equals:
        return Line(number, "", text, "it has no equals sign")
    if newer:
        value = value[1:] if value[:1] in ('"', "'") else value
        return Line(number, name, value[:-1] if value[-1:] in ('"', "'") else value)
    if value.startswith('"'):
        value, quote, behind = value[1:].rpartition('"')
        if not quote:
            return Line(number, name, behind, "its quotation mark is not closed")
    return Line(number, name, value)


def read(text: str) -> list[Line]:
    """All lines that say something."""
    found = _read(text, False)
    return _read(text, True) if is_newer(found) else found


def read_defaults(text: str, lines: t.Iterable[Line]) -> list[Line]:
    """The host's defaults (vz.conf) for what a container's lines leave open, each under the number 0."""
    newer = is_newer(lines)
    found: dict[str, Line] = {}
    for line in _read(text, newer):
        if not line.fault and (newer or line.name not in found):
            found[line.name] = Line(0, line.name, line.value)
    for line in lines:
        found.pop(line.name, None)
    return list(found.values())


def _read(text: str, newer: bool) -> list[Line]:
    # Only this character ends a line: a description may have others that Python takes for an end.
    lines = (read_line(number, line, newer) for number, line in enumerate(text.split("\n"), 1))
    return [line for line in lines if line is not None]


def is_newer(lines: t.Iterable[Line]) -> bool:
    """Whether libvzctl wrote the file, and not vzctl 4."""
    return any(line.name in NEWER for line in lines)


def amount(text: str, unit: int) -> int | None:
    """A number in units, or with a suffix in bytes (P is pages). None is no limit. Raises ValueError."""
    word = text.strip()
    if word.lower() == "unlimited":
        return None
    match = _AMOUNT.fullmatch(word)
    if not match:
        raise ValueError(f"{text!r} is no number")
    digits, fraction, suffix = match.group(1), match.group(2), match.group(3).upper()
    if not suffix:
        return None if int(digits) == LARGEST_OF_32 or int(digits) * unit >= LARGEST else int(digits) * unit
    size = PAGE if suffix == "P" else SUFFIXES[suffix]
    found = int(float(digits + fraction) * size) if fraction else int(digits) * size
    return None if found >= LARGEST else found


def limit(text: str, unit: int) -> int | None:
    """The limit of `barrier:limit`; one number is both. Raises ValueError."""
    words = text.split(":")
    if len(words) > 2:
        raise ValueError(f"{text!r} is no barrier and limit")
    return amount(words[-1], unit)


def yes_or_no(text: str) -> bool:
    """Raises ValueError."""
    if text not in ("yes", "no"):
        raise ValueError(f"{text!r} is neither yes nor no")
    return text == "yes"


def switches(text: str) -> list[tuple[str, bool]]:
    """`name:on` and `name:off`, with blanks or commas between them. Raises ValueError."""
    found = []
    for word in text.replace(",", " ").split():
        name, _colon, state = word.partition(":")
        if not name or state not in ("on", "off"):
            raise ValueError(f"{word!r} is neither on nor off")
        found.append((name, state == "on"))
    return found
