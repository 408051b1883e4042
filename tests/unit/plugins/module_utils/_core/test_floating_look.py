# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._core import floating_look


def test_the_addresses_of_a_host_s_own_configuration_are_found(tmp_path):
    (tmp_path / "interfaces").write_text("iface eno1 inet static\n  address 192.0.2.50/24\n# address 192.0.2.51\n  gateway 192.0.2.1\n", encoding="utf-8")
    folder = tmp_path / "network" / "10-lan.network.d"
    folder.mkdir(parents=True)
    (folder / "a.conf").write_text("[Network]\nAddress=2001:db8::50/64\nAddress=999.1.1.1\nMACAddress=0a:00:00:00:00:01\n", encoding="utf-8")
    found = floating_look.configured([str(tmp_path / "interfaces"), str(tmp_path / "network"), str(tmp_path / "missing")])
    assert found == {
        "192.0.2.50": str(tmp_path / "interfaces"),
        "192.0.2.1": str(tmp_path / "interfaces"),
        "2001:db8::50": str(folder / "a.conf"),
    }


def test_whether_a_program_may_bind_to_an_address_that_is_not_there(tmp_path):
    for name, value in (("ipv4", "1\n"), ("ipv6", "0\n")):
        (tmp_path / "sys/net" / name).mkdir(parents=True)
        (tmp_path / "sys/net" / name / "ip_nonlocal_bind").write_text(value, encoding="utf-8")
    assert floating_look.binds_anywhere(str(tmp_path)) == {"4": True, "6": False}
    assert floating_look.binds_anywhere(str(tmp_path / "nowhere")) == {"4": False, "6": False}


@pytest.mark.parametrize(
    ("bridged", "bridged6", "loose", "takes_over"),
    [("1", "0", "0", False), ("0", "1", "0", False), ("0", "0", "0", True), ("1", "1", "1", True), ("1", "1", "", True)],
)
def test_whether_a_bridge_lets_pass_what_began_elsewhere(tmp_path, bridged, bridged6, loose, takes_over):
    values = {"bridge/bridge-nf-call-iptables": bridged, "bridge/bridge-nf-call-ip6tables": bridged6, "netfilter/nf_conntrack_tcp_loose": loose}
    for name, value in values.items():
        path = tmp_path / "sys/net" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(value + "\n", encoding="utf-8")
    assert floating_look.takes_over(str(tmp_path)) is takes_over
    assert floating_look.takes_over(str(tmp_path / "nowhere")) is True


def test_connections_of_one_peer_to_one_port_are_one():
    one, other = ("10.89.5.2", 80, "192.0.2.9"), ("10.89.5.2", 81, "192.0.2.9")
    assert floating_look.peers([one, other, one]) == [
        {"address": "10.89.5.2", "port": 80, "peer": "192.0.2.9", "count": 2},
        {"address": "10.89.5.2", "port": 81, "peer": "192.0.2.9", "count": 1},
    ]
