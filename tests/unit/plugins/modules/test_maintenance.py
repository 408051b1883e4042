# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import functools
import types

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._core import maintenance as _maintenance
from ansible_collections.livefleet.handover.plugins.modules import maintenance


@pytest.fixture
def mark(tmp_path, monkeypatch):
    """Where the mark is; the module and its file agree on it."""
    path = str(tmp_path / "handover" / "maintenance.json")
    monkeypatch.setattr(_maintenance, "PATH", path)
    monkeypatch.setattr(_maintenance, "read", functools.partial(_maintenance.read, path))
    monkeypatch.setattr(_maintenance, "write", functools.partial(_maintenance.write, path=path))
    return tmp_path / "handover" / "maintenance.json"


def run(state, check=False):
    return maintenance.run(types.SimpleNamespace(params={"state": state, "reason": "new memory"}, check_mode=check))


def test_a_mark_is_set_once_and_lifted_once(mark):
    first = run("present")
    assert first["changed"] and first["mark"]["reason"] == "new memory" and mark.exists()
    assert run("present") == {"changed": False, "reasons": [], "mark": first["mark"]}
    assert run("absent") == {"changed": True, "reasons": ["the host is under maintenance: new memory"], "mark": None}
    assert not mark.exists()
    assert run("absent") == {"changed": False, "reasons": [], "mark": None}


def test_check_mode_says_it_and_does_nothing(mark):
    assert run("present", check=True)["mark"]["reason"] == "new memory"
    assert not mark.exists()
    run("present")
    assert run("absent", check=True)["changed"]
    assert mark.exists()


def test_a_mark_that_cannot_be_read_is_a_mark(mark):
    mark.parent.mkdir()
    mark.write_text("{")
    assert not run("present")["changed"]
    assert "cannot be read" in run("absent")["reasons"][0]
    assert not mark.exists()
