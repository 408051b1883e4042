# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import ipaddress

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._podman.clone import CloneError
from ansible_collections.livefleet.handover.plugins.module_utils._podman.clone_plan import Here, addresses_of, command, plan
from ansible_collections.livefleet.handover.plugins.module_utils._podman.create_command import Grammar

PLACE = "/var/lib/handover/mnt/pgdata"
VOLUME = {"name": "pgdata", "image": "/srv/images/pgdata.img", "mountpoint": PLACE, "fstype": "ext4", "options": "rw,discard", "size": 4}
BRIDGE = {"name": "podman", "driver": "bridge", "subnets": [{"subnet": "10.88.0.0/16", "gateway": "10.88.0.1"}]}
LAN = {"name": "lan", "driver": "macvlan", "subnets": [{"subnet": "10.213.0.0/24"}, {"subnet": "fd00::/64"}]}
VALUED = ("volume", "mount", "network", "ip", "hostname", "name", "pull", "publish", "label", "env", "mac-address", "pod", "cgroups")
CREATE = Grammar({**dict.fromkeys(VALUED, True), "rm": False, "detach": False}, {"v": "volume", "d": "detach", "p": "publish"})
GRAMMARS = (Grammar({"root": True}, {}), CREATE, CREATE)


def mount(name, directory=PLACE, **more):
    options = {"device": directory, "o": "bind", "type": "none"}
    return {"type": "volume", "name": name, "destination": "/data", "directory": directory, "image_volume": VOLUME,
            "volume": {"driver": "local", "options": options, "labels": {}}, "directory_volume": None, **more}  # fmt: skip


def configuration(*words, **given):
    networks = given.pop("networks", [{"name": "podman", "interface": "eth0"}])
    attached = [{"ip": "10.88.0.2", "ip6": "", "mac": "02:00:00:00:00:01", **each} for each in networks]
    return {
        "name": "shop", "userns": "", "network_mode": "bridge", "uts_mode": "private", "hostname": "shop-host", "networks": attached, "ports": [],
        "environment": [], "labels": {"team": "shop"}, "mounts": [mount("pgdata")], "service": {}, "devices": [],
        "create_command": ["podman", "run", "-d", "--name=shop", "-v", "pgdata:/data", *words, "localhost/shop:1", "serve"], **given,
    }  # fmt: skip


def planned(given, addresses=(), here=None):
    return plan(given, (VOLUME,), "try", addresses, Here(**{"networks": [BRIDGE, LAN], **(here or {})}))


def created(given, addresses=()):
    return command(given, planned(given, addresses), "shop@before", "localhost/shop:1", GRAMMARS)


def test_it_has_volumes_a_name_and_an_address_of_its_own():
    port = {"host_port": "80", "container_port": 80, "protocol": "tcp"}
    given = configuration("-p", "80:80", "--ip=10.88.0.2", "--mac-address=02:00:00:00:00:01", ports=[port])
    assert created(given, ["10.88.0.9"]) == [
        "create", "--pull=never", "--name=try", "--network=podman:ip=10.88.0.9,interface_name=eth0", "--label=livefleet.handover.clone=shop@before",
        "--volume=try-pgdata:/data", "localhost/shop:1", "serve",
    ]  # fmt: skip
    (volume,) = planned(given).volumes
    assert (volume["image"], volume["mountpoint"], volume["of"], volume["discard"]) == (
        "/srv/images/try-pgdata.img", "/var/lib/handover/mnt/try-pgdata", "pgdata", True,
    )  # fmt: skip
    assert planned(given).left_out == ("port 80/tcp of the host, which is shop's",)


def test_podman_draws_addresses_on_a_network_of_the_host():
    assert "--network=podman:interface_name=eth0" in created(configuration())


def test_a_host_name_that_was_given_stays():
    assert "--hostname=shop-host" in created(configuration("--hostname=shop-host"))
    assert not [word for word in created(configuration()) if word.startswith("--hostname")]


def test_folders_of_a_volume_are_those_of_the_copy():
    given = configuration("-v", "logs:/logs", "-v", PLACE + "/bin:/bin2", mounts=[mount("pgdata"), mount("logs", PLACE + "/logs"), mount("again")])
    assert {each["name"]: each["options"]["device"] for each in planned(given).podman_volumes} == {
        "try-logs": "/var/lib/handover/mnt/try-pgdata/logs",
        "try-again": "/var/lib/handover/mnt/try-pgdata",
    }
    words = created(given)
    assert "--volume=try-logs:/logs" in words
    assert "--volume=/var/lib/handover/mnt/try-pgdata/bin:/bin2" in words


