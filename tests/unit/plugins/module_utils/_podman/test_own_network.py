# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._core.runtime import Completed, HandoverError
from ansible_collections.livefleet.handover.plugins.module_utils._podman import own_network as own

NOTHING = {
    "link": [{"ifname": "lo"}, {"ifname": "eth0"}],
    "neigh": [],
    "qdisc": [{"kind": "noqueue", "handle": "0:", "dev": "eth0", "root": True}],
    "nexthop": [],
    "state": "",
    "policy": "",
    "ruleset": "",
}


class Namespace:
    """The host's programs, which tell of one namespace what a test wants."""

    def __init__(self, **has):
        self.has, self.warns, self.without = {**NOTHING, **has}, "", ()

    def find(self, tool):
        return None if tool in self.without else tool

    def tool(self, tool, package):
        return tool

    def run(self, argv, timeout=None):
        answer = next(self.has[word] for word in argv if word in self.has)
        if answer is None:
            raise HandoverError("ip failed: no such protocol")
        return Completed(tuple(argv), 0, answer, self.warns)

    def run_json(self, argv):
        return json.loads(json.dumps(next(self.has[word] for word in argv if word in self.has)))


def left_behind(host, tmp_path, interfaces=("eth0",)):
    return own.OwnNetwork(host, 7, str(tmp_path)).left_behind(interfaces)


@pytest.mark.parametrize(
    ("has", "named"),
    [
        ({}, []),
        ({"link": [*NOTHING["link"], {"ifname": "wg0"}]}, ["the interface wg0"]),
        ({"neigh": [{"dst": "192.0.2.7", "dev": "eth0"}]}, ["the neighbour 192.0.2.7 on eth0"]),
        (
            {"qdisc": [{"kind": "tbf", "handle": "8001:", "dev": "eth0", "root": True}, {"kind": "ingress", "handle": "ffff:", "dev": "eth0"}]},
            ["the queueing discipline tbf on eth0", "the queueing discipline ingress on eth0"],
        ),
        ({"nexthop": [{"id": 5}]}, ["the next hop 5"]),
        ({"state": "src 192.0.2.1 dst 192.0.2.2\n", "policy": None}, ["IPsec's keys"]),
        # They go along.
        ({"ruleset": "table inet shop {\n}\n"}, []),
    ],
)
def test_what_nobody_makes_on_the_other_host(tmp_path, has, named):
    assert left_behind(Namespace(**has), tmp_path) == named


def test_interfaces_that_podman_does_not_name_are_not_looked_at(tmp_path):
    assert left_behind(Namespace(), tmp_path, ()) == []


def test_tables_of_iptables(tmp_path):
    host = Namespace(ruleset="table ip nat {\n}\ntable inet shop {\n}\ntable inet handover {\n}\ntable inet CRIU {\n}\ntable inet CRIU-5347-41c2 {\n}\n")
    host.warns = "# Warning: table ip nat is managed by iptables-nft, do not touch!\n"
    (tmp_path / "7" / "net").mkdir(parents=True)
    (tmp_path / "7" / "net" / "ip_tables_names").write_text("filter\nnat\n")
    assert left_behind(host, tmp_path) == ["the table ip nat of iptables", "the table filter of iptables-legacy", "the table nat of iptables-legacy"]
    assert own.OwnNetwork(host, 7, str(tmp_path)).tables()[0] == ["ip nat", "inet shop"]


def test_mtus_of_all_but_the_loopback(tmp_path):
    host = Namespace(link=[{"ifname": "lo", "mtu": 65536}, {"ifname": "eth0", "mtu": 1400}])
    assert own.OwnNetwork(host, 7, str(tmp_path)).mtus() == {"eth0": 1400}


def test_without_nft_and_tc_there_is_less_to_see(tmp_path):
    host = Namespace(ruleset="table inet shop {\n}\n")
    host.without = ("nft", "tc")
    assert left_behind(host, tmp_path) == []
    assert own.OwnNetwork(host, 7, str(tmp_path)).tables() == ([], "")
