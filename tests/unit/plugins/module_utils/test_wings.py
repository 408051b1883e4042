# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""module_utils is a hall and five wings: a wing imports the hall and itself, the hall imports itself, preflight and steps stand on top of podman's wing,
and copies and systems on these, and the driver on top of OpenVZ's. The tables of the drivers stand on the wings of the engines."""

from __future__ import annotations

import ast
import pathlib
import typing as t

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[4] / "plugins" / "module_utils"
# Of the collection, each package may import these.
MAY = {
    "_core": {"_core"},
    "_podman": {"_core", "_podman"},
    "_podman.preflight": {"_core", "_podman", "_podman.preflight"},
    "_podman.steps": {"_core", "_podman", "_podman.steps"},
    "_podman.copies": {"_core", "_podman", "_podman.preflight", "_podman.steps", "_podman.copies"},
    "_podman.systems": {"_core", "_podman", "_podman.preflight", "_podman.systems"},
    "_kvm": {"_core", "_kvm"},
    "_kvm.copies": {"_core", "_kvm", "_kvm.copies"},
    "_ceph": {"_core", "_ceph"},
    "_openvz": {"_core", "_openvz"},
    "_openvz.driver": {"_core", "_openvz", "_openvz.driver"},
    "_docker": {"_core", "_docker"},
    "_drivers.copies": {"_core", "_docker", "_drivers", "_drivers.copies", "_kvm", "_kvm.copies", "_podman", "_podman.copies"},
    "_drivers": {"_core", "_docker", "_kvm", "_openvz.driver", "_podman", "_podman.preflight", "_podman.steps", "_drivers"},
}
OURS = "ansible_collections.livefleet.handover.plugins.module_utils"
FILES = sorted(path.relative_to(ROOT) for path in ROOT.rglob("*.py"))


def package_of(path: pathlib.PurePath) -> str:
    return ".".join(path.parent.parts)


def imported(source: str, package: str) -> t.Iterator[str]:
    """The packages of module_utils that a file imports from; `package` is its own. Other imports are none of this test's."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = f"{OURS}.{package}".split(".")
                base = ".".join([*parents[: len(parents) - node.level + 1], *filter(None, [node.module])])
            targets = [f"{base}.{alias.name}" for alias in node.names]
        else:
            continue
        for target in targets:
            if target.startswith(f"{OURS}."):
                words = target[len(OURS) + 1 :].split(".")
                while words and not (ROOT.joinpath(*words) / "__init__.py").is_file():
                    words.pop()
                yield ".".join(words)
            elif target.startswith("ansible_collections."):
                yield target


@pytest.mark.parametrize("path", FILES, ids=str)
def test_a_file_imports_what_its_package_may(path):
    package = package_of(path)
    assert package in MAY, f"{path} is in no wing: move it into one of {', '.join(MAY)}"
    beyond = set(imported((ROOT / path).read_text(encoding="utf-8"), package)) - MAY[package]
    assert not beyond, f"{path} imports from {', '.join(sorted(beyond))}: it may import {', '.join(sorted(MAY[package]))}"


def test_each_package_is_there_and_says_so():
    assert {package_of(path) for path in FILES} == set(MAY)
    assert all((ROOT.joinpath(*package.split(".")) / "__init__.py").is_file() for package in MAY)


@pytest.mark.parametrize(
    "source, package, found",
    [
        ("from .._ceph.osd import Osd", "_kvm", ["_ceph"]),
        ("from .. import _ceph", "_kvm", ["_ceph"]),
        ("from .preflight import plan", "_podman", ["_podman.preflight"]),
        ("from ... import _kvm", "_podman.preflight", ["_kvm"]),
        (f"import {OURS}._ceph.osd", "_core", ["_ceph"]),
        (f"from {OURS} import _kvm", "_core", ["_kvm"]),
        ("from ..flat import thing", "_core", [""]),
        ("from ansible_collections.community.general.plugins.module_utils import x", "_core", ["ansible_collections.community.general.plugins.module_utils.x"]),
        ("from .sizes import size\nimport os", "_core", ["_core"]),
    ],
)
def test_every_form_of_an_import_is_seen(source, package, found):
    assert list(imported(source, package)) == found
