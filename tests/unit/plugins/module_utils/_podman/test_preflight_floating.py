# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A port that is published on an address of its own: what is in the way, where the address goes, and which connections live on."""

from __future__ import annotations

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._core import floating
from ansible_collections.livefleet.handover.plugins.module_utils._podman.preflight import examine as preflight
from ansible_collections.livefleet.handover.tests.unit.plugins.module_utils._podman.test_preflight import Facts

FOUR, SIX = "192.0.2.50", "2001:db8::50"
PORTS = [
    {"container_port": 80, "protocol": "tcp", "host_port": "8080", "host_ip": FOUR},
    {"container_port": 80, "protocol": "tcp", "host_port": "8080", "host_ip": SIX},
]


@pytest.fixture
def facts():
    """The shop behind the NAT of each host's own bridge, with addresses that float beside those of the hosts."""
    made = Facts()
    inner = {"name": "inner", "driver": "bridge", "subnets": ["10.89.5.0/24", "fd89:5::/64"], "shared": False, "parent": "podman1"}
    made.shop.update(
        networks=[dict(inner, interface="eth0", ip="10.89.5.2", ip6="fd89:5::2", mac="0a:00:00:00:00:02")],
        ports=PORTS,
        connections={"10.89.5.2": 3, "fd89:5::2": 1},
        peers=[
            {"address": "10.89.5.2", "port": 80, "peer": "192.0.2.99", "count": 3},
            {"address": "fd89:5::2", "port": 80, "peer": "2001:db8::99", "count": 1},
        ],
    )
    for number, each in ((1, made.here), (2, made.there)):
        each["host"]["addresses"] = [
            {"address": f"192.0.2.{number}", "prefix": 24, "interface": f"eno{number}", "label": f"eno{number}", "broadcast": "192.0.2.255"},
            {"address": f"2001:db8::{number}", "prefix": 64, "interface": f"eno{number}"},
        ]
        each["host"].update(configured_addresses={}, binds_anywhere={"4": True, "6": True})
        each["host"]["podman"]["networks"] = [dict(inner, taken=[])]
        each["host"]["pcopy"]["flows"] = {"name": "flows", "ok": True, "text": ""}
    made.here["host"]["addresses"] += [
        {"address": FOUR, "prefix": 24, "interface": "eno1", "label": "eno1:shop", "secondary": True},
        {"address": SIX, "prefix": 64, "interface": "eno1", "noprefixroute": True},
    ]
    made.floating = [FOUR, "2001:DB8:0::50"]
    return made


def sentences(facts):
    found, _ignored = preflight.examine(facts.plan())
    return [(finding.check, finding.sentence) for finding in found if finding.check in ("floating_addresses", "connections", "ports")]


def test_the_addresses_go_to_the_same_segment_and_come_back_as_they_were(facts):
    assert sentences(facts) == []
    assert floating.places(facts.plan()) == {
        "source": [
            {"address": "192.0.2.50/24", "interface": "eno1", "label": "eno1:shop"},
            {"address": "2001:db8::50/64", "interface": "eno1", "no_prefix": True},
        ],
        "destination": [
            {"address": "192.0.2.50/24", "interface": "eno2"},
            {"address": "2001:db8::50/64", "interface": "eno2", "no_prefix": True},
        ],
    }


def test_an_address_alone_goes_to_the_interface_whose_network_it_is_in(facts):
    facts.here["host"]["addresses"][2].update(prefix=32, secondary=False)
    assert sentences(facts) == []
    assert floating.places(facts.plan())["destination"][0] == {"address": "192.0.2.50/32", "interface": "eno2"}


def test_nothing_moves_along_that_is_not_published_or_not_listed(facts):
    facts.floating = ["192.0.2.60"]
    assert floating.places(facts.plan()) == {"source": [], "destination": []}
    assert [check for check, _sentence in sentences(facts)] == ["connections", "ports", "ports"]
    facts.shop["ports"] = []
    facts.floating = [FOUR, SIX]
    assert floating.places(facts.plan()) == {"source": [], "destination": []}


def break_port(facts, **change):
    facts.shop["ports"] = [dict(PORTS[0], **change), PORTS[1]]


def to_port(facts, **change):
    facts.shop["peers"] = [dict(facts.shop["peers"][0], **change), *facts.shop["peers"][1:]]


