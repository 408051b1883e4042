# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Booted hosts that nothing was prepared on, and the collection's tarball. A fleet that a killed run has left is taken down first."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
import typing as t
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
import controller
import readme as page


@pytest.fixture(scope="session")
def fleet() -> t.Iterator[None]:
    try:
        controller.play("lab/destroy.yml")
        controller.play("lab/create.yml")
        controller.play("lab/images.yml", lab_images=["tools"])
        yield
    finally:
        controller.play("lab/destroy.yml")


@pytest.fixture(scope="session")
def tarball(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As for a release."""
    loader = importlib.machinery.SourceFileLoader("handover_artifact", str(controller.CHECKOUT / "tests" / "artifact"))
    artifact = importlib.util.module_from_spec(importlib.util.spec_from_loader("handover_artifact", loader))
    loader.exec_module(artifact)
    return artifact.build(tmp_path_factory.mktemp("release"))


@pytest.fixture(scope="session")
def readme(fleet: None, tarball: Path, tmp_path_factory: pytest.TempPathFactory) -> controller.Controller:
    """A newcomer who has done what the README says up to the first move."""
    made = controller.Controller(tmp_path_factory.mktemp("readme"), tarball, controller.STATE / "fleet" / "id_ed25519", page.NAMES)
    page.prepare(made)
    return made
