# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The sentences of the preflight, from its own source: each check with its texts, for the page of troubleshooting. A name in a text stands as `…`."""

from __future__ import annotations

import ast
import re
import typing as t
from pathlib import Path

import guest_sentences

_MODULE_UTILS = Path(__file__).resolve().parents[2] / "plugins" / "module_utils"
PREFLIGHT = (_MODULE_UTILS / "_podman" / "preflight", _MODULE_UTILS / "_docker", _MODULE_UTILS / "_openvz" / "driver")
# The checks that rest on no engine; the tables name them as `move_checks.NAME`. Those of bind mounts have a table of their own, too.
SHARED = tuple(_MODULE_UTILS / "_core" / name for name in ("move_checks.py", "bind_checks.py", "floating.py", "network_checks.py", "published.py"))
HEAD = """\
# Troubleshooting by the error's text

Search this page for a part of the sentence. `…` stands for a name or a number. Behind the colon is the way out. Each check can be left out by its name, with
`handover_ignore_checks`, unless it is one of the [basics](preflight.md).

A move that was cut off, or a session in doubt: read [the runbook](runbook.md) first. Guests have [checks of their own](#guests-of-kvm).
"""
GUESTS = """\
## Guests of KVM

Each check can be left out by its name, with `kvm_migrate_ignore`, unless memory or a disk would be lost. [The inventory](kvm-inventory.md) has the fate of
every part of a guest; a part that is in none of its rows is refused by its path.
"""
_LEAST_WORDS = 6


def checks(tree: ast.Module) -> t.Iterator[tuple[str, str]]:
    """The name of each check, and of its function: the rows of the tables BASICS, FIRM and CHECKS."""
    for table in ast.walk(tree):
        if isinstance(table, ast.AnnAssign) and getattr(table.target, "id", "") in ("BASICS", "FIRM", "CHECKS") and isinstance(table.value, ast.Dict):
            for name, function in zip(table.value.keys, table.value.values):
                if isinstance(name, ast.Constant) and isinstance(function, (ast.Name, ast.Attribute)):
                    yield name.value, function.id if isinstance(function, ast.Name) else function.attr


def sentences(node: ast.AST) -> list[str]:
    """The texts of a function that are sentences, in their order."""
    found = [each.value for each in ast.walk(node) if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    documented = ast.get_docstring(node, clean=False) if isinstance(node, ast.FunctionDef) else None
    plain = [without_names(text) for text in found if text != documented]
    # A part of one, as "the file by its own path", has neither a name in it nor a way out.
    return list(dict.fromkeys(text for text in plain if len(text.split()) >= _LEAST_WORDS and ("…" in text or ": " in text)))


def by_check() -> dict[str, list[str]]:
    """Every check that has a sentence of its own, in the order of the files."""
    found: dict[str, list[str]] = {}
    shared = {name: function for path in SHARED for name, function in functions_of(parsed(path)).items()}
    for path in (*SHARED, *(path for folder in PREFLIGHT for path in sorted(folder.glob("*.py")))):
        tree = parsed(path)
        functions = {**shared, **functions_of(tree)}
        for name, function in checks(tree):
            found.setdefault(name, []).extend(reached(function, functions, set()))
        found.update(obstacles(tree))
    return {name: list(dict.fromkeys(texts)) for name, texts in found.items() if texts}


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def functions_of(tree: ast.Module) -> dict[str, ast.FunctionDef]:
    return {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def obstacles(tree: ast.Module) -> t.Iterator[tuple[str, list[str]]]:
    """The rows of the table OBSTACLES: a state of a process that CRIU cannot dump, and the cure."""
    for table in ast.walk(tree):
        if isinstance(table, ast.AnnAssign) and getattr(table.target, "id", "") == "OBSTACLES" and isinstance(table.value, ast.Dict):
            for name, row in zip(table.value.keys, table.value.values):
                if isinstance(name, ast.Constant) and isinstance(row, ast.Call):
                    state, cure = (ast.literal_eval(argument) for argument in row.args[:2])
                    yield (
                        name.value,
                        [f"… cannot be dumped on …: … (pid …) {without_names(state)}: {without_names(cure)}, or move it with migrate_mode=offline"],
                    )


def without_names(text: str) -> str:
    return re.sub(r"\{[^}]*\}", "…", text).strip()


def reached(name: str, functions: t.Mapping[str, ast.FunctionDef], seen: set[str]) -> list[str]:
    """The sentences of a function, and of those that it calls, of its file or of the shared checks."""
    if name not in functions or name in seen:
        return []
    seen.add(name)
    called = [called_by(each) for each in ast.walk(functions[name]) if isinstance(each, ast.Call)]
    return [*sentences(functions[name]), *(text for each in called for text in reached(each, functions, seen))]


def called_by(call: ast.Call) -> str:
    """The name of the function that a call means, if it can be one of these."""
    function = call.func
    if isinstance(function, ast.Attribute):
        return function.attr if getattr(function.value, "id", "") in [path.stem for path in SHARED] else ""
    return function.id if isinstance(function, ast.Name) else ""


def page() -> str:
    parts = [HEAD]
    for name, texts in sorted(by_check().items()):
        parts += [f"(check-{name.replace('_', '-')})=\n", f"## {name}\n", "".join(f"- {markdown(text)}\n" for text in texts)]
    parts.append(GUESTS)
    for name, texts in guest_sentences.by_check().items():
        parts += [f"(guest-{name.replace('_', '-')})=\n", f"### {name}\n", "".join(f"- {markdown(text)}\n" for text in texts)]
    return "\n".join(parts)


def markdown(text: str) -> str:
    """A text as it is, in Markdown; a piece between backticks stays one."""
    return re.sub(r"(?<!`)([<>*_\[\]])(?![^`]*`)", r"\\\1", text)
