# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which lines of ansible-core are tried; and a line that could not be tried passes nothing."""

from __future__ import annotations

import importlib.machinery
import importlib.util
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "cores"
LISTED = """\
ansible-core (2.21.5)
Available versions: 2.21.5, 2.21.0, 2.20.9, 2.19.14, 2.19.0, 2.18.16, 2.17.14, 2.9.1
  INSTALLED: 2.19.14
  LATEST:    2.21.5
"""


@pytest.fixture
def cores():
    loader = importlib.machinery.SourceFileLoader("handover_cores", str(SCRIPT))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("handover_cores", loader))
    loader.exec_module(module)
    return module


def test_every_line_from_the_floor_on_is_tried(cores):
    assert cores.lines_of(LISTED, (2, 18)) == ["2.18", "2.19", "2.20", "2.21"]
    assert cores.floor() >= (2, 18)


@pytest.mark.parametrize("by_line, status", [
    ({"2.18": 0, "2.19": 0, "2.20": 0, "2.21": 0}, 0),
    ({"2.18": 0, "2.19": 1, "2.20": None, "2.21": 0}, 1),
    ({"2.18": 0, "2.19": 0, "2.20": None, "2.21": 0}, 2),
])  # fmt: skip
def test_a_line_that_could_not_be_tried_is_no_pass(cores, monkeypatch, capsys, by_line, status):
    def sanity(line):
        if by_line[line] is None:
            raise cores.NotTried("no Python for it")
        return by_line[line]

    monkeypatch.setattr(cores, "listed", lambda: LISTED)
    monkeypatch.setattr(cores, "sanity", sanity)
    assert cores.main(["sanity"]) == status
    said = capsys.readouterr()
    assert ("no Python for it" in said.err) == (None in by_line.values())
    assert "ansible-core 2.18: passed" in said.out


def test_a_line_that_is_not_there_is_named(cores, monkeypatch):
    monkeypatch.setattr(cores, "listed", lambda: LISTED)
    with pytest.raises(SystemExit, match="there is no line 2.17: the lines are 2.18, 2.19, 2.20, 2.21"):
        cores.main(["sanity", "2.17"])


@pytest.mark.parametrize("line, tried, used", [
    ("oldest", ["2.18"], "2.18"),
    ("newest", ["2.21", "2.20"], "2.20"),
    ("2.19", ["2.19"], "2.19"),
])  # fmt: skip
def test_a_command_meets_the_core_that_was_asked_for(cores, monkeypatch, tmp_path, capfd, line, tried, used):
    made = []

    def environment(name):
        made.append(name)
        if name == "2.21":
            raise cores.NotTried("ansible-core 2.21 does not install")
        return tmp_path / name / "bin" / "python"

    monkeypatch.setattr(cores, "listed", lambda: LISTED)
    monkeypatch.setattr(cores, "environment", environment)
    monkeypatch.setattr(cores, "release_of", lambda python: f"of {python}")
    assert cores.main(["with", line, "sh", "-c", 'echo "${PATH%%:*} $ANSIBLE_BIN"; exit 3']) == 3
    place = tmp_path / used / "bin"
    assert made == tried
    assert f"{place} {place}" in capfd.readouterr().out


def test_a_core_that_does_not_install_runs_no_command(cores, monkeypatch, capsys, tmp_path):
    def environment(name):
        raise cores.NotTried(f"{name} does not install")

    monkeypatch.setattr(cores, "listed", lambda: LISTED)
    monkeypatch.setattr(cores, "environment", environment)
    assert cores.main(["with", "oldest", "touch", str(tmp_path / "ran")]) == cores.UNKNOWN
    assert "2.18 does not install" in capsys.readouterr().err
    assert not (tmp_path / "ran").exists()
