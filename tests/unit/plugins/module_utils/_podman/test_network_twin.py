# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._podman.network_twin import create_words, definition, difference

PLAIN = {
    "name": "shop_default", "driver": "bridge", "network_interface": "podman1", "subnets": [{"subnet": "10.89.0.0/24", "gateway": "10.89.0.1"}],
    "ipv6_enabled": False, "internal": False, "dns_enabled": True, "labels": {"of": "a shop"}, "ipam_options": {"driver": "host-local"},
}  # fmt: skip
RICH = {
    "driver": "bridge", "network_interface": "br-own", "internal": True, "ipv6_enabled": True, "dns_enabled": False, "ipam_options": {"driver": "none"},
    "subnets": [
        {"subnet": "10.90.0.0/24", "gateway": "10.90.0.254", "lease_range": {"start_ip": "10.90.0.10", "end_ip": "10.90.0.20"}},
        {"subnet": "fd00:90::/64", "gateway": "fd00:90::1"},
    ],
    "routes": [{"destination": "10.9.0.0/16", "gateway": "10.90.0.2", "metric": 5}], "network_dns_servers": ["192.0.2.1"],
    "options": {"mtu": "1400", "isolate": "true"},
}  # fmt: skip


def test_the_command_makes_the_same_network():
    assert create_words("shop_default", definition(PLAIN)) == [
        "network", "create", "--driver=bridge", "--subnet=10.89.0.0/24", "--gateway=10.89.0.1", "--label=of=a shop", "shop_default",
    ]  # fmt: skip
    assert create_words("rich", definition(RICH)) == [
        "network", "create", "--driver=bridge", "--ipam-driver=none", "--subnet=10.90.0.0/24", "--gateway=10.90.0.254",
        "--ip-range=10.90.0.10-10.90.0.20", "--subnet=fd00:90::/64", "--gateway=fd00:90::1", "--ipv6", "--internal", "--disable-dns", "--dns=192.0.2.1",
        "--route=10.9.0.0/16,10.90.0.2,5", "--interface-name=br-own", "--opt=isolate=true", "--opt=mtu=1400", "rich",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"driver": "ipvlan"}, ("driver", "bridge", "ipvlan")),
        ({"subnets": [{"subnet": "10.89.0.0/24", "gateway": "10.89.0.2"}]},
         ("set of subnets", "10.89.0.0/24 with the gateway 10.89.0.1", "10.89.0.0/24 with the gateway 10.89.0.2")),
        ({"internal": True}, ("word internal", "off", "on")),
        ({"dns_enabled": False}, ("name server", "on", "off")),
        ({"options": {"isolate": "true"}}, ("set of options", "none", "isolate=true")),
        ({"routes": [{"destination": "10.9.0.0/16", "gateway": "10.89.0.2"}]}, ("set of routes", "none", "10.9.0.0/16,10.89.0.2")),
        ({"ipam_options": {"driver": "none"}}, ("IPAM driver", "host-local", "none")),
        # Each host's own, or nothing that a container could notice.
        ({"options": {"mtu": "1400"}, "network_interface": "podman7", "labels": {}}, None),
    ],
)  # fmt: skip
def test_the_first_difference_has_a_name(change, said):
    assert difference(definition(PLAIN), definition({**PLAIN, **change})) == said
