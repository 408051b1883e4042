# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Two hosts between which the ledger can move; each test breaks one fact and reads the sentence."""

from __future__ import annotations

import copy
import json
import pathlib

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._core.move import Move
from ansible_collections.livefleet.handover.plugins.module_utils._docker import checks, facts, network_twin, told
from ansible_collections.livefleet.handover.plugins.module_utils._drivers.examiners import EXAMINERS

RECORDED = pathlib.Path(__file__).parent / "recorded"
LEDGER = json.loads((RECORDED / "docker-26.1-inspect.json").read_text(encoding="utf-8"))[0]
NETWORKS = json.loads((RECORDED / "docker-26.1-networks.json").read_text(encoding="utf-8"))
GIB = 2**30


def host(address):
    return {
        "arch": "x86_64", "clock": 1000.0, "systemd": [257], "interfaces": ["lo", "host0"],
        "addresses": [{"address": address, "prefix": 24, "interface": "host0"}],
        "sessions": {"path": "/var/lib/handover/sessions", "free": GIB},
        "pcopy": {"installed": True, "interface": 99, "protocol": 1, "sessions": []}, "listening": [],
        "docker": {
            "installed": True, "path": "/usr/bin/docker", "version": [26, 1, 5], "storage_driver": "overlay2", "gate": "", "runtimes": ["runc"],
            "store": {"path": "/var/lib/docker", "free": GIB}, "containers": [], "volumes": [], "images": [{"id": LEDGER["Image"], "names": []}],
            "networks": [{"name": "lan", "driver": "macvlan", "subnets": ["192.0.2.0/24"], "parent": "host0", "taken": []}],
        },
    }  # fmt: skip


@pytest.fixture
def world():
    workload = {"exists": True, "held": False, **facts.facts_of(copy.deepcopy(LEDGER), NETWORKS)}
    workload.update(unaccounted=[], required_by=[], layer=4096, memory=0)
    workload["bundle_seen"] = workload["bundle"]
    workload["log"]["size"] = 0
    workload["image"].update(size=GIB, named=True)
    for mount in workload["mounts"]:
        mount["volume"] = {"driver": "local", "options": {}, "labels": {}}
        mount["directory_volume"] = {"name": mount["name"], "path": mount["source"], "size": 8192, "anonymous": False, "shared_with": []}
    here, there = host("192.0.2.1"), host("192.0.2.2")
    here["docker"]["containers"] = [{"name": "ledger", "id": "1", "state": "running"}]
    return {
        "here": {"workload": workload, "host": here, "problems": []},
        "there": {"workload": {"exists": False, "running": False, "held": False}, "host": there, "problems": []},
        "mode": "offline",
        "source": "node1",
        "binds": {},
    }


def move(world):
    return Move("ledger", world["source"], "node2", world["mode"], world["here"], world["there"], **world["binds"])


def put(path, value):
    def break_it(world):
        *keys, last = [int(key) if key.isdigit() else key for key in path.split("/")]
        for key in keys:
            world = world[key]
        world[last] = value

    return break_it


FILES = "/srv/files"
AT_PATH = {
    "kind": "directory", "real": FILES, "empty": False, "size": 4096, "missing": [], "inside": "directory", "kept": False, "fstype": "ext4", "mounted": False,
    "mounts_below": [], "digest": "", "users": [], "flags": [], "flags_missing": [], "path": "/srv", "free": GIB, "device": 7,
}  # fmt: skip
NOTHING_THERE = {**AT_PATH, "kind": "", "size": 0, "missing": [FILES]}


def bound(asked, here=(), there=(), **mount):
    """It mounts a folder of the host, of which this is known on both."""

    def change(world):
        bind = {"type": "bind", "name": "", "source": FILES, "destination": "/files", "driver": "", "read_only": False, "propagation": "rprivate"}
        bind.update(volume=None, directory_volume=None, kind="directory", names=1, replaced=False)
        world["here"]["workload"]["mounts"].append({**bind, **mount})
        world["binds"] = {"bind_mounts": asked, "binds_here": {FILES: {**AT_PATH, **dict(here)}}, "binds_there": {FILES: {**NOTHING_THERE, **dict(there)}}}

    return change


FLOATS = "192.0.2.50"


