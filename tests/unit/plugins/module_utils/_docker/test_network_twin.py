# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import pathlib

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._docker.network_twin import definition, difference, request

NETWORKS = json.loads((pathlib.Path(__file__).parent / "recorded" / "docker-26.1-networks.json").read_text(encoding="utf-8"))
PLAIN = {
    "Name": "shop_default", "Id": "c" * 64, "Scope": "local", "Driver": "bridge", "EnableIPv6": False, "Internal": False, "Attachable": False,
    "IPAM": {"Driver": "default", "Options": None, "Config": [{"Subnet": "172.18.0.0/16", "Gateway": "172.18.0.1"}]}, "Ingress": False,
    "ConfigFrom": {"Network": ""}, "ConfigOnly": False, "Containers": {}, "Options": None, "Labels": {"com.docker.compose.project": "shop"},
}  # fmt: skip
RICH = {
    **PLAIN, "Driver": "ipvlan", "EnableIPv4": False, "EnableIPv6": True, "Internal": True, "Attachable": True, "Options": {"parent": "eth0.7"},
    "IPAM": {"Driver": "default", "Options": {"of": "ours"}, "Config": [
        {"Subnet": "10.9.0.0/24", "IPRange": "10.9.0.128/25", "Gateway": "10.9.0.254", "AuxiliaryAddresses": {"router": "10.9.0.200"}},
        {"Subnet": "fd00:9::/64", "Gateway": "fd00:9::1/64"},
    ]},
}  # fmt: skip


def test_the_request_makes_the_same_network():
    assert request("shop_default", definition(PLAIN)) == {
        "Name": "shop_default", "CheckDuplicate": True, "Driver": "bridge", "Internal": False, "Attachable": False, "EnableIPv6": False,
        "IPAM": {"Driver": "default", "Options": {}, "Config": [{"Subnet": "172.18.0.0/16", "Gateway": "172.18.0.1"}]},
        "Options": {}, "Labels": {"com.docker.compose.project": "shop"},
    }  # fmt: skip
    assert request("rich", definition(RICH)) == {
        "Name": "rich", "CheckDuplicate": True, "Driver": "ipvlan", "Internal": True, "Attachable": True, "EnableIPv6": True, "EnableIPv4": False,
        "IPAM": {"Driver": "default", "Options": {"of": "ours"}, "Config": [
            {"Subnet": "10.9.0.0/24", "Gateway": "10.9.0.254", "IPRange": "10.9.0.128/25", "AuxiliaryAddresses": {"router": "10.9.0.200"}},
            {"Subnet": "fd00:9::/64", "Gateway": "fd00:9::1"},
        ]},
        "Options": {"parent": "eth0.7"}, "Labels": {"com.docker.compose.project": "shop"},
    }  # fmt: skip


@pytest.mark.parametrize("network", [*(each for each in NETWORKS if each["Name"] in ("bridge", "host", "none")), {**PLAIN, "Scope": "swarm"},
                                     {**PLAIN, "Ingress": True}, {**PLAIN, "ConfigFrom": {"Network": "of-the-swarm"}}])  # fmt: skip
def test_some_networks_are_made_on_no_host(network):
    assert definition(network) == {}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"IPAM": {"Config": [{"Subnet": "172.18.0.0/16", "Gateway": "172.18.0.254"}]}}, ("gateway", "172.18.0.1", "172.18.0.254")),
        ({"Internal": True}, ("word internal", "off", "on")),
        ({"IPAM": {**PLAIN["IPAM"], "Driver": "of-a-plugin"}}, ("IPAM driver", "default", "of-a-plugin")),
        ({"Options": {"com.docker.network.bridge.enable_icc": "false"}}, ("set of options", "none", "com.docker.network.bridge.enable_icc=false")),
        # Each host's own, or nothing that a container could notice; and a gateway that the daemon does not tell.
        ({"Options": {"com.docker.network.bridge.name": "br9", "com.docker.network.driver.mtu": "1400", "com.docker.network.enable_ipv4": "true"},
          "Labels": {}, "Attachable": True, "IPAM": {"Config": [{"Subnet": "172.18.0.0/16", "IPRange": "172.18.1.0/24"}]}}, None),
    ],
)  # fmt: skip
def test_the_first_difference_has_a_name(change, said):
    assert difference(definition(PLAIN), definition({**PLAIN, **change})) == said
