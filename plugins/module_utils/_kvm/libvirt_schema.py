# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""libvirt's own schema of a definition (RELAX NG), and whether a part stands in it: an older libvirt would refuse a newer one's definition, or leave
parts of it out."""

from __future__ import annotations

import os
import typing as t
from xml.etree import ElementTree

from .inventory import NAMESPACES

RNG = "{http://relaxng.org/ns/structure/1.0}"
SCHEMA = "/usr/share/libvirt/schemas/domain.rng"
# A name that the schema leaves open.
ANY = "any"
NAMED = ("element", "attribute")
LEAVES = ("name", "anyName", "nsName", "except", "value", "data", "param", "text", "empty", "notAllowed")

Pattern = ElementTree.Element


class Grammar:
    """The definitions of a schema and of all that it includes."""

    def __init__(self, path: str) -> None:
        self.definitions: dict[str, list[Pattern]] = {}
        self.start: list[Pattern] = []
        self._load(path)

    def _load(self, path: str) -> None:
        root = ElementTree.parse(path).getroot()
        _inherit(root, "")
        for include in root.iter(f"{RNG}include"):
            self._load(os.path.join(os.path.dirname(path), include.attrib["href"]))
            for own in include.findall(f"{RNG}define"):
                self.definitions[own.attrib["name"]] = list(own)
        for start in root.findall(f"{RNG}start"):
            self.start = list(start)
        for each in root.findall(f"{RNG}define"):
            self.definitions.setdefault(each.attrib["name"], []).extend(each)

    def below(self, patterns: t.Iterable[Pattern]) -> list[tuple[str, Pattern, set[str]]]:
        """The elements and attributes that may stand there: step of a path, pattern, and the named definitions that led there."""
        found: list[tuple[str, Pattern, set[str]]] = []
        waiting: list[t.Any] = [(pattern, frozenset()) for pattern in patterns]
        seen: set[str] = set()
        while waiting:
            pattern, names = waiting.pop()
            kind = pattern.tag.replace(RNG, "")
            if kind in NAMED:
                found += [(f"@{name}" if kind == "attribute" else name, pattern, set(names)) for name in _names(pattern)]
            elif kind == "ref":
                name = pattern.attrib["name"]
                if name not in seen:
                    seen.add(name)
                    waiting += [(child, names | {name}) for child in self.definitions[name]]
            elif kind not in LEAVES:
                waiting += [(child, names) for child in pattern]
        return found

    def knows(self, path: str) -> bool:
        """Whether a part below the document's element stands in the schema."""
        at = [pattern for _step, pattern, _names_ in self.below(self.start)]
        for step in path.split("/"):
            open_name = f"@{ANY}" if step.startswith("@") else ANY
            at = [pattern for name, pattern, _names_ in self.below(child for each in at for child in each) if name in (step, open_name)]
        return bool(at)


def unknown(parts: t.Iterable[str], path: str = SCHEMA) -> list[str] | None:
    """The parts that this host's libvirt does not know; None where it has no schema to look into."""
    if not os.path.exists(path):
        return None
    grammar = Grammar(path)
    return sorted(part for part in parts if not grammar.knows(part))


def _names(pattern: Pattern) -> t.Iterator[str]:
    space = NAMESPACES.get(pattern.get("ns", ""), "") if pattern.tag == f"{RNG}element" else ""
    if "name" in pattern.attrib:
        yield f"{space}:{pattern.attrib['name']}" if space else pattern.attrib["name"]
        return
    for each in pattern[0].iter():
        if each.tag == f"{RNG}name":
            yield (each.text or "").strip()
        elif each.tag in (f"{RNG}anyName", f"{RNG}nsName"):
            yield ANY
            return


def _inherit(pattern: Pattern, space: str) -> None:
    """A namespace holds for everything below."""
    space = pattern.get("ns", space)
    pattern.set("ns", space)
    for child in pattern:
        _inherit(child, space)