def published(address):
    """It is on a bridge, and its port 80 is the host's 8080 on an address."""

    def change(world):
        port = {"container_port": 80, "protocol": "tcp", "host_port": "8080", "host_ip": address}
        world["here"]["workload"].update(ports=[port], networks=[])

    return change


def listening(world):
    published("")(world)
    world["there"]["host"]["listening"] = [{"address": "192.0.2.2", "port": 8080, "protocol": "tcp"}]


def floats(beside=(), binds=True):
    """The port is published on an address that moves along."""

    def change(world):
        published(FLOATS)(world)
        world["binds"] = {"floating_addresses": [FLOATS]}
        world["here"]["workload"]["beside"] = list(beside)
        world["here"]["host"]["addresses"].append({"address": FLOATS, "prefix": 24, "interface": "host0", "secondary": True})
        world["there"]["host"]["binds_anywhere"] = {"4": binds, "6": binds}

    return change


def another_gateway(world):
    world["mode"] = "live"
    world["here"]["workload"].update(pids=[7])
    world["here"]["workload"]["networks"][0].update(shared=False, gateways=["192.0.2.7"])
    world["here"]["host"]["addresses"].append({"address": "192.0.2.7", "prefix": 24, "interface": "br0"})


def in_dockers_own(world):
    bound("carry")(world)
    world["there"]["host"]["docker"]["store"]["path"] = "/srv"


def test_a_bind_mount_that_is_carried_moves(world):
    bound("carry")(world)
    plan = move(world)
    assert checks.examine(plan) == ([], []) and checks.twin(plan)["folders"] == [FILES]
    (told_of,) = told.told(plan)
    assert "what node1 has of it is kept there as /srv/files.migrated" in told_of
    directories = EXAMINERS["docker"].directories(plan)
    assert directories[-1] == {"name": FILES, "path": FILES, "size": 4096, "file": False, "bind": True} and len(directories) == len(plan.directories) + 1


def test_a_bind_mount_that_is_the_same_stays_where_it_is(world):
    bound("same", here={"digest": "1f"}, there={**AT_PATH, "digest": "1f"}, read_only=True)(world)
    plan = move(world)
    assert checks.examine(plan) == ([], []) and checks.twin(plan)["folders"] == [] and told.told(plan) == []
    assert EXAMINERS["docker"].directories(plan) == plan.directories


def test_nothing_is_in_the_way(world):
    assert checks.examine(move(world)) == ([], [])
    assert checks.images(move(world)) == [] and told.told(move(world)) == []
    assert checks.twin(move(world)) == {
        "made": True, "folders": [], "secrets": [], "networks": [], "addresses": {},
        "volumes": sorted(mount["name"] for mount in world["here"]["workload"]["mounts"]),
    }  # fmt: skip


SHOP = {
    "Name": "shop_default", "Driver": "bridge", "Scope": "local", "Options": {}, "Labels": {"com.docker.compose.project": "shop"},
    "IPAM": {"Driver": "default", "Options": None, "Config": [{"Subnet": "172.18.0.0/16", "Gateway": "172.18.0.1"}]},
}  # fmt: skip
SHOP_THERE = {
    "name": "shop_default", "driver": "bridge", "subnets": ["172.18.0.0/16"], "parent": "", "mtu": 1500, "taken": [], "claimed": False,
    "definition": network_twin.definition(SHOP),
}  # fmt: skip


def of_compose(*changes, live=True, there=None):
    """It is on a bridge of compose's, where Docker drew its address."""

    def change(world):
        world["here"]["workload"].update(
            networks=facts.networks_of({"NetworkSettings": {"Networks": {"shop_default": {"IPAddress": "172.18.0.3"}}}}, [SHOP]), pids=[7]
        )
        world["mode"] = "live" if live else "offline"
        world["there"]["host"]["docker"]["networks"] += [{**SHOP_THERE, **there}] if there is not None else []
        for each in changes:
            each(world)

    return change


def test_a_bridge_that_the_destination_lacks_is_made_and_the_address_kept(world):
    of_compose()(world)
    plan = move(world)
    assert checks.examine(plan) == ([], [])
    twin = checks.twin(plan)
    assert (twin["networks"], twin["addresses"]) == (["shop_default"], {"shop_default": {"IPv4Address": "172.18.0.3"}})
    assert told.told(plan) == ["ledger keeps 172.18.0.3 on the network shop_default, from now on as by `docker run --ip`"]