def test_a_volume_that_was_in_no_snapshot_is_refused():
    other = {**VOLUME, "mountpoint": "/mnt/late"}
    with pytest.raises(CloneError, match="late is no part of the snapshot, and the clone would write to it, too"):
        created(configuration("-v", "late:/late", mounts=[mount("pgdata"), mount("late", "/mnt/late", image_volume=other)]))


def test_an_anonymous_volume_is_told():
    given = configuration(mounts=[mount("pgdata"), mount("0a1b", image_volume=None, destination="/cache", directory_volume={"anonymous": True})])
    assert planned(given).left_out == ("the files of /cache, which are no part of a snapshot: the clone has an empty volume there",)


def test_plain_volumes_of_the_snapshot_are_new_ones():
    """One without a name in the command is named where it is mounted. Made again, both have their own names."""
    plain = {"image_volume": None, "volume": {"driver": "local", "options": {}, "labels": {"team": "shop"}}}
    hexes = "0a1b2c3d4e5f" + "0" * 52
    mounts = [mount("logs", directory_volume={"anonymous": False}, **plain), mount(hexes, destination="/cache", directory_volume={"anonymous": True}, **plain)]
    given = configuration("-v", "logs:/logs", "-v", "/cache", mounts=[mount("pgdata"), *mounts])
    folders = [{"name": "logs", "path": "/l"}, {"name": hexes, "path": "/h"}]
    for name, expected in (("try", {"logs": "try-logs", hexes: "try-0a1b2c3d4e5f"}), ("shop", {"logs": "logs", hexes: hexes})):
        made = plan(given, (VOLUME,), name, (), Here(networks=[BRIDGE, LAN]), folders)
        assert {each["of"]: each["name"] for each in made.plain} == expected
        assert made.podman_volumes[0] == {"of": "logs", "name": expected["logs"], "driver": "local", "options": {}, "labels": {"team": "shop"}}
        words = command(given, made, "shop@before", "localhost/shop:1", GRAMMARS)
        assert {"--volume={0}:/logs".format(expected["logs"]), "--volume={0}:/cache".format(expected[hexes])} <= set(words)
        assert made.left_out == ()
    with pytest.raises(CloneError, match="podman has a volume named try-logs on this host"):
        plan(given, (VOLUME,), "try", (), Here(networks=[BRIDGE, LAN], volumes={"try-logs"}), folders)


@pytest.mark.parametrize(
    ("here", "text"),
    [
        ({"containers": [{"Name": "try"}]}, "there is a container named try on this host: give the clone another name"),
        ({"volumes": {"try-pgdata"}}, "podman has a volume named try-pgdata on this host"),
        ({"networks": [LAN]}, "podman has no network named podman any more"),
        ({"addresses": ["10.88.0.9"]}, "the address 10.88.0.9 is that of this host"),
        ({"containers": [{"Name": "db", "NetworkSettings": {"Networks": {"podman": {"IPAddress": "10.88.0.9"}}}}]}, "10.88.0.9 is that of the container db"),
        ({"containers": [{"Name": "off", "Config": {"CreateCommand": ["podman", "run", "--ip", "10.88.0.9", "x"]}}]}, "that of the container off"),
        ({"containers": [{"Name": "off", "Config": {"CreateCommand": ["podman", "run", "--network=podman:mac=a,ip=10.88.0.9"]}}]}, "that of the container off"),
    ],
)
def test_a_name_or_an_address_that_is_taken(here, text):
    with pytest.raises(CloneError, match=text):
        planned(configuration(), ["10.88.0.9"], here)


@pytest.mark.parametrize(
    ("addresses", "text"),
    [
        (["10.88.0.1"], "10.88.0.1 is that of the gateway of the network podman"),
        (["10.99.0.1"], r"10.99.0.1 is an address too many, or in no network of shop: name one of each of 10.88.0.0/16"),
        (["10.88.0.8", "10.88.0.9"], "10.88.0.8 is an address too many"),
        (["ten"], "ten is no address: name one, as 10.88.0.50"),
    ],
)
def test_an_address_that_cannot_be(addresses, text):
    with pytest.raises(CloneError, match=text):
        planned(configuration(), addresses)


