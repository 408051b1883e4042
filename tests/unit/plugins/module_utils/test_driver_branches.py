# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A driver is a row of a table: nothing branches on its name. Python is read as it is parsed, templates and playbooks by the line.

The helper knows no driver: the specification of a session names the commands, and a driver's name stands in it for people.
"""

from __future__ import annotations

import ast
import pathlib
import re
import typing as t

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._drivers.examiners import EXAMINERS

COLLECTION = pathlib.Path(__file__).resolve().parents[4]
NAMES = "|".join(sorted(EXAMINERS))
# A comparison of something with a driver's name, in Jinja, or as a test of a condition. `host['docker']` is none.
WORD = rf"""['"](?:{NAMES})['"]"""
BRANCH = re.compile(
    rf"""(?:==|!=|\bin\b|\bis\b|equalto'?,?|\beq'?,)\s*(?:not\s+)?[\[({{]*\s*(?:['"]\w+['"],\s*)*{WORD}|(?<!\[){WORD}\s*(?:==|!=|\bin\b|\bnot in\b)"""
)
TESTS = {"startswith", "endswith", "removeprefix", "removesuffix", "match", "fullmatch", "search"}


def files(folder: str, *patterns: str) -> list[pathlib.Path]:
    found = {path for pattern in patterns for path in (COLLECTION / folder).rglob(pattern) if path.is_file()}
    return sorted(path for path in found if "argument_specs" not in path.name and not path.name.endswith("_test.go"))


PYTHON, TEXTS, GO = files("plugins", "*.py"), [*files("playbooks", "*.yml"), *files("roles", "*.yml", "*.j2")], files("helper", "*.go")


def pairs(node: ast.AST) -> t.Iterator[tuple[ast.AST, ast.AST | None]]:
    """What is assigned, target by target: `A, B = "a", "b"` is two."""
    if isinstance(node, ast.AnnAssign):
        yield node.target, node.value
    elif isinstance(node, ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                yield from zip(target.elts, node.value.elts)
            else:
                yield target, node.value


def constants(trees: t.Iterable[ast.AST]) -> set[str]:
    """Names that stand for a driver's name somewhere, as DOCKER does."""
    assigned = [pair for tree in trees for node in ast.walk(tree) for pair in pairs(node)]
    return {target.id for target, value in assigned if isinstance(target, ast.Name) and isinstance(value, ast.Constant) and value.value in EXAMINERS}


def is_name(node: ast.AST, known: t.Container[str]) -> bool:
    """Whether it is a driver's name, or some of which one is."""
    if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
        return any(is_name(each, known) for each in node.elts)
    if isinstance(node, ast.Constant):
        return node.value in EXAMINERS
    return (node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else None) in known


def in_python(tree: ast.AST, known: t.Container[str]) -> list[str]:
    found = []
    for node in ast.walk(tree):
        asked: list[ast.AST] = []
        if isinstance(node, ast.Compare):
            asked = [node.left, *node.comparators]
        elif isinstance(node, ast.MatchValue):
            asked = [node.value]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in TESTS:
            asked = list(node.args)
        if any(is_name(each, known) for each in asked):
            found.append(ast.unparse(node))
    return found


def in_text(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if BRANCH.search(line)]


def in_go(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if re.search(rf'["`](?:{NAMES})["`]|\.Driver\b', line) and not line.strip().startswith("//")]


def named(found: dict[pathlib.Path, list[str]]) -> dict[str, list[str]]:
    return {str(path.relative_to(COLLECTION)): lines for path, lines in found.items() if lines}


def test_nothing_branches_on_a_drivers_name() -> None:
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in PYTHON}
    known = constants(trees.values())
    assert PYTHON and TEXTS and "DOCKER" in known
    assert named({path: in_python(tree, known) for path, tree in trees.items()}) == {}
    assert named({path: in_text(path.read_text(encoding="utf-8")) for path in TEXTS}) == {}


def test_the_helper_knows_no_driver() -> None:
    assert GO and named({path: in_go(path.read_text(encoding="utf-8")) for path in GO}) == {}


@pytest.mark.parametrize(
    "line",
    [
        "x = driver == 'docker'",
        "x = 'podman' != driver",
        "x = driver in ('kvm', 'docker')",
        "x = driver not in ['openvz']",
        "x = kind == DOCKER",
        "x = kind in (GUEST, placement.DOCKER)",
        "x = driver.startswith('docker')",
        "x = re.match('podman', driver)",
        "match driver:\n    case 'docker':\n        pass",
        "match driver:\n    case 'kvm' | 'docker':\n        pass",
    ],
)
def test_a_branch_in_python_is_seen(line: str) -> None:
    assert in_python(ast.parse(line), {"DOCKER"})


@pytest.mark.parametrize(
    "line", ["x = TABLE['docker']", "x = host['docker']['networks']", "x = name == host['docker']['path']", "x = find('docker')", "DOCKER = 'docker'"]
)
def test_a_row_is_none(line: str) -> None:
    assert not in_python(ast.parse(line), {"DOCKER"})


def test_a_constant_is_a_name_as_well() -> None:
    assert constants([ast.parse("A, B = 'docker', 'kvm'\nC: str = 'openvz'\nD = 'kvm'\nE = F = 'podman'")]) == {"A", "C", "E", "F"}


@pytest.mark.parametrize(
    "line",
    [
        "when: migrate_driver == 'docker'", "when: migrate_driver in ['docker']",
        "when: migrate_driver in ['kvm', 'docker']", "when: migrate_driver is 'docker'",
        "selectattr('driver', 'equalto', 'podman')", "selectattr('driver', 'eq', 'podman')",
        "{% if 'openvz' == driver %}", "when: migrate_driver not in ['openvz']",
        "when: \"'docker' in drivers\"", "- command: run it when driver == 'docker'",
    ],
)  # fmt: skip
def test_a_branch_in_a_text_is_seen(line: str) -> None:
    assert in_text(line) == [line]


@pytest.mark.parametrize("line", ["if spec.Driver == other {", 'case "docker":', 'if name == "podman" {', "switch s.Driver {"])
def test_a_branch_in_the_helper_is_seen(line: str) -> None:
    assert in_go(line) == [line]