def test_one_that_is_started_again_keeps_no_address_that_docker_drew(world):
    of_compose(live=False, there={"subnets": ["172.19.0.0/16"]})(world)
    plan = move(world)
    assert checks.examine(plan) == ([], []) and (checks.twin(plan)["networks"], checks.twin(plan)["addresses"]) == ([], {})
    assert told.told(plan) == ["ledger gets another address on the network shop_default, as at any start"]


def test_a_network_that_another_move_has_made_is_needed_as_well(world):
    of_compose(there={})(world)
    assert checks.twin(move(world))["networks"] == []
    world["there"]["host"]["docker"]["networks"][-1]["claimed"] = True
    assert checks.examine(move(world)) == ([], []) and checks.twin(move(world))["networks"] == ["shop_default"]


def test_a_drawn_subnet_is_in_the_way_only_where_something_is_on_the_network(world):
    of_compose(put("there/host/docker/drawn_subnets", {"shop_default": ["4"]}), there={})(world)
    assert checks.examine(move(world)) == ([], [])
    world["there"]["host"]["docker"]["networks"][-1]["taken"] = [{"address": "172.18.0.2", "container": "other"}]
    (finding,) = checks.examine(move(world))[0]
    assert finding.check == "fixed_address" and "which it has drawn itself and other is on" in finding.sentence


def test_a_macvlan_that_the_destination_lacks_is_made_on_its_interface(world):
    world["there"]["host"]["docker"]["networks"] = []
    assert checks.examine(move(world)) == ([], []) and checks.twin(move(world))["networks"] == ["lan"]


def no_networks(*changes):
    def change(world):
        world["there"]["host"]["docker"]["networks"] = []
        for each in changes:
            each(world)

    return change