def test_a_network_that_leads_out_needs_an_address_of_each_kind():
    given = configuration(networks=[{"name": "lan", "interface": "eth0"}])
    for addresses, subnet in (([], "10.213.0.0/24"), (["10.213.0.9"], "fd00::/64")):
        with pytest.raises(CloneError, match="lan leads out of this host.* name one for the clone in " + subnet):
            planned(given, addresses)
    (attached,) = planned(given, ["fd00::9", "10.213.0.9"]).networks
    assert (attached.addresses, attached.mac) == (("10.213.0.9", "fd00::9"), "")


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (configuration(userns="auto"), "shop has a user namespace of its own"),
        (configuration(network_mode="host"), "shop is on the network of its host"),
        (configuration(network_mode="container:12"), "shop is on the network of another container"),
        (configuration("--pod=web"), "shop cannot be created again: it belongs to a pod"),
    ],
)
def test_two_that_would_share_are_refused(given, text):
    with pytest.raises(CloneError, match=text):
        created(given)


def test_what_its_unit_would_do_podman_does():
    given = configuration("--rm", "--cgroups=split", service={"unit": "shop.service", "made_by_unit": True}, labels={"PODMAN_SYSTEMD_UNIT": "shop.service"})
    assert not {"--rm", "--cgroups=split", "--label=PODMAN_SYSTEMD_UNIT=shop.service"} & set(created(given))
    assert planned(given).left_out == ("the unit shop.service: podman starts the clone",)


def test_addresses_that_podman_refused_are_none():
    container = {"Config": {"CreateCommand": ["podman", "run", "--ip6", "fd00::1", "--network", "a:ip=x,ip6=fd00::2"]}}
    assert addresses_of(container) == {ipaddress.ip_address("fd00::1"), ipaddress.ip_address("fd00::2")}


def again(given, addresses=(), **here):
    made = plan(given, (VOLUME,), "shop", addresses, Here(**{"networks": [BRIDGE, LAN], **here}))
    return made, command(given, made, "shop@backup", "localhost/shop:1", GRAMMARS)


def test_the_container_itself_is_made_again_as_it_was():
    given = configuration(
        "-p", "80:80", "-v", "plain:/plain", "--ip=10.88.0.2", ports=[{"host_port": "80", "container_port": 80, "protocol": "tcp", "host_ip": ""}],
        mounts=[mount("pgdata"), mount("plain", image_volume=None, destination="/plain")], service={"unit": "shop.service"},
    )  # fmt: skip
    made, words = again(given)
    assert words == [
        "create", "--pull=never", "--name=shop", "--hostname=shop-host", "--network=podman:ip=10.88.0.2,mac=02:00:00:00:00:01,interface_name=eth0",
        "--publish=80:80/tcp", "--label=livefleet.handover.clone=shop@backup", "--volume=pgdata:/data", "--volume=plain:/plain", "localhost/shop:1", "serve",
    ]  # fmt: skip
    assert [made.volumes[0][key] for key in ("name", "image", "mountpoint", "podman_volume")] == ["pgdata", VOLUME["image"], PLACE, "pgdata"]
    assert made.left_out == (
        "the files of /plain, which are in no volume of its own: the container has those of this host",
        "the unit shop.service: podman starts the container",
    )


def test_an_address_that_podman_drew_is_drawn_again():
    assert "--network=podman:mac=02:00:00:00:00:01,interface_name=eth0" in again(configuration())[1]
    given = configuration(networks=[{"name": "lan", "ip": "10.213.0.5", "ip6": "fd00::5", "interface": "eth0"}])
    assert again(given)[0].networks[0].addresses == ("10.213.0.5", "fd00::5")
    assert again(given, ["10.213.0.6", "fd00::6"])[0].networks[0].addresses == ("10.213.0.6", "fd00::6")


def test_it_is_not_made_twice():
    with pytest.raises(CloneError, match="there is a container named shop on this host"):
        again(configuration(), containers=[{"Name": "shop"}])


def test_one_that_was_made_again_before_has_the_label_of_the_last_time():
    """podman takes the last of two, and the maker knows its container by it."""
    _made, words = again(configuration("--label=livefleet.handover.clone=shop@older", "--label=mine=1"))
    assert [word for word in words if word.startswith("--label=")] == ["--label=livefleet.handover.clone=shop@backup", "--label=mine=1"]
