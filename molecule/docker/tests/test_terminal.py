# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Containers of Docker's with a terminal, and with an open standard input, move live; what is typed over there reaches them."""

from __future__ import annotations

import os
import typing as t
from pathlib import Path

import fleet as hosts
import pytest
import yaml

SCENARIO = Path(__file__).resolve().parent.parent
IMAGE = yaml.safe_load((SCENARIO / "vars.yml").read_text(encoding="utf-8"))["scenario_image"]
TERMINAL, INPUT = "typed", "piped"
ASKED = {"handover_driver": "docker", "handover_ignore_checks": ["clock"]}
ANSWERS = "while read -r line; do echo got:$line; done"
# An attached client that has no more input would end it.
TYPED = "(sleep 1; echo {word}; sleep 3) | timeout 3 {client}"
CLIENTS = {
    TERMINAL: f"script --quiet --return --command 'docker attach --sig-proxy=false {TERMINAL}' /dev/null",
    INPUT: f"docker attach --sig-proxy=false {INPUT}",
}


@pytest.fixture
def fleet() -> t.Iterator[hosts.Fleet]:
    fleet = hosts.Fleet(Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "reports")
    remove(fleet)
    yield fleet
    remove(fleet)


def remove(fleet: hosts.Fleet) -> None:
    for host in fleet.hosts:
        host.ask(f"docker rm --force {TERMINAL} {INPUT}")


def moves(host: hosts.Host, workload: str, there: hosts.Host) -> tuple[int, str]:
    asked = {"handover_source": host.name, "handover_workload": workload, "handover_destination": there.name, **ASKED}
    play = hosts.Play("playbooks/migrate.yml", asked)
    return play.end(), " ".join(play.text.split())


def answers(host: hosts.Host, workload: str, word: str) -> None:
    host.ask(TYPED.format(word=word, client=CLIENTS[workload]))
    assert f"got:{word}" in host.run(f"docker logs {workload}")


def test_what_is_typed_reaches_it_on_either_host(fleet: hosts.Fleet) -> None:
    first, second = fleet.hosts[:2]
    first.run(f"docker run --detach --interactive --tty --name {TERMINAL} --network none {IMAGE} sh -c '{ANSWERS}'")
    first.run(f"docker run --detach --interactive --name {INPUT} --network none {IMAGE} sh -c '{ANSWERS}'")
    for workload in CLIENTS:
        status, said = moves(first, workload, second)
        assert status == 0, said[-4000:]
        answers(second, workload, "there")
    # A process that stands still does not read.
    process = second.run(f"docker inspect --format '{{{{.State.Pid}}}}' {INPUT}").strip()
    second.run(f"kill -STOP {process}")
    second.ask(TYPED.format(word="unread", client=CLIENTS[INPUT]))
    status, said = moves(second, INPUT, first)
    assert status != 0 and "has not read 7 B that were written to its descriptor 0 from outside" in said, said[-4000:]
    second.run(f"kill -CONT {process}")
    answers(second, INPUT, "read")
    for workload in CLIENTS:
        status, said = moves(second, workload, first)
        assert status == 0, said[-4000:]
        answers(first, workload, "back")
