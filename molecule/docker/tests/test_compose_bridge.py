# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A project of docker compose on its own bridge moves live, there and back: its network, the addresses that Docker drew, and its connections.

In the order of this file: each test finds the project where the one before it left it.
"""

from __future__ import annotations

import json
import time
import typing as t

import fleet as hosts
import pytest
from project import Project
from turns import in_turn

# Of the parts of `docker inspect` that Docker compose and a client of the project's go by.
SHOWN = "{{.Id}} {{.State.StartedAt}} {{.State.Pid}}"
ADDRESS = "{{range .NetworkSettings.Networks}}{{.IPAddress}} {{.MacAddress}}{{end}}"


class Till(Project):
    engine, name, joint = "docker", "till", "-"

    def compose(self, words: str) -> str:
        return f"cd {self.folder} && docker compose {words}"

    def remove(self) -> None:
        for host in self.hosts:
            host.ask(f"docker rm --force {' '.join(self.all)} {self.name}-other; docker network rm {self.network} {self.name}-other")
        super().remove()

    def shown(self, host: hosts.Host, what: str) -> list[str]:
        return host.run(f"docker inspect {' '.join(self.all)} --format '{what}'").splitlines()

    def states(self, host: hosts.Host) -> dict[str, str]:
        listed = host.run(f"docker ps --all --filter label=com.docker.compose.project={self.name} --format '{{{{.Names}}}} {{{{.State}}}}'")
        return dict(line.split() for line in listed.splitlines())

    def has_network(self, host: hosts.Host) -> bool:
        return host.ask(f"docker network inspect {self.network}").returncode == 0

    def runs_only_on(self, home: hosts.Host) -> None:
        """All of it is there as compose has made it, and nothing but perhaps its network on the other host."""
        assert self.states(home) == dict.fromkeys(self.all, "running")
        (network,) = json.loads(home.run(f"docker network inspect {self.network}"))
        assert network["Labels"]["com.docker.compose.project"] == self.name
        assert {each["Name"] for each in network["Containers"].values()} == set(self.all)
        assert self.states(self.other(home)) == {}
        assert self.name not in self.other(home).run("docker volume ls --quiet")
        self.nothing_is_left_of_a_move()

    def up_changes_nothing(self, home: hosts.Host) -> None:
        before = self.shown(home, SHOWN)
        assert set(self.all) <= set(home.run(self.compose("ps")).split())
        said = home.ask(self.compose("up --detach"), 120)
        assert said.returncode == 0 and "ecreate" not in said.stderr, said.stderr
        assert self.shown(home, SHOWN) == before


@pytest.fixture(scope="module")
def till(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[Till]:
    made = Till(tmp_path_factory.mktemp("reports"))
    try:
        made.remove()  # what a run has left that was killed
        made.write()
        made.hosts[0].run(made.compose("up --detach"), 180)
        time.sleep(3)
        yield made
    finally:
        made.remove()


@in_turn(0, of=3)
def test_connections_over_its_bridge_keep_one_of_it_alone(till: Till) -> None:
    first, second = till.hosts
    asked = {"handover_workload": till.web, "handover_source": first.name, "handover_destination": second.name, "handover_driver": "docker"}
    status, text = till.play("migrate", **asked)
    sentence = f"{till.web} has 1 TCP connection open over the network {till.network}, which is a bridge of {first.name} alone, so they would break"
    assert status != 0 and sentence in text, text[-3000:]
    till.runs_only_on(first)


@in_turn(0, of=3)
def test_a_move_that_fails_leaves_no_network_on_the_destination(till: Till) -> None:
    first, second = till.hosts
    text = till.fails_there(second)
    assert f"{till.web} was not moved and runs on {first.name} as before" in text, text[-3000:]
    till.runs_only_on(first)
    till.goes_on(first)
    assert not till.has_network(second)


@in_turn(0, of=3)
def test_a_subnet_that_is_taken_there_is_refused(till: Till) -> None:
    first, second = till.hosts
    (network,) = json.loads(first.run(f"docker network inspect {till.network}"))
    subnet = network["IPAM"]["Config"][0]["Subnet"]
    second.run(f"docker network create --subnet {subnet} {till.name}-other")
    try:
        status, text = till.move(second)
    finally:
        second.run(f"docker network rm {till.name}-other")
    sentence = f"the network {till.network} cannot be made on {second.name}: its subnet {subnet} holds addresses of the interface br-"
    assert status != 0 and sentence in text, text[-3000:]
    till.runs_only_on(first)


@in_turn(1, of=3)
def test_it_moves_live_there_and_back(till: Till) -> None:
    first, second = till.hosts
    addresses = till.shown(first, ADDRESS)
    for there in (second, first):
        till.moves(there)
        assert till.shown(there, ADDRESS) == addresses
        till.up_changes_nothing(there)


@in_turn(2, of=3)
def test_it_is_a_project_as_before(till: Till) -> None:
    """On a host to which it has come: `stop` and `start` find all of it, `down` removes all."""
    _first, second = till.hosts
    till.moves(second)
    second.run(f"{till.compose('stop --timeout 0')} && {till.compose('start')}", 180)
    till.runs_only_on(second)
    second.run(till.compose("down --volumes --timeout 0"), 180)
    assert till.states(second) == {} and not till.has_network(second)
