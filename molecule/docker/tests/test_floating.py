# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A container of Docker's whose published port has an address of its own: the address moves along, and connections through Docker's NAT live on.

It has no fixed address on its bridge, and keeps the one that it has. In the order of this file: each test finds it where the one before it left it.
"""

from __future__ import annotations

import os
import subprocess
import time
import typing as t
from pathlib import Path

import fleet as hosts
import pytest
from floating import DOCKER, NAME, NETWORK, PORT, Floating
from turns import in_turn


class Operator:
    """Both hosts, and the playbooks on them."""

    def __init__(self, reports: Path) -> None:
        self.reports = reports
        self.hosts = {host.name: host for host in hosts.Fleet(reports).hosts}
        self.names = list(self.hosts)

    def ask(self, name: str, script: str) -> tuple[int, str]:
        done = self.hosts[name].ask(script)
        return done.returncode, done.stdout

    def _begin(self, playbook: str, *words: str, **variables: t.Any) -> hosts.Play:
        return hosts.Play(f"playbooks/{playbook}.yml", {"handover_report_dir": str(self.reports), **variables}, words=words)

    def start(self, playbook: str, **variables: t.Any) -> subprocess.Popen[str]:
        return self._begin(playbook, **variables).process

    def finish(self, process: subprocess.Popen[str]) -> None:
        process.wait(300)

    def play(self, playbook: str, *words: str, **variables: t.Any) -> tuple[int, str]:
        run = self._begin(playbook, *words, **variables)
        return run.end(), " ".join(run.text.split())


@pytest.fixture(scope="module")
def floating() -> t.Iterator[Floating]:
    made = Floating(Operator(Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "reports"), DOCKER)
    try:
        made.make()
        made.begin()
        yield made
    finally:
        made.remove()


def test_an_address_that_does_not_float_and_the_connections_to_it_are_refused(floating: Floating) -> None:
    here, there = floating.names
    status, text = floating.move(here, "--check", handover_floating_addresses=[])
    assert status != 0
    assert f"publishes port {PORT}/tcp on {floating.addresses[0]}, an address of {here} that {there} does not have" in text
    assert f"{NAME} has 1 TCP connection open over the network {NETWORK}" in text, text[-4000:]


def test_a_connection_lives_through_moves_there_and_back(floating: Floating) -> None:
    here = floating.home()
    for _number in range(2):
        here = floating.moved(here)
        assert floating.leads_alone(here)
        assert floating.within(here) == floating.inner
        floating.answers()
    floating.lived(100)


@in_turn(0)
def test_a_release_of_which_the_destination_has_not_heard_gives_the_address_back(floating: Floating) -> None:
    here = floating.home()
    floating.begin()
    floating.killed(here, "source", "released")
    floating.recover()
    assert floating.home() == here and floating.leads_alone(here)
    floating.lived(100)


@in_turn(1)
def test_the_address_comes_back_with_the_container_after_it_was_lost(floating: Floating) -> None:
    here = floating.moved(floating.home(), handover_mode="offline")
    floating.run(here, f"docker stop {NAME} && ip address delete {floating.prefixes[0]} dev host0")
    assert floating.has(here) == []
    floating.run(here, f"docker start {NAME}")
    assert floating.home() == here
    floating.begin()
    time.sleep(1)
    floating.lived(10)
