# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import copy

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._podman import workload

# What podman 5.4 says of a container with one volume on a macvlan network, without what is not looked at.
INSPECT = {
    "Id": "5a3e7d04f11b",
    "Name": "shop",
    "Path": "sh",
    "Args": ["-c", "serve"],
    "State": {"Status": "running", "Running": True, "Paused": False, "Pid": 388},
    "Image": "301275b6ca85",
    "ImageName": "localhost/shop:1",
    "OCIRuntime": "/usr/bin/runc",
    "StaticDir": "/var/lib/containers/storage/overlay-containers/5a3e7d04f11b/userdata",
    "GraphDriver": {"Name": "overlay", "Data": {"UpperDir": "/var/lib/containers/storage/overlay/aa6f/diff"}},
    "EffectiveCaps": ["CAP_KILL", "CAP_CHOWN"],
    "BoundingCaps": ["CAP_KILL", "CAP_CHOWN"],
    "Mounts": [
        {"Type": "volume", "Name": "shop", "Source": "/var/lib/containers/storage/volumes/shop/_data", "Destination": "/data", "Driver": "local",
         "Mode": "", "Options": ["nosuid", "nodev", "rbind"], "RW": True, "Propagation": "rprivate"},
    ],
    "Dependencies": [],
    "NetworkSettings": {"Networks": {"lan": {"IPAddress": "10.77.0.50", "GlobalIPv6Address": "", "MacAddress": "02:00:0a:4d:00:32"}}},
    "Config": {
        "Hostname": "5a3e7d04f11b",
        "User": "",
        "Env": ["PATH=/bin", "A=1"],
        "Cmd": ["sh", "-c", "serve"],
        "Entrypoint": None,
        "Labels": None,
        "Annotations": {"io.container.manager": "libpod", "com.example.team": "web"},
        "StopSignal": "SIGTERM",
        "CreateCommand": ["podman", "run", "-d", "--name", "shop", "localhost/shop:1"],
    },
    "HostConfig": {
        "AutoRemove": False, "NetworkMode": "bridge", "IpcMode": "shareable", "PidMode": "private", "UTSMode": "private", "Privileged": False,
        "ShmSize": 65536000,
        "PortBindings": {"80/tcp": [{"HostIp": "0.0.0.0", "HostPort": "8080"}], "53/udp": [{"HostIp": "10.0.0.1", "HostPort": "53"}]},
        "Devices": [], "CapAdd": [],
        "Ulimits": [{"Name": "RLIMIT_NPROC", "Soft": 96365, "Hard": 96365}],
    },
}  # fmt: skip
NETWORKS = [
    {"name": "podman", "driver": "bridge", "subnets": [{"subnet": "10.88.0.0/16"}]},
    {
        "name": "lan",
        "driver": "macvlan",
        "subnets": [{"subnet": "10.77.0.0/24", "gateway": "10.77.0.1"}],
        "containers": {"5a3e7d04f11b": {"name": "shop", "interfaces": {"eth0": {"subnets": [{"ipnet": "10.77.0.50/24"}]}}}},
    },
]


def changed(path, value):
    inspect = copy.deepcopy(INSPECT)
    target = inspect
    *keys, last = path.split(".")
    for key in keys:
        target = target[key]
    target[last] = value
    return inspect


class TestFind:
    LISTED = [{"Id": "1", "Names": ["shop", "store"]}, {"Id": "2", "Names": ["shopping"]}]

    def test_by_any_of_its_names_and_by_its_id(self):
        assert workload.find(self.LISTED, "store")["Id"] == "1"
        assert workload.find(self.LISTED, "2")["Id"] == "2"

    def test_an_id_short_or_in_full_means_its_container(self):
        listed = [{"Id": "5a3e7d04f11b9c", "Names": ["shop"]}, {"Id": "5a3e7d04f11c00", "Names": ["store"]}]
        for word in ("shop", "5a3e7d04f11b", "5a3e7d04f11b9c"):
            found = workload.resolve(listed, word)
            assert workload.name_of(found, word) == "shop"
        # Less than podman prints could be a name on another host.
        assert workload.resolve(listed, "5a3e7d04f11") is None

    def test_nothing_is_removed_by_a_piece_of_an_id(self):
        assert workload.find([{"Id": "5a3e7d04f11b9c", "Names": ["shop"]}], "5a3e7d04f11b") is None

    def test_a_part_of_a_name_is_another_name(self):
        assert workload.find(self.LISTED, "sho") is None


