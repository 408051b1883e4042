# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import copy
import json
import pathlib

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._docker import facts, twin

RECORDED = pathlib.Path(__file__).parent / "recorded"
LEDGER = json.loads((RECORDED / "docker-26.1-inspect.json").read_text(encoding="utf-8"))[0]
NETWORKS = json.loads((RECORDED / "docker-26.1-networks.json").read_text(encoding="utf-8"))


@pytest.fixture
def inspect():
    return copy.deepcopy(LEDGER)


def made(inspect, **drivers):
    return twin.request(inspect, "shop:1", drivers or {"lan": "macvlan"}, {})


def test_the_twin_is_the_source_without_a_restart_policy(inspect):
    body = made(inspect)
    assert body["Image"] == "shop:1" and body["HostConfig"]["RestartPolicy"] == {"Name": "no", "MaximumRetryCount": 0}
    left_out = {"RestartPolicy", "ContainerIDFile", "Binds", "Mounts"}
    assert all(body["HostConfig"][key] == value for key, value in inspect["HostConfig"].items() if key not in left_out)
    assert all(body[key] == value for key, value in inspect["Config"].items() if key != "Image")
    # The facts are used again.
    assert inspect == LEDGER


def test_a_volume_that_docker_named_is_asked_for_by_that_name(inspect):
    names = {mount["Destination"]: mount["Name"] for mount in inspect["Mounts"]}
    host = made(inspect)["HostConfig"]
    assert host["Binds"] == ["ledgerdata:/data", names["/nameless"] + ":/nameless"]
    assert host["Mounts"] == [{"Type": "volume", "Target": "/nameless too", "Source": names["/nameless too"]}]


def test_a_nameless_volume_that_is_only_read_stays_so(inspect):
    inspect["HostConfig"].update(Binds=None, Mounts=None)
    inspect["Mounts"] = [{"Type": "volume", "Name": "n", "Destination": "/data", "RW": False}]
    assert made(inspect)["HostConfig"]["Binds"] == ["n:/data:ro"]


@pytest.mark.parametrize(("driver", "kept"), [("macvlan", True), ("ipvlan", False), ("bridge", False)])
def test_a_macvlan_keeps_its_hardware_address(inspect, driver, kept):
    endpoint = made(inspect, lan=driver)["NetworkingConfig"]["EndpointsConfig"]["lan"]
    assert endpoint["IPAMConfig"] == {"IPv4Address": "192.0.2.20"}
    assert ("MacAddress" in endpoint) == kept


def test_an_address_that_it_keeps_is_asked_for_beside_what_was(inspect):
    body = twin.request(inspect, "shop:1", {"lan": "bridge"}, {"lan": {"IPv6Address": "fd98::2"}})
    assert body["NetworkingConfig"]["EndpointsConfig"]["lan"]["IPAMConfig"] == {"IPv4Address": "192.0.2.20", "IPv6Address": "fd98::2"}
    inspect["NetworkSettings"]["Networks"]["lan"]["IPAMConfig"] = None
    body = twin.request(inspect, "shop:1", {"lan": "bridge"}, {"lan": {"IPv4Address": "192.0.2.20"}})
    assert body["NetworkingConfig"]["EndpointsConfig"]["lan"]["IPAMConfig"] == {"IPv4Address": "192.0.2.20"}


def test_a_twin_with_other_ports_is_another(inspect):
    inspect["HostConfig"]["PortBindings"] = {"80/tcp": [{"HostIp": "192.0.2.50", "HostPort": "80"}]}
    other = copy.deepcopy(inspect)
    assert facts.first_difference(facts.essence(inspect), facts.essence(other)) is None
    other["HostConfig"]["PortBindings"]["80/tcp"][0]["HostIp"] = ""
    key, _source, _here = facts.first_difference(facts.essence(inspect), facts.essence(other)) or ("", None, None)
    assert key == "HostConfig.PortBindings"


