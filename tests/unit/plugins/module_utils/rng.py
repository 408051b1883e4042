# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Walks a RELAX NG schema: every element and attribute that a document may have, as a path.

An element that may stand inside itself (an image on an image) is walked once, and once more where it recurs.
"""

from __future__ import annotations

import typing as t
from pathlib import Path
from xml.etree import ElementTree

from ansible_collections.livefleet.handover.plugins.module_utils._guest_inventory import NAMESPACES

RNG = "{http://relaxng.org/ns/structure/1.0}"


class Grammar:
    """The definitions of a schema and of all that it includes."""

    def __init__(self, path: Path) -> None:
        self.definitions: dict[str, list[ElementTree.Element]] = {}
        self.start: list[ElementTree.Element] = []
        self._load(path)

    def _load(self, path: Path) -> None:
        root = ElementTree.parse(path).getroot()
        _inherit(root, "")
        for include in root.iter(f"{RNG}include"):
            self._load(path.parent / include.attrib["href"])
            for own in include.findall(f"{RNG}define"):
                self.definitions[own.attrib["name"]] = list(own)
        for start in root.findall(f"{RNG}start"):
            self.start = list(start)
        for each in root.findall(f"{RNG}define"):
            self.definitions.setdefault(each.attrib["name"], []).extend(each)

    def paths(self) -> dict[str, set[str]]:
        """Path below the document's element → the named types of its value."""
        found: dict[str, set[str]] = {}
        for pattern in self.start:
            self._walk(pattern, (), (), found)
        return found

    def _walk(self, pattern: ElementTree.Element, path: tuple[str, ...], names: tuple[str, ...], found: dict[str, set[str]]) -> None:
        kind = pattern.tag.replace(RNG, "")
        if kind == "ref":
            name = pattern.attrib["name"]
            if path:
                found.setdefault("/".join(path[1:]), set()).add(name)
            if names.count(name) < 2:
                for child in self.definitions[name]:
                    self._walk(child, path, (*names, name), found)
            return
        if kind in ("element", "attribute"):
            for step in self._names(pattern):
                inner = (*path, f"@{step}" if kind == "attribute" else step)
                if len(inner) > 1:
                    found.setdefault("/".join(inner[1:]), set())
                self._walk_children(pattern, inner, names, found)
            return
        if kind not in ("name", "anyName", "nsName", "except", "value", "data", "param", "text", "empty", "notAllowed"):
            self._walk_children(pattern, path, names, found)

    def _walk_children(self, pattern: ElementTree.Element, path: tuple[str, ...], names: tuple[str, ...], found: dict[str, set[str]]) -> None:
        for child in pattern:
            self._walk(child, path, names, found)

    def _names(self, pattern: ElementTree.Element) -> t.Iterator[str]:
        space = NAMESPACES.get(pattern.get("ns", ""), "") if pattern.tag == f"{RNG}element" else ""
        if "name" in pattern.attrib:
            yield f"{space}:{pattern.attrib['name']}" if space else pattern.attrib["name"]
            return
        first = pattern[0]
        for each in first.iter():
            if each.tag == f"{RNG}name":
                yield t.cast(str, each.text)
            elif each.tag in (f"{RNG}anyName", f"{RNG}nsName"):
                yield "any"
                return


def _inherit(pattern: ElementTree.Element, space: str) -> None:
    """A namespace holds for what stands below."""
    space = pattern.get("ns", space)
    pattern.set("ns", space)
    for child in pattern:
        _inherit(child, space)
