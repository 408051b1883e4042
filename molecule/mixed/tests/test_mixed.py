# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Containers of Debian 12 move to Debian 13, with their disks; and where the versions do not allow it, the check says so first.

In the order of this file: each test finds the containers where the one before it left them.
"""

from __future__ import annotations

import json
import os
import sys
import typing as t
from pathlib import Path

import pytest
import yaml

SCENARIO = Path(__file__).resolve().parent.parent
CHECKOUT = SCENARIO.parent.parent
# Another fleet of such hosts may be named.
os.environ.setdefault("FAULTS_INVENTORY", str(CHECKOUT / "lab" / "mixed" / "inventory.yml"))
os.environ.setdefault("FAULTS_PARAMETERS", str(CHECKOUT / "lab" / "mixed" / "parameters.yml"))
sys.path.insert(0, str(CHECKOUT / "tests" / "faults"))

import fleet as hosts

VARIABLES = yaml.safe_load((SCENARIO / "vars.yml").read_text(encoding="utf-8"))
STOPPED = VARIABLES["scenario_stopped"]["name"]
LEFT = "ls -A /var/lib/handover/sessions /run/handover/shares 2>/dev/null | grep -v : | xargs"


class Mixed:
    """The host of the older release, and that of the newer one."""

    def __init__(self, reports: Path) -> None:
        fleet = hosts.Fleet(reports)
        self.older, self.newer = sorted(fleet.hosts, key=lambda host: host.name)
        self.reports = reports

    def move(self, workload: str, there: hosts.Host, *words: str, **variables: t.Any) -> tuple[int, str]:
        asked = {"handover_workload": workload, "handover_destination": there.name, "handover_report_dir": str(self.reports), **variables}
        run = hosts.Play("playbooks/migrate.yml", asked, words=words)
        return run.end(), " ".join(run.text.split())

    def states(self) -> dict[str, dict[str, str]]:
        """Host → its containers, and podman's word for how they are."""
        return {
            host.name: {each["Names"][0]: each["State"] for each in json.loads(host.run("podman ps --all --format json"))}
            for host in (self.older, self.newer)
        }

    def nothing_is_left(self) -> None:
        assert [host.ask(LEFT).stdout.strip() for host in (self.older, self.newer)] == ["", ""]


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Mixed:
    return Mixed(tmp_path_factory.mktemp("reports"))


def beats(host: hosts.Host, workload: str) -> dict[str, t.Any]:
    return json.loads(host.run(f"podman exec {workload} heartbeat -gaps /data/heartbeat"))


@pytest.mark.parametrize(("workload", "to_newer"), (("oldshop", True), ("newshop", False)))
def test_no_live_move_between_two_releases(mixed: Mixed, workload: str, to_newer: bool) -> None:
    there = mixed.newer if to_newer else mixed.older
    before = mixed.states()
    for words in (("--check",), ()):
        status, text = mixed.move(workload, there, *words, migrate_mode="live")
        assert status != 0, text[-4000:]
        assert "criu" in text.lower()
    assert mixed.states() == before
    mixed.nothing_is_left()


def test_back_to_the_older_release_if_one_says_so(mixed: Mixed) -> None:
    before = mixed.states()
    status, text = mixed.move("newshop", mixed.older, migrate_mode="offline")
    assert status != 0
    assert "install the same version there, or try it with handover_ignore_checks=podman_version" in text
    assert mixed.states() == before
    status, text = mixed.move("newshop", mixed.older, migrate_mode="offline", handover_ignore_checks="podman_version")
    assert status == 0, text[-4000:]
    assert mixed.states()[mixed.older.name]["newshop"] == "running"
    assert "newshop" not in mixed.states()[mixed.newer.name]
    now = beats(mixed.older, "newshop")
    assert (now["missed"], now["broken"]) == (0, 0)
    mixed.nothing_is_left()


@pytest.mark.parametrize("workload", ("oldshop", "oldblog"))
def test_a_container_moves_to_the_newer_release(mixed: Mixed, workload: str) -> None:
    counted = beats(mixed.older, workload)["beats"]
    status, text = mixed.move(workload, mixed.newer, migrate_mode="offline")
    assert status == 0, text[-4000:]
    states = mixed.states()
    assert workload not in states[mixed.older.name]
    assert states[mixed.newer.name][workload] == "running"
    now = beats(mixed.newer, workload)
    assert now["beats"] >= counted
    assert (now["missed"], now["broken"]) == (0, 0)
    mixed.nothing_is_left()


def test_a_stopped_container_moves_to_the_newer_release(mixed: Mixed) -> None:
    status, text = mixed.move(STOPPED, mixed.newer, migrate_mode="offline")
    assert status == 0, text[-4000:]
    states = mixed.states()
    assert STOPPED not in states[mixed.older.name]
    assert states[mixed.newer.name][STOPPED] in ("created", "exited")
    assert mixed.newer.run(f"cat $(podman volume inspect {VARIABLES['scenario_stopped']['volume']} --format '{{{{.Mountpoint}}}}')/note") == "it ran\n"
    mixed.nothing_is_left()
