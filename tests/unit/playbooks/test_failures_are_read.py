# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A task of a move that is not to fail leaves its failure to another one, which reads its result."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[3]
TEXTS = [path.read_text(encoding="utf-8") for folder in ("roles", "playbooks") for path in sorted((CHECKOUT / folder).rglob("*.yml"))]
TASK = re.compile(r"^(?=\s*- name: )", re.M)


@pytest.mark.parametrize("role", ["migrate", "recover", "kvm_migrate"])
def test_a_failure_that_is_caught_is_read(role: str) -> None:
    tasks = [task for path in sorted((CHECKOUT / "roles" / role / "tasks").glob("*.yml")) for task in TASK.split(path.read_text(encoding="utf-8"))]
    caught = {
        name for task in tasks if re.search(r"^\s*failed_when: false$", task, re.M) for name in re.findall(r"^\s*register: (\w+)$", task, re.M)
    }
    assert caught
    read = {name for text in TEXTS for name in caught if re.search(rf"\b{name}\b", re.sub(r"register: \w+", "", text))}
    assert caught - read == set()
