# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The row `docker` without hosts: how its project is written, and whose failure ends it."""

from __future__ import annotations

import sys
import types
import typing as t
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))
import freeze_docker

FLEET: t.Any = types.SimpleNamespace(address={"dock1": "10.222.0.11", "dock2": "10.222.0.12"})


def test_compose_reads_the_commands_as_they_are_meant() -> None:
    project = freeze_docker.Handover(FLEET, "bench-handover", 60).project()
    web = project["services"]["web"]
    assert "n=$$((n + 1))" in web["command"][2] and web["command"][2].replace("$$", "$") == freeze_docker.SHOP["web"]["command"][2]
    assert web["networks"] == {"lan": {"ipv4_address": "10.222.0.61", "mac_address": "02:00:0a:de:00:3d"}}
    assert project["services"]["worker"]["network_mode"] == "none"
    assert project["volumes"]["bench-handover-db"] == {"name": "bench-handover-db"}


def test_no_two_containers_have_one_address() -> None:
    found = [kind(FLEET, who, number).address(part) for who, (_engine, kind, number) in freeze_docker.CONTENDERS.items() for part in freeze_docker.NUMBERS]
    assert len(set(found)) == len(found)


class Fails(freeze_docker.Row):
    """Its movers begin and end nothing, and one of them moves nothing."""

    def __init__(self, bad: str) -> None:
        super().__init__("docker", list(freeze_docker.CONTENDERS), Path("/nowhere"), FLEET)
        self.bad, self.begun = bad, [""]
        for mover in self.movers.values():
            # Nothing is begun that would have to be ended.
            mover.clean = lambda: None  # type: ignore[method-assign]

    def begin(self, who: str) -> None:
        self.begun.append(who)

    def measure(self, who: str) -> dict[str, t.Any]:
        if who == self.bad:
            sys.exit("bench: it did not move")
        return {"seconds": 0.5, "other": 0.0, "stages": {}, "failed": 0, "lost": 0, "gone": 0}


def test_what_fails_by_hand_is_left_out_and_begun_again(capsys: pytest.CaptureFixture[str]) -> None:
    row = Fails("by-hand")
    row.run(2)
    assert {who: len(samples) for who, samples in row.found.items()} == {"handover": 2, "handover-podman": 2, "by-hand": 0}
    assert row.begun.count("by-hand") == 3
    assert "bench: it did not move" in capsys.readouterr().out


def test_a_move_of_handover_that_fails_ends_the_benchmark() -> None:
    with pytest.raises(SystemExit, match="it did not move"):
        Fails("handover").run(1)
