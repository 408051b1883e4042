# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))
import free_memory


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """One whose balloon reports free memory; the answer is its order, and what was brought when that was written."""
    features = tmp_path / "virtio0" / "features"
    features.parent.mkdir()
    features.write_text("011001010000\n")
    order = tmp_path / "order"
    order.write_text("9\n")
    brought = []
    monkeypatch.setattr(free_memory, "BALLOONS", tmp_path)
    monkeypatch.setattr(free_memory, "ORDER", order)
    monkeypatch.setattr(free_memory, "bring", lambda: brought.append(order.read_text()))
    return features, order, brought


def test_nothing_is_reported_meanwhile_and_it_is_as_before_then(machine):
    _features, order, brought = machine
    with free_memory.kept():
        assert order.read_text() == "11\n"
    assert (order.read_text(), brought) == ("9\n", ["11\n"])


def test_also_after_a_failure(machine):
    _features, order, _brought = machine
    with pytest.raises(KeyboardInterrupt), free_memory.kept():
        raise KeyboardInterrupt
    assert order.read_text() == "9\n"


@pytest.mark.parametrize("features", ["011000010000\n", None])
def test_a_machine_that_reports_nothing_is_left_alone(machine, features):
    file, order, brought = machine
    if features is None:
        file.unlink()
    else:
        file.write_text(features)
    with free_memory.kept():
        assert order.read_text() == "9\n"
    assert not brought


class Refusing:
    """The kernel's file, when it does not take a number."""

    def read_text(self):
        return "9\n"

    def write_text(self, _text):
        raise OSError(22, "Invalid argument")

    def __str__(self):
        return "the order"


def test_a_kernel_that_does_not_take_it_is_no_failure(machine, monkeypatch, capsys):
    _features, _order, brought = machine
    monkeypatch.setattr(free_memory, "ORDER", Refusing())
    with free_memory.kept():
        pass
    assert not brought
    assert "the order takes no 11: [Errno 22]" in capsys.readouterr().err
