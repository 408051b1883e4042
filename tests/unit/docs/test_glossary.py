# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The glossary names what the tree names: every identifier in it exists, and every state of the journal is in it."""

from __future__ import annotations

import pathlib
import re

CHECKOUT = pathlib.Path(__file__).resolve().parents[3]
PAGE = (CHECKOUT / "docs" / "reference" / "glossary.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    found = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", PAGE, flags=re.M | re.S)
    assert found, f"the glossary has no section '{title}'"
    return found.group(1)


def rows(title: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in section(title).splitlines()[2:] if line.startswith("| ") and line[2:6] != "term"]


def words(folders: list[str], suffixes: tuple[str, ...]) -> str:
    files = [path for folder in folders for path in (CHECKOUT / folder).rglob("*") if path.suffix in suffixes]
    assert files
    return "\n".join(path.read_text(encoding="utf-8") for path in files)


GO = words(["helper"], (".go",))
ELSEWHERE = words(["plugins", "roles", "playbooks", "helper"], (".py", ".yml", ".go", ".j2"))


def test_every_identifier_is_in_the_tree() -> None:
    missing = []
    for term, _meaning, in_go, elsewhere in rows("Terms"):
        missing += [f"{term}: {name} in Go" for name in re.findall(r"`([^`]+)`", in_go) if not re.search(rf"\b{re.escape(name)}\b", GO)]
        missing += [f"{term}: {name}" for name in re.findall(r"`([^`]+)`", elsewhere) if not re.search(rf"\b{re.escape(name)}\b", ELSEWHERE)]
    assert not missing


def test_every_state_of_the_journal_is_in_the_glossary() -> None:
    journals = (CHECKOUT / "helper" / "internal").rglob("journal.go")
    states = {name for path in journals for name in re.findall(r'^\t\w+ +State = "(\w+)"', path.read_text(encoding="utf-8"), flags=re.M)}
    assert len(states) >= 16
    assert states == set(re.findall(r"^\| `(\w+)` \|", section("The states of a session"), flags=re.M))


def test_terms_are_in_alphabetical_order_and_named_once() -> None:
    terms = [row[0].lower() for row in rows("Terms")]
    assert len(terms) >= 45
    assert terms == sorted(set(terms))
