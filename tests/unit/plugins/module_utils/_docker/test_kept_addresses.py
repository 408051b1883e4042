# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A container on a bridge has no fixed address, and keeps the one that it has when it moves live."""

from __future__ import annotations

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._core.move import Move
from ansible_collections.livefleet.handover.plugins.module_utils._docker import kept_addresses as kept

INNER = {
    "name": "inner", "shared": False, "subnets": ["10.98.0.0/24"], "ip": "", "ip6": "", "own_ip": "10.98.0.2", "own_ip6": "fd98::2",
    "gateways": ["10.98.0.64"],
}  # fmt: skip


def move(network, mode="live", drawn=None, running=True):
    here = {"workload": {"running": running, "networks": [network]}, "host": {}}
    networks = [{**INNER, "name": name, "taken": [{"address": "", "container": "web"}]} for name in ("inner", "bridge")]
    docker = {"drawn_subnets": drawn or {}, "networks": networks}
    return Move("shop", "node1", "node2", mode, here, {"host": {"docker": docker}})


def test_it_keeps_what_it_has():
    plan = move(INNER)
    assert kept.in_request(plan) == {"inner": {"IPv4Address": "10.98.0.2", "IPv6Address": "fd98::2"}}
    (network,) = kept.kept(plan).container["networks"]
    assert (network["ip"], network["ip6"]) == ("10.98.0.2", "fd98::2")
    assert list(kept.told(plan)) == ["shop keeps 10.98.0.2 and fd98::2 on the network inner, from now on as by `docker run --ip`"]
    assert list(kept.fixed_address(kept.kept(plan))) == []


def test_what_is_fixed_is_asked_for_in_any_case():
    assert kept.in_request(move({**INNER, "ip": "10.98.0.2"})) == {"inner": {"IPv6Address": "fd98::2"}}


@pytest.mark.parametrize(("network", "more"), [
    (INNER, {"mode": "offline"}),
    ({**INNER, "own_ip": "", "own_ip6": ""}, {"running": False}),
    ({**INNER, "shared": True}, {}),
    ({**INNER, "name": "bridge"}, {}),
])  # fmt: skip
def test_else_it_asks_for_none(network, more):
    plan = move(network, **more)
    assert kept.in_request(plan) == {} and list(kept.told(plan)) == []


def test_the_default_bridge_fixes_none():
    (sentence,) = kept.fixed_address(kept.kept(move({**INNER, "name": "bridge"})))
    assert sentence == (
        "shop has no fixed address on the network bridge, and would get another on node2 while it runs: put it on a network made by "
        "`docker network create --subnet`, or use migrate_mode=offline"
    )
    (sentence,) = kept.fixed_address(kept.kept(move({**INNER, "shared": True})))
    assert "create it with `docker run --ip`, or use migrate_mode=offline" in sentence
    assert list(kept.fixed_address(move({**INNER, "name": "bridge"}, "offline"))) == []


@pytest.mark.parametrize("mode", ["live", "offline"])
def test_a_network_that_docker_gave_a_subnet_fixes_none(mode):
    (sentence,) = kept.fixed_address(move({**INNER, "ip": "10.98.0.2"}, mode, {"inner": ["4"]}))
    assert sentence.startswith("shop keeps the address 10.98.0.2, and Docker on node2 fixes none in the IPv4 subnet of its network inner, which it has drawn")
    assert "itself and web is on: make that network anew" in sentence
    assert list(kept.fixed_address(move({**INNER, "ip": "10.98.0.2"}, mode, {"inner": ["6"], "other": ["4"]}))) == []
    assert list(kept.fixed_address(move({**INNER, "ip": "10.98.0.2", "subnets": ["10.99.0.0/24"]}, mode, {"inner": ["4"]}))) == []  # they differ


@pytest.mark.parametrize(("here", "there", "mode", "found"), [
    ("10.98.0.64", "10.98.0.128", "live", True),
    ("10.98.0.64", "10.98.0.64", "live", False),
    ("10.98.0.64", "10.98.0.128", "offline", False),
    ("192.0.2.1", "192.0.2.2", "live", False),  # the gateway is another machine
])  # fmt: skip
def test_a_gateway_that_is_another_there_would_lead_nowhere(here, there, mode, found):
    plan = move(INNER, mode)
    for facts, address in ((plan.here, here), (plan.there, there)):
        facts["host"]["addresses"] = [{"address": address}]
    sentences = list(kept.CHECKS["gateway"](plan))
    assert len(sentences) == found
    assert all("shop leaves its network inner by 10.98.0.64, which is not the gateway of inner on node2" in sentence for sentence in sentences)
    plan.there["host"]["docker"]["networks"] = [{**INNER, "definition": {"subnets": [{"gateway": there}]}}]
    assert list(kept.CHECKS["gateway"](plan)) == []  # it is told, and so is a difference
