# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The ports that a container publishes, from its inspect; and the connections through a floating address, which do not break."""

from __future__ import annotations

import dataclasses

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._core.move import Move
from ansible_collections.livefleet.handover.plugins.module_utils._docker import facts, live, ports

FLOATS = "192.0.2.50"
BRIDGE, SEGMENT = {"shared": False}, {"shared": True}


def inspect(bindings, **host):
    return {"Config": {"ExposedPorts": {"80/tcp": {}, "81/tcp": {}}}, "HostConfig": {"PortBindings": bindings, **host}}


def test_each_binding_is_a_port():
    made = inspect({"80/tcp": [{"HostIp": FLOATS, "HostPort": "8080"}, {"HostIp": "", "HostPort": "80"}], "53/udp": [{"HostPort": "53"}], "9/sctp": None})
    assert facts.ports_of(made, [BRIDGE]) == {
        "ports": [
            {"container_port": 53, "protocol": "udp", "host_port": "53", "host_ip": ""},
            {"container_port": 80, "protocol": "tcp", "host_port": "8080", "host_ip": FLOATS},
            {"container_port": 80, "protocol": "tcp", "host_port": "80", "host_ip": ""},
        ],
        "drawn_ports": [],
    }
    assert facts.published_on(made) == ["", FLOATS]
    assert facts.published_by(made) == ["53/udp", "80/tcp"]


@pytest.mark.parametrize("port", ["", "0", "8000-8010"])
def test_a_port_that_docker_draws_is_told_apart(port):
    assert facts.ports_of(inspect({"80/tcp": [{"HostPort": port}]}), [BRIDGE]) == {"ports": [], "drawn_ports": ["80/tcp"]}


def test_all_that_is_exposed_is_drawn_but_for_what_is_bound():
    made = inspect({"80/tcp": [{"HostPort": "80"}]}, PublishAllPorts=True)
    assert facts.ports_of(made, [BRIDGE])["drawn_ports"] == ["81/tcp"]
    assert facts.published_by(made) == ["80/tcp", "all of them"]


@pytest.mark.parametrize("networks", [[], [SEGMENT]])
def test_nothing_is_published_without_a_bridge(networks):
    assert facts.ports_of(inspect({"80/tcp": [{"HostPort": "80"}]}), networks) == {"ports": [], "drawn_ports": []}


@pytest.fixture
def move():
    port = {"container_port": 80, "protocol": "tcp", "host_port": "8080", "host_ip": FLOATS}
    network = {"name": "inner", "driver": "bridge", "shared": False, "subnets": ["10.98.0.0/24"], "ip": "10.98.0.2", "ip6": ""}
    shop = {
        "exists": True, "held": False, "running": True, "name": "shop", "ports": [port], "networks": [network], "drawn_ports": [],
        "connections": {"10.98.0.2": 2},
        "peers": [{"address": "10.98.0.2", "port": 80, "peer": "192.0.2.99", "count": 2}],
    }  # fmt: skip
    host = {"addresses": [{"address": "192.0.2.1", "prefix": 24, "interface": "eno1"}], "docker": {"networks": []}}
    return Move("shop", "node1", "node2", "live", {"workload": shop, "host": host}, {"workload": {}, "host": host}, floating_addresses=[FLOATS])


def test_connections_through_a_floating_address_live_on(move):
    assert list(live.CHECKS["connections"](move)) == []
    move.container["peers"][0]["peer"] = "192.0.2.1"  # docker-proxy's, on the host itself
    (sentence,) = live.CHECKS["connections"](move)
    assert sentence.startswith("shop has 2 TCP connections open over the network inner") and "(handover_floating_addresses)" in sentence


def test_a_port_that_is_drawn_again_is_told(move):
    move.container["drawn_ports"] = ["80/tcp"]
    assert list(ports.told(move)) == []
    (sentence,) = ports.told(dataclasses.replace(move, mode="offline"))
    assert sentence == "shop publishes 80/tcp on another port of node2, which Docker draws as at any start: see `docker port shop` there"