BASICS = [
    ("same_host", put("source", "node2"), "ledger is on node2 already, and that is also the destination"),
    ("docker", put("there/host/docker/installed", False), "Docker does not run on node2: install it there"),
    ("docker", put("here/host/docker/path", ""), "the program docker is missing on node1: install the package docker-cli"),
    ("workload", put("here/workload/exists", False), "Docker has no container named ledger on node1: name one of its containers (ledger)"),
    ("name", put("here/workload/name", "shop"), "ledger is the container shop on node1: name it shop"),
    ("processes", put("mode", "live"), "the processes of ledger on node1 could not be looked at"),
    ("gate", put("there/host/docker/gate", "containerd starts /usr/sbin/runc"), "nothing would keep Docker on node2 from starting ledger while the other host"),
    ("gate", put("here/workload/bundle_seen", "/elsewhere"), "keeps ledger in /elsewhere, and the helper knows it by"),
]
FAULTS = [
    ("running", lambda world: world["here"]["workload"].update(running=False, state="paused"), "is paused on node1 and not running: unpause it with `docker"),
    ("running", lambda world: world.update(mode="live") or world["here"]["workload"].update(running=False, state="exited", restart_policy="no"), "no memory"),
    ("restart_policy", lambda world: world["here"]["workload"].update(running=False, state="exited"), "by its restart policy always: take that off with"),
    ("systemd_unit", put("here/workload/units", ["shop.service"]), "the systemd unit shop.service on node1 starts ledger, and could start it there while"),
    ("systemd_unit", put("there/workload/units", ["shop.service"]), "the systemd unit shop.service on node2 starts ledger"),
    ("project_units", put("here/workload/project_units", [{"unit": "shop.service", "runs": False}]), "disable it with `systemctl disable shop.service`"),
    ("project_units", put("here/workload/project_units", [{"unit": "shop.service", "runs": True}]), "stop and disable it, start the project by `up --detach`"),
    ("auto_remove", put("here/workload/auto_remove", True), "was started with --rm"),
    ("namespaces", put("here/workload/namespaces/network", "host"), "uses the network namespace of the host"),
    ("namespaces", put("here/workload/namespaces/IPC", "container:x"), "uses the IPC namespace of another container"),
    ("links", put("here/workload/links", ["db"]), "was created with --link or --volumes-from (db)"),
    ("required_by", put("here/workload/required_by", ["sidecar (--pid container:ledger)"]),
     "ledger cannot leave node1, where others were made with something of it and would stay behind: sidecar (--pid container:ledger): create them without"),
    ("swarm", put("here/workload/labels", {"com.docker.swarm.service.id": "x"}), "is a task of a swarm"),
    ("devices", put("here/workload/devices", ["/dev/fuse"]), "has devices of node1 (/dev/fuse)"),
    ("storage_driver", put("there/host/docker/storage_driver", "vfs"), "Docker on node2 keeps containers with the storage driver vfs"),
    ("directories", put("here/workload/mounts/0/directory_volume", None), "mounts the volume ledgerdata on /data, which is no plain volume of Docker's"),
    ("directories", bound("refuse"), "of node1, which would stay behind: have it copied to node2 with handover_bind_mounts=carry"),
    ("directories", bound("carry", kind="socket"), "mounts the path /srv/files on /files, which is no plain volume of Docker's"),
    ("bind_mounts", bound("carry", here={"users": ["web"]}), "ledger shares the directory /srv/files on node1 with web"),
    ("bind_mounts", in_dockers_own, "is where Docker on node2 keeps its own files (/srv)"),
    ("bind_mounts_same", bound("same"), "ledger writes to the directory /srv/files of node1"),
    ("bind_mounts_taken", bound("carry", there=AT_PATH), "/srv/files exists on node2 already, where the directory of ledger is to be"),
    ("file_flags", bound("carry", here={"flags": [{"name": "compressed", "path": "/srv/files/a", "carried": False}]}), "has the flag 'compressed'"),
    ("space", bound("carry", there={"free": 1}), "in /srv on node2 for the directory /srv/files"),
    ("directory_volumes", put("here/workload/mounts/0/directory_volume/shared_with", ["web"]), "shares the volume ledgerdata on node1 with web"),
    ("volumes", put("there/host/docker/volumes", ["ledgerdata"]), "has a volume named ledgerdata already, and what is in it is never overwritten"),
    ("already_there", put("there/workload", {"exists": True, "held": False, "state": "exited"}), "node2 has a container named ledger already, which is exited"),
    ("arch", put("there/host/arch", "aarch64"), "node1 is x86_64 and node2 is aarch64, which cannot run the programs of ledger"),
    ("space", put("there/host/docker/store/free", 1), "for its volumes, layer and image, and 1 B are free there"),
    ("networks", no_networks(put("here/workload/networks/0/definition", {})), "Docker on node2 has no network named lan, which ledger is on: create it there"),
    ("networks", no_networks(put("here/workload/networks/0/definition/options", {})), "which ledger is on: create it there with the driver macvlan"),
    ("networks", no_networks(put("here/workload/networks/0/definition/options/parent", "eth9.7")), "node2 has no interface eth9.7 to make it on"),
    ("networks", no_networks(put("here/workload/networks/0/ip", "")), "has no fixed address on the network lan"),
    ("networks", put("there/host/docker/networks/0/name", "wan"), "cannot be made on node2: Docker's network wan there is on its interface host0"),
    ("networks", of_compose(put("there/host/addresses/0/address", "172.18.7.1")), "its subnet 172.18.0.0/16 holds addresses of the interface host0 there"),
    ("networks", of_compose(there={"name": "other"}), "cannot be made on node2: Docker's network other there has its subnet 172.18.0.0/16"),
    ("networks", of_compose(put("here/workload/networks/0/definition/options", {"com.docker.network.bridge.name": "host0"})),
     "it is to be on the bridge host0, and an interface of that name is there"),
    ("networks", of_compose(there={"subnets": ["172.19.0.0/16"]}), "is 172.18.0.0/16 on node1 and 172.19.0.0/16 on node2, so ledger could not"),
    ("networks", of_compose(there={"definition": {**SHOP_THERE["definition"], "internal": True}}),
     "the network shop_default is not the same on both hosts: its word internal is off on node1 and on on node2: remove it on node2, and the move makes it"),
    ("fixed_address", of_compose(put("here/workload/networks/0/name", "bridge"), there={"name": "bridge"}),
     "has no fixed address on the network bridge, and would get another on node2 while it runs: put it on a network made by `docker network create"),
    ("addresses", of_compose(there={"taken": [{"address": "172.18.0.3", "container": "web"}]}), "which the container web on node2 uses"),
    ("networks", put("here/workload/networks/0/driver", "overlay"), "of the driver overlay, and only macvlan, ipvlan, bridge can move"),
    ("networks", put("there/host/docker/networks/0/driver", "bridge"), "is made by the driver macvlan on node1 and by bridge on node2"),
    ("networks", put("there/host/docker/networks/0/subnets", ["198.51.100.0/24"]), "so ledger could not keep its address"),
    ("networks", put("there/host/docker/networks/0/parent", "eth9"), "on the interface eth9, which is not there"),
    ("networks", put("here/workload/networks/0/ip", ""), "has no fixed address on the network lan"),
    ("addresses", put("there/host/addresses/0/address", "192.0.2.20"), "which is also an address of node2 itself"),
    ("addresses", put("there/host/docker/networks/0/taken", [{"address": "192.0.2.20", "container": "web"}]), "which the container web on node2 uses"),
    ("ports", published("198.51.100.9"), "ledger publishes port 8080/tcp on 198.51.100.9, an address of node1 that node2 does not have"),
    ("ports", listening, "ledger publishes port 8080/tcp, on which something on node2 listens already"),
    ("floating_addresses", floats(beside=[{"name": "mail", "published_on": [FLOATS]}]), "mail publishes ports on 192.0.2.50 too, which would leave node1"),
    ("floating_addresses", floats(binds=False), "Docker on node2 could not reserve the ports of 192.0.2.50 before 192.0.2.50 is there"),
    ("gateway", another_gateway, "ledger leaves its network lan by 192.0.2.7, which is not the gateway of lan on node2"),
    ("fixed_address", of_compose(put("there/host/docker/drawn_subnets", {"shop_default": ["4"]}), there={"taken": [{"address": "", "container": "web"}]}),
     "Docker on node2 fixes none in the IPv4 subnet of its network shop_default, which it has drawn itself and web is on"),
    ("docker_version", put("here/host/docker/version", [28, 0, 0]), "Docker is 28.0.0 on node1 and 26.1.5 on node2, which is older"),
    ("runtime", put("here/workload/runtime", "runsc"), "runs under the runtime runsc"),
    ("pcopy", put("there/host/pcopy/installed", False), "the helper pcopy is missing on node2"),
    ("systemd", put("here/host/systemd", []), "node1 does not run systemd"),
    ("clock", put("here/host/clock", 0.0), "the clocks of node1 and node2 are about 1000 s apart"),
    ("unanswered", put("here/problems", ["no answer"]), "node1 could not be examined in full: no answer"),
    ("inventory:HostConfig.New", put("here/workload/unaccounted", ["HostConfig.New"]), "Docker on node1 calls HostConfig.New"),
]