@pytest.mark.parametrize("fault, number", [
    (lambda facts: to_port(facts, port=22), 3),
    (lambda facts: to_port(facts, peer="192.0.2.1"), 3),  # on the source itself
    (lambda facts: to_port(facts, peer="192.0.2.2"), 3),  # on the destination
    (lambda facts: to_port(facts, peer="10.89.5.7"), 3),  # beside it
    (lambda facts: break_port(facts, host_ip=""), 4),  # on all addresses, of both versions of IP
    (lambda facts: break_port(facts, protocol="udp"), 3),
])  # fmt: skip
def test_a_connection_by_another_way_would_break(facts, fault, number):
    fault(facts)
    ((check, sentence),) = [each for each in sentences(facts) if each[0] == "connections"]
    assert sentence == (
        f"shop has {number} TCP connections open over the network inner, which is a bridge of node1 alone, so they would break: put it on a network that both "
        "hosts are on (macvlan, or an unmanaged bridge), or publish its ports on an address that floats (handover_floating_addresses), or list the "
        "check 'connections' in handover_ignore_checks"
    )


def change(path, **values):
    def do(facts):
        target = facts
        for key in path:
            target = target[key] if isinstance(target, (dict, list)) else getattr(target, key)
        target.update(values)

    return do


def others(facts):
    facts.here["host"]["podman"]["containers"].append({"name": "mail", "id": "ab", "state": "running", "pod": "", "published_on": ["", FOUR]})


FAULTS = [
    (lambda facts: facts.floating.append("192.0.2.60/24"), "handover_floating_addresses has 192.0.2.60/24, which is no address: write each alone"),
    (lambda facts: facts.here["host"]["addresses"].pop(2), "shop publishes ports on 192.0.2.50, which node1 does not have: add it there"),
    (lambda facts: facts.there["host"]["addresses"].append({"address": FOUR, "prefix": 24, "interface": "eno2"}),
     "shop publishes ports on 192.0.2.50, which is on eno2 of node2 already, too: remove it there"),
    (lambda facts: facts.there["host"]["addresses"].pop(0), "node2 has no interface in the segment of 192.0.2.50/24, on which shop publishes ports"),
    (change(["here", "host", "addresses", 2], secondary=False),
     "192.0.2.50 is the first address of its subnet on eno1 of node1, and 192.0.2.1 would go with it: add it after that one, or as 192.0.2.50/32"),
    (others, "mail publishes ports on 192.0.2.50 too, which would leave node1 with shop: give each container an address of its own"),
    (change(["here", "host"], configured_addresses={FOUR: "/etc/network/interfaces"}),
     "192.0.2.50 is in /etc/network/interfaces of node1, which would bring it up there at each boot, wherever shop is: take it out of that file"),
    (change(["there", "host"], configured_addresses={SIX: "/etc/keepalived/keepalived.conf"}),
     "2001:db8::50 is in /etc/keepalived/keepalived.conf of node2, which would bring it up there"),
    (change(["there", "host", "pcopy"], flows={"ok": False, "text": "load the module nf_conntrack_netlink"}),
     "connections through 192.0.2.50 cannot be carried by node2: load the module nf_conntrack_netlink"),
    (change(["there", "host"], binds_anywhere={"4": False, "6": True}),
     "podman on node2 could not reserve the ports of 192.0.2.50 before 192.0.2.50 is there, neither now nor at a boot: set net.ipv4.ip_nonlocal_bind=1"),
    (change(["here", "workload"], service={"made_by_unit": True, "unit": "shop.service"}),
     "shop publishes ports on the floating address 192.0.2.50, and its unit makes it anew at each start, so node2 would not know it after a boot"),
]  # fmt: skip


@pytest.mark.parametrize("fault, text", FAULTS)
def test_each_fault_has_its_sentence(facts, fault, text):
    fault(facts)
    assert any(check == "floating_addresses" and sentence.startswith(text) for check, sentence in sentences(facts)), sentences(facts)


def test_a_member_of_a_group_keeps_its_addresses(facts):
    facts.shop["infra"] = False
    assert any("is one of several containers that move as one, whose addresses cannot" in sentence for _check, sentence in sentences(facts))


@pytest.mark.parametrize("address, stays", [("0.0.0.0", True), ("127.0.0.1", True), ("192.0.2.2", True), ("192.0.2.1", False)])
def test_a_port_on_an_address_of_the_source_s_alone_is_refused(facts, address, stays):
    break_port(facts, host_ip=address)
    text = "shop publishes port 8080/tcp on {0}, an address of node1 that node2 does not have: publish it on all addresses".format(address)
    assert any(sentence.startswith(text) for check, sentence in sentences(facts) if check == "ports") is not stays