class TestFacts:
    def test_what_the_driver_table_and_preflight_ask_for(self):
        facts = workload.facts_of(INSPECT, NETWORKS)
        assert facts["running"]
        assert facts["image"] == {"id": "301275b6ca85", "name": "localhost/shop:1"}
        assert facts["runtime"] == "runc"
        assert facts["checkpoint_dir"].endswith("/5a3e7d04f11b/userdata/checkpoint")
        assert facts["shm_dir"].endswith("/5a3e7d04f11b/userdata/shm")
        assert facts["networks"] == [
            {
                "name": "lan", "driver": "macvlan", "subnets": ["10.77.0.0/24"], "shared": True,
                "interface": "eth0", "ip": "10.77.0.50", "ip6": "", "mac": "02:00:0a:4d:00:32",
                "definition": {
                    "driver": "macvlan", "subnets": [{"subnet": "10.77.0.0/24", "gateway": "10.77.0.1", "range": ""}], "routes": [], "internal": False,
                    "ipv6": False, "dns": False, "dns_servers": [], "ipam": "", "options": {}, "labels": {}, "interface": "",
                },
            }  # fmt: skip
        ]
        assert [(port["container_port"], port["host_port"], port["host_ip"]) for port in facts["ports"]] == [(53, "53", "10.0.0.1"), (80, "8080", "")]

    def test_a_paused_container_does_not_run(self):
        assert not workload.facts_of(changed("State.Paused", True), NETWORKS)["running"]

    def test_one_without_a_network(self):
        assert workload.facts_of(changed("NetworkSettings.Networks", {"none": {"NetworkID": "none"}}), NETWORKS)["networks"] == []

    def test_the_systemd_unit_that_owns_it(self):
        assert workload.facts_of(changed("Config.Labels", {"PODMAN_SYSTEMD_UNIT": "shop.service"}), ())["systemd_unit"] == "shop.service"

    @pytest.mark.parametrize(
        ("network", "shared"),
        [
            ({"driver": "macvlan"}, True),
            ({"driver": "ipvlan", "options": {}}, True),
            ({"driver": "bridge", "options": {"mode": "unmanaged"}}, True),
            ({"driver": "bridge", "options": {"mtu": "1400"}}, False),
            ({"driver": "bridge", "options": None}, False),
        ],
    )
    def test_a_network_that_leads_out_of_the_host(self, network, shared):
        assert workload.is_shared(network) is shared

    def test_a_network_that_is_not_described(self):
        assert workload.facts_of(INSPECT, ())["networks"][0]["subnets"] == []

    def test_the_identity_pins_what_the_container_has(self):
        identity = workload.identity_of(workload.facts_of(INSPECT, NETWORKS), "localhost/shop:1")
        assert identity.hostname == "5a3e7d04f11b"
        assert identity.networks[0].addresses == ("10.77.0.50",)
        assert [str(port) for port in identity.ports] == ["10.0.0.1:53:53/udp", "8080:80/tcp"]

    def test_the_hosts_own_host_name_is_nobodys_identity(self):
        assert workload.identity_of(workload.facts_of(changed("HostConfig.UTSMode", "host"), ()), "i").hostname is None

    def test_podman_4_calls_the_hosts_own_ipc_namespace_shareable(self):
        asked = changed("Config.CreateCommand", ["podman", "run", "--ipc", "host", "localhost/shop:1"])
        asked["HostConfig"]["IpcMode"] = "shareable"
        assert workload.facts_of(asked, ())["ipc_mode"] == "host"
        assert workload.facts_of(changed("Config.CreateCommand", ["podman", "run", "--ipc=host", "i"]), ())["ipc_mode"] == "host"
        assert workload.facts_of(INSPECT, ())["ipc_mode"] == "shareable"

    @pytest.mark.parametrize("shown", ["TOKEN=in the clear", "token=*******"])
    def test_the_value_of_a_secret_is_in_no_fact(self, shown):
        secret = changed("Config.CreateCommand", ["podman", "run", "--secret", "token,type=env,target=TOKEN", "i"])
        secret["Config"]["Env"] = ["A=1", shown]
        assert workload.facts_of(secret, ())["environment"] == ["A=1"]
