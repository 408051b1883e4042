# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The sentences that keep a guest where it is, from their own source, by the name of the check, for the page of troubleshooting.

Four forms lead from a sentence to its check: a row of the inventory that is refused or told; a Need, which names the test that words it; a Finding; and
a module whose sentences all belong to one check. Where a sentence has a value, the page has `…`.
"""

from __future__ import annotations

import ast
import typing as t
from pathlib import Path

KVM = Path(__file__).resolve().parents[2] / "plugins" / "module_utils" / "_kvm"
# Modules whose every sentence is of one check.
WHOLE = {"cpu": "cpu", "disk_rules": "disks", "disk_plan": "disks"}
# The modules whose functions say what is in the way.
FINDERS = ("findings", "state", "releases", "mover", "disk_rules")
_LEAST_WORDS = 6
Known = t.Mapping[str, str]
NO_NAMES: Known = {}


def by_check() -> dict[str, list[str]]:
    """The sentences of each check, in the order of the files."""
    found: dict[str, list[str]] = {}
    for name, text in (*rows(), *needs(), *findings(), *whole()):
        found.setdefault(name, []).append(text)
    return {name: list(dict.fromkeys(texts)) for name, texts in sorted(found.items())}


def rows() -> t.Iterator[tuple[str, str]]:
    """The parts of a definition that may not travel, each with its cure, and those of which the check tells."""
    places: dict[tuple[str, str], list[str]] = {}
    for module in ("rows", "rows_devices"):
        tree = parsed(module)
        known = constants(tree)
        for call in calls(tree, "Row"):
            path, fate, text, check = [*call.args[:4], *[ast.Constant("")] * (4 - len(call.args))]
            if getattr(fate, "id", "") in ("REFUSED", "TOLD") and worded(check, known):
                places.setdefault((worded(check, known), worded(text, known)), []).append(f"`{worded(path, known)}`")
    for (name, cure), paths in places.items():
        yield name, f"{', '.join(paths)}: {cure}"


def needs() -> t.Iterator[tuple[str, str]]:
    """A need has a check, and a test, whose sentences mostly begin with the thing that is needed; two tests say the thing alone."""
    tree, tests = parsed("needs"), parsed("check")
    said = {function.name: sentences(function, constants(tests)) for function in functions(tests)}
    said_by = {key.value: said[value.id] for key, value in table(tests, "TESTS") if isinstance(key, ast.Constant) and isinstance(value, ast.Name)}
    for function in functions(tree):
        for call in calls(function, "Need"):
            check, test, _value, thing = call.args[:4]
            for name in literals(test, NO_NAMES):
                for checked in literals(check, NO_NAMES) or checks_of_callers(tree, function.name):
                    for text in said_by[name] or ["…"]:
                        yield checked, worded(thing, NO_NAMES) + text[1:] if text.startswith("…") else text


def checks_of_callers(tree: ast.Module, name: str) -> list[str]:
    """The checks with which a function is called that has its check as an argument."""
    checks = {each for call in calls(tree, "Need") for each in literals(call.args[0], NO_NAMES)}
    return sorted({each for call in calls(tree, name) for argument in call.args for each in literals(argument, NO_NAMES) if each in checks})


def findings() -> t.Iterator[tuple[str, str]]:
    """Where a Finding is made, or a pair of a check and a sentence is yielded: the sentence, or all those of the function if it has a name there."""
    for module in FINDERS:
        tree = parsed(module)
        known = constants(tree)
        for function in functions(tree):
            for check, sentence in pairs(function):
                for name in literals(check, known) or kinds_of_state(check):
                    for text in [worded(sentence, known)] if is_text(sentence) else sentences(function, known):
                        yield name, text


def pairs(function: ast.FunctionDef) -> t.Iterator[tuple[ast.AST, ast.AST]]:
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Finding":
            yield node.args[0], node.args[1]
        elif isinstance(node, ast.Yield) and isinstance(node.value, ast.Tuple) and len(node.value.elts) == 2:
            yield node.value.elts[0], node.value.elts[1]


def kinds_of_state(name: ast.AST) -> list[str]:
    """The check of a file beside the disks is its kind, which the module state has as `what`."""
    return [key.value for key, _value in table(parsed("state"), "NAMES") if isinstance(key, ast.Constant)] if getattr(name, "id", "") == "what" else []


def whole() -> t.Iterator[tuple[str, str]]:
    for module, check in WHOLE.items():
        tree = parsed(module)
        for function in functions(tree):
            if not any(calls(function, "Finding")):
                yield from ((check, text) for text in sentences(function, constants(tree)))


# --- reading the source ---


def parsed(module: str) -> ast.Module:
    return ast.parse((KVM / f"{module}.py").read_text(encoding="utf-8"))


def functions(tree: ast.Module) -> list[ast.FunctionDef]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]


def calls(tree: ast.AST, name: str) -> t.Iterator[ast.Call]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call) and getattr(node.func, "id", "") == name)


def table(tree: ast.Module, name: str) -> list[tuple[ast.AST | None, ast.AST]]:
    """The rows of a module's dictionary."""
    for node in tree.body:
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target if isinstance(node, ast.AnnAssign) else None
        if isinstance(target, ast.Name) and target.id == name and isinstance(node.value, ast.Dict):
            return list(zip(node.value.keys, node.value.values))
    raise LookupError(f"there is no table {name}")


def constants(tree: ast.Module) -> dict[str, str]:
    """The texts that a module has a name for."""
    found = {}
    for node in tree.body:
        if isinstance(node, ast.Assign):
            names, values = node.targets[0], node.value
            several = isinstance(names, ast.Tuple) and isinstance(values, ast.Tuple)
            for name, value in zip(names.elts, values.elts) if several else [(names, values)]:
                if isinstance(name, ast.Name) and isinstance(value, ast.Constant) and isinstance(value.value, str):
                    found[name.id] = value.value
    return found


def literals(node: ast.AST, known: Known) -> list[str]:
    """The texts that an argument may be."""
    if isinstance(node, ast.IfExp):
        return [*literals(node.body, known), *literals(node.orelse, known)]
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return [node.value]
    return [known[node.id]] if isinstance(node, ast.Name) and node.id in known else []


def worded(node: ast.AST, known: Known) -> str:
    """A text as the page has it."""
    if isinstance(node, ast.JoinedStr):
        return "".join(worded(part, known) for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return worded(node.left, known) + worded(node.right, known)
    found = literals(node.value if isinstance(node, ast.FormattedValue) else node, known)
    return found[0] if len(found) == 1 else "…"


def is_text(node: ast.AST) -> bool:
    return isinstance(node, (ast.JoinedStr, ast.BinOp)) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def sentences(function: ast.FunctionDef, known: Known) -> list[str]:
    """The whole texts of a function that are sentences, in their order."""
    texts = [node for node in ast.walk(function) if is_text(node)]
    inside = {id(part) for text in texts for part in ast.walk(text) if part is not text}
    documented = ast.get_docstring(function, clean=False)
    found = [worded(text, known) for text in texts if id(text) not in inside and (documented is None or getattr(text, "value", None) != documented)]
    return list(dict.fromkeys(text for text in found if len(text.split()) >= _LEAST_WORDS))
