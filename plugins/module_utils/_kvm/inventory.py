# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The fate of each part of a guest when it moves: the rules by which rows are read. The rows are in rows.

A path is that of an element or attribute below <domain>, as in `devices/disk/source/@file`. In a row `*` stands for one step and a last `**`
for the place itself and everything below it. The row that names a path most closely decides. A path without a row is refused by its name.
"""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass
from xml.etree import ElementTree

CARRIED, SAME, ANEW, TOLD, REFUSED = "carried", "same", "made anew", "told", "refused"
FATES = (CARRIED, SAME, ANEW, TOLD, REFUSED)
ALWAYS, LIVE, OFFLINE = "always", "live", "offline"

# The prefix of a path in `ignore`.
ELEMENT = "element:"

# libvirt's own additions to the format, by namespace: they have paths of their own.
NAMESPACES = {
    "http://libvirt.org/schemas/domain/qemu/1.0": "qemu",
    "http://libvirt.org/schemas/domain/xen/1.0": "xen",
    "http://libvirt.org/schemas/domain/lxc/1.0": "lxc",
    "http://libvirt.org/schemas/domain/bhyve/1.0": "bhyve",
    "http://libvirt.org/schemas/domain/vmware/1.0": "vmware",
}


@dataclass(frozen=True)
class Row:
    """The fate of a part."""

    path: str
    fate: str
    how: str  # carried by what, proven how, why nothing of value is in it, the sentence, or the cure
    check: str = ""  # the check that looks at it, which is also the name to ignore it by
    when: str = ALWAYS  # the moves for which a refusal holds


@dataclass(frozen=True)
class Finding:
    """One thing in the way, or worth saying."""

    check: str
    sentence: str
    refuses: bool = True


class Inventory:
    """Rows, found by the path that they are about."""

    def __init__(self, rows: t.Iterable[Row]) -> None:
        self.rows = tuple(rows)
        self._compiled = [(_expression(row.path), _closeness(row.path), row) for row in self.rows]

    def row(self, path: str) -> Row | None:
        """The row that names it most closely."""
        found = [(closeness, row) for expression, closeness, row in self._compiled if expression.fullmatch(path)]
        return max(found, key=lambda pair: pair[0])[1] if found else None

    def findings(self, root: ElementTree.Element, mode: str) -> list[Finding]:
        """What the rows alone say of a definition: what is refused, what is told, and what has no row."""
        found: list[Finding] = []
        said: set[Row] = set()
        for path in sorted(paths(root)):
            row = self.row(path)
            if row in said:
                continue
            if row is None:
                sentence = f"it is not known what would become of <{path.replace('/', '> <')}>: take it out of the definition, or upgrade this collection"
                found.append(Finding(ELEMENT + path, sentence))
            elif row.fate in (REFUSED, TOLD) and row.when in (ALWAYS, LIVE if mode != OFFLINE else OFFLINE):
                said.add(row)
                found.append(Finding(row.check or ELEMENT + row.path, f"{path}: {row.how}", row.fate == REFUSED))
        return found


def paths(root: ElementTree.Element) -> set[str]:
    """Every path of a definition. The content of <metadata> is its owner's."""
    found = {f"@{name}" for name in root.attrib}

    def walk(element: ElementTree.Element, above: str) -> None:
        path = above + step(element.tag)
        found.add(path)
        if path == "metadata":
            return
        found.update(f"{path}/@{step(name)}" for name in element.attrib)
        for child in element:
            walk(child, path + "/")

    for child in root:
        walk(child, "")
    return found


def step(tag: str) -> str:
    """A name as rows write it: with the prefix of its namespace."""
    space, bracket, name = tag[1:].partition("}") if tag.startswith("{") else ("", "", tag)
    return f"{NAMESPACES.get(space, space)}:{name}" if bracket else name


def _expression(path: str) -> re.Pattern[str]:
    below = path.endswith("/**")
    steps = [r"[^/]+" if each == "*" else re.escape(each) for each in (path[:-3] if below else path).split("/")]
    return re.compile("/".join(steps) + ("(/.*)?" if below else ""))


def _closeness(path: str) -> tuple[int, int]:
    steps = path.split("/")
    return sum(each not in ("*", "**") for each in steps), len(steps) - 2 * path.endswith("/**")
