# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Walks libvirt's schema: every element and attribute that a definition may have, as a path.

An element that may stand inside itself (an image on an image) is walked once, and once more where it recurs.
"""

from __future__ import annotations

from collections import Counter

from ansible_collections.livefleet.handover.plugins.module_utils._kvm.libvirt_schema import Grammar, Pattern


def paths(file: str) -> dict[str, set[str]]:
    """Path below the document's element → the named types of its value."""
    grammar = Grammar(file)
    found: dict[str, set[str]] = {}

    def walk(pattern: Pattern, path: tuple[str, ...], names: Counter[str]) -> None:
        found.setdefault("/".join(path), set()).update(_types(grammar, list(pattern)))
        for step, below, through in grammar.below(pattern):
            if all(names[name] < 2 for name in through):
                walk(below, (*path, step), names + Counter(through))

    for _step, root, through in grammar.below(grammar.start):
        walk(root, (), Counter(through))
    return found


def _types(grammar: Grammar, patterns: list[Pattern]) -> set[str]:
    """The definitions that the value itself is of."""
    named, waiting = set(), list(patterns)
    while waiting:
        pattern = waiting.pop()
        name = pattern.get("name", "") if pattern.tag.endswith("}ref") else ""
        if name and name not in named:
            named.add(name)
            waiting += grammar.definitions[name]
        elif not name and not pattern.tag.endswith(("}element", "}attribute")):
            waiting += list(pattern)
    return named