def test_the_own_id_is_no_alias_of_the_twin(inspect):
    inspect["NetworkSettings"]["Networks"]["lan"]["Aliases"] = ["web", inspect["Id"][:12]]
    assert made(inspect)["NetworkingConfig"]["EndpointsConfig"]["lan"]["Aliases"] == ["web"]


def test_none_and_the_hosts_own_are_no_networks_to_connect_to(inspect):
    inspect["NetworkSettings"]["Networks"] = {"none": {}, "host": {}}
    assert made(inspect)["NetworkingConfig"] == {"EndpointsConfig": {}}


def test_two_forms_of_the_same_are_equal(inspect):
    other = copy.deepcopy(inspect)
    other["HostConfig"].update(OomKillDisable=False, CapDrop=[], Dns=None, RestartPolicy={"Name": "no"})
    other["Mounts"].reverse()
    other.update(Id="f" * 64, Created="later")
    assert facts.first_difference(facts.essence(inspect), facts.essence(other)) is None
    other["HostConfig"]["ShmSize"] = 1
    assert facts.first_difference(facts.essence(inspect), facts.essence(other)) == ("HostConfig.ShmSize", 67108864, 1)


@pytest.mark.parametrize(
    ("policy", "word"),
    [({}, "no"), ({"Name": "always"}, "always"), ({"Name": "on-failure", "MaximumRetryCount": 3}, "on-failure:3"), ({"Name": "on-failure"}, "on-failure")],
)
def test_a_restart_policy_as_docker_update_takes_it(policy, word):
    assert facts.restart_policy({"HostConfig": {"RestartPolicy": policy}}) == word


def test_the_facts_of_a_container(inspect):
    found = facts.facts_of(inspect, NETWORKS)
    assert (found["name"], found["running"], found["restart_policy"]) == ("ledger", True, "always")
    assert found["bundle"] == "/run/containerd/io.containerd.runtime.v2.task/moby/" + inspect["Id"]
    (network,) = found["networks"]
    assert (network["name"], network["driver"], network["subnets"], network["ip"]) == ("lan", "macvlan", ["192.0.2.0/24"], "192.0.2.20")


def test_a_name_is_found_and_a_link_is_no_name():
    listed = [{"Id": "a" * 64, "Names": ["/other/shop", "/db"]}, {"Id": "b" * 64, "Names": ["/shop"]}]
    assert facts.resolve(listed, "shop")["Id"] == "b" * 64
    assert facts.resolve(listed, "a" * 12)["Id"] == "a" * 64
    assert facts.resolve(listed, "a" * 11) is None and facts.resolve(listed, "other/shop") is None
    assert facts.name_of(listed[0]) == "db"


@pytest.mark.parametrize("digits", [12, 64])
def test_a_network_that_was_asked_for_by_its_id_is_asked_for_by_its_name(inspect, digits):
    """As docker compose asks for an external one: on the other host it has another ID."""
    lan = next(network for network in NETWORKS if network["Name"] == "lan")
    inspect["HostConfig"]["NetworkMode"] = lan["Id"][:digits]
    named = facts.with_network_named(inspect, NETWORKS)
    assert made(named)["HostConfig"]["NetworkMode"] == facts.essence(named)["HostConfig.NetworkMode"] == "lan"


@pytest.mark.parametrize("mode", ["lan", "none", "default", "container:" + "f" * 64, "f" * 64, ""])
def test_any_other_network_stays_as_it_was_asked_for(inspect, mode):
    inspect["HostConfig"]["NetworkMode"] = mode
    assert facts.with_network_named(inspect, NETWORKS)["HostConfig"]["NetworkMode"] == mode


def test_the_images_that_arrive_are_not_in_the_containers_own_folder(inspect):
    """Docker unmounts all that is below it when a start has failed, and a restore may be begun again."""
    found = facts.facts_of(inspect, NETWORKS)
    assert inspect["Id"] in found["arriving_dir"]
    assert not found["arriving_dir"].startswith(found["own_dir"])