@pytest.mark.parametrize(("name", "break_it", "said"), BASICS + FAULTS, ids=[each[0] for each in BASICS + FAULTS])
def test_each_fault_is_named(world, name, break_it, said):
    break_it(world)
    found, _ignored = checks.examine(move(world))
    assert [finding.check for finding in found] == [name] * len(found) and len(found) >= 1
    assert said in found[0].sentence


@pytest.mark.parametrize(("name", "break_it", "said"), FAULTS, ids=[each[0] for each in FAULTS])
def test_a_finding_can_be_ignored_by_its_name(world, name, break_it, said):
    break_it(world)
    found, ignored = checks.examine(move(world), [name])
    assert found == [] and said in ignored[0].sentence
    assert checks.unknown_names([name]) == [] and checks.unknown_names(["no such"]) == ["no such"]


def test_every_check_has_a_fault_that_it_finds():
    assert {*checks.BASICS, *checks.CHECKS} - {name for name, _break, _said in BASICS + FAULTS} == {"locked"}


def test_a_session_of_another_move_is_in_the_way(world):
    session = {"id": "other", "role": "source", "workload": "ledger", "ended": False, "running": True, "state": "presync"}
    world["there"]["host"]["pcopy"]["sessions"] = [session]
    assert [finding.check for finding in checks.examine(move(world))[0]] == ["locked"]


