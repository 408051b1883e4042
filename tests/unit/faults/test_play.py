# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A play that is killed when it has ended: numbers of processes come again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import types
import typing as t
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).resolve().parent.parent.parent / "faults")]
import fleet


def play_of(process: t.Any) -> fleet.Play:
    made = fleet.Play.__new__(fleet.Play)
    made.process = process
    return made


def ended(pid: int) -> types.SimpleNamespace:
    return types.SimpleNamespace(pid=pid, poll=lambda: 0, wait=lambda: 0)


def test_a_group_that_runs_is_killed() -> None:
    process = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    play_of(process).kill()
    assert process.returncode == -signal.SIGKILL


def test_what_an_ended_play_has_left_behind_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[int] = []
    monkeypatch.setattr(os, "killpg", lambda group, _signal: killed.append(group))
    process = subprocess.Popen(["true"], start_new_session=True)
    process.wait()
    play_of(ended(process.pid)).kill()
    assert killed == [process.pid]


def test_a_group_of_others_with_the_number_of_an_ended_play_lives_on() -> None:
    other = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    try:
        play_of(ended(other.pid)).kill()
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()
