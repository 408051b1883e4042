# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Chaos sees each thing that a killed move leaves among the records of what runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "chaos"))
from marks import MARKS

# The lines about that folder, and those that they need.
LINES = [line for line in MARKS.splitlines() if line.startswith(("line()", "made=", 'echo "run: '))]


def told(run: Path) -> str:
    script = "\n".join(LINES).replace("/run/handover", str(run / "handover"))
    return subprocess.run(["sh", "-c", script], check=True, stdout=subprocess.PIPE, text=True, timeout=60).stdout.strip()


@pytest.mark.parametrize("left", ["gates/4711", "started/shop", "4711.json", "shares/shop.sock", "waves/one"])
def test_each_thing_that_is_left_is_told(tmp_path: Path, left: str) -> None:
    for path in ("locks", "gates", "started"):
        (tmp_path / "handover" / path).mkdir(parents=True)
    for path in ("locks/shop", "probe.json", "help.json"):
        (tmp_path / "handover" / path).touch()
    assert told(tmp_path) == "run:", "folders, locks, the kernel's probe and podman's help texts may stay"
    place = tmp_path / "handover" / left
    place.parent.mkdir(exist_ok=True)
    place.touch()
    assert left in told(tmp_path).split()
