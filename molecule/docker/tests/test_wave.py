# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A project of compose under load moves as a wave: a database under pgbench, a web server whose connections are kept, and a worker with a ledger."""

from __future__ import annotations

import os
import sys
import time
import typing as t
from pathlib import Path

import pytest
import yaml

CHECKOUT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(CHECKOUT / "tests" / "bench"))

import freeze_docker
import hosts
from fleet import INVENTORY, PARAMETERS

PROJECT = "trade"
ROOT = Path(os.environ.get("LAB_CACHE", "/var/cache/handover-lab")) / "images" / "postgres" / "root"
SETTLE_SECONDS = 3


class Trade(freeze_docker.Handover):
    """The project, and where it is."""

    def start(self, host: str) -> None:
        self.begin(host, "")
        self.fleet.run(host, "docker", "start", *self.containers.values())

    def states(self) -> dict[str, set[str]]:
        """Host → how its containers of the project are there."""
        words = ("docker", "ps", "--all", "--filter", f"label=com.docker.compose.project={self.name}", "--format", "{{.Names}} {{.State}}")
        return {host: set(self.fleet.run(host, *words).splitlines()) for host in self.fleet.address}

    def ids(self, host: str) -> set[str]:
        return set(self.fleet.run(host, "docker", "inspect", "--format", "{{.Id}}", *self.containers.values()).split())


@pytest.fixture
def trade() -> t.Iterator[Trade]:
    named = yaml.safe_load(INVENTORY.read_text(encoding="utf-8"))["lab_hosts"]["children"]["lab"]["hosts"]
    trade = Trade(hosts.Fleet(tuple(sorted(named)[:2]), INVENTORY, Path(PARAMETERS)), PROJECT, 50)
    trade.clean()
    yield trade
    trade.clean()


def moves_as_a_wave(trade: Trade, there: str) -> None:
    """None is frozen before all can be, and none let go before all are held."""
    reports = trade.hand_over(there).values()
    states = [{event["state"]: event["time"] for event in report["source_events"] if event.get("event") == "state"} for report in reports]
    assert max(state["barrier"] for state in states) <= min(state["frozen"] for state in states)
    assert max(state["prepared"] for state in states) <= min(state["released"] for state in states)


def test_a_project_under_load_moves_as_one(trade: Trade) -> None:
    first, second = trade.fleet.address
    trade.start(first)
    load = freeze_docker.Load(trade.fleet, trade, first, ROOT)
    began = time.time()
    try:
        time.sleep(SETTLE_SECONDS)
        for here, there in ((first, second), (second, first)):
            moves_as_a_wave(trade, there)
            assert trade.states() == {here: set(), there: {f"{name} running" for name in trade.containers.values()}}
            assert all(reader.goes_on() for reader in load.readers), [reader.failed for reader in load.readers]
            time.sleep(SETTLE_SECONDS)
    finally:
        said = load.stop(began)
    assert (said["failed"], said["lost"], trade.gone(first)) == (0, 0, 0)
    before = trade.ids(first)
    trade.fleet.run(first, "docker", "compose", "--file", f"{freeze_docker.FOLDER}/compose.yml", "up", "--detach")
    assert trade.ids(first) == before