def test_an_image_that_is_missing_takes_room_for_its_archive_too(world):
    world["there"]["host"]["docker"]["images"] = []
    sentences = [finding.sentence for finding in checks.examine(move(world))[0]]
    archive = "the archive of its image"
    assert [sentence.rpartition(" for ")[2].partition(",")[0] for sentence in sentences] == ["its volumes", archive, archive]
    assert checks.images(move(world))[0]["reference"] == "localhost/handover/tools:lab"
    world["there"]["host"]["docker"]["images"] = [{"id": "sha256:other", "names": ["localhost/handover/tools:lab"]}]
    assert checks.images(move(world))[0]["reference"] == LEDGER["Image"]


def test_state_that_stays_behind_is_told(world):
    workload = world["here"]["workload"]
    workload.update(state="exited", exec_sessions=2)
    workload["log"]["size"] = 4096
    workload["tmpfs"] = [{"place": "/scratch", "size": 2**20, "attributes": ""}]
    workload["networks"][0].update(shared=False, ip="")
    said = told.told(move(world))
    words = ("docker exec", "goes with the container", "will call it created", "another address", "holds 1 MiB, which are gone when it is stopped")
    assert [any(word in sentence for sentence in said) for word in words] == [True] * 5


def test_a_tmpfs_of_one_that_moves_live_is_carried_or_told(world):
    scratch = {"place": "/scratch", "size": 8 * 2**20, "attributes": "", "device": "0:62", "inside": ""}
    world["mode"] = "live"
    world["here"]["workload"].update(pid=4711, tmpfs=[scratch, {**scratch, "place": "/small", "size": 4096, "device": "0:63"}])
    carried = EXAMINERS["docker"].tmpfs(move(world))
    assert [(each["name"], each["path"]) for each in carried] == [("tmpfs:/scratch", "/proc/4711/root/scratch")]
    assert [sentence for sentence in told.told(move(world)) if "tmpfs" in sentence] == [
        "the tmpfs /small of ledger holds 4 KiB, which CRIU packs in the pause: so little is not worth more"
    ]


def test_a_live_move_is_looked_at_with_the_addresses_that_it_keeps(world):
    world["mode"] = "live"
    world["here"]["workload"].update(pids=[7])
    world["here"]["workload"]["networks"][0].update(shared=False, ip="", own_ip="192.0.2.77", gateways=[])
    world["there"]["host"]["docker"]["networks"][0]["taken"] = [{"address": "192.0.2.77", "container": "web"}]
    assert [finding.check for finding in checks.examine(move(world))[0]] == ["addresses"]
    assert checks.twin(move(world))["addresses"] == {"lan": {"IPv4Address": "192.0.2.77"}}
    world["mode"] = "offline"
    assert checks.examine(move(world))[0] == [] and checks.twin(move(world))["addresses"] == {}


def test_those_that_were_made_with_something_of_it_are_found():
    ledger = {"Id": "abcdef0123456789", "Name": "/ledger", "HostConfig": {"PidMode": "container:ledger"}}
    others = [
        {"Id": "1", "Name": "/net", "HostConfig": {"NetworkMode": "container:abcdef0123456789"}},
        {"Id": "2", "Name": "/pid", "HostConfig": {"PidMode": "container:ledger"}},
        {"Id": "3", "Name": "/ipc", "HostConfig": {"IpcMode": "container:abcdef012345"}},
        {"Id": "4", "Name": "/files", "HostConfig": {"VolumesFrom": ["db", "ledger:ro"]}},
        {"Id": "5", "Name": "/link", "HostConfig": {"Links": ["/ledger:/link/db"]}},
        {"Id": "6", "Name": "/free", "HostConfig": {"PidMode": "host", "IpcMode": "private", "NetworkMode": "container:other", "VolumesFrom": ["ledger2"]}},
        {"Id": "7", "Name": "/bare"},
    ]
    assert facts.needed_by(ledger, [ledger, *others]) == [
        "files (--volumes-from ledger)", "ipc (--ipc container:ledger)", "link (--link ledger)", "net (--network container:ledger)",
        "pid (--pid container:ledger)",
    ]  # fmt: skip


def test_the_mtu_of_a_network():
    assert facts.mtu_of({"Driver": "macvlan"}) == 0
    assert facts.mtu_of({"Driver": "bridge"}) == facts.mtu_of({"Driver": "bridge", "Options": {}}) == 1500
    assert facts.mtu_of({"Driver": "bridge", "Options": {"com.docker.network.driver.mtu": "9000"}}) == 9000
