# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A container of Docker's that can move live; each test breaks one fact and reads the sentence, and the way that is left."""

from __future__ import annotations

import dataclasses

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._core.move import Move
from ansible_collections.livefleet.handover.plugins.module_utils._drivers import docker_live
from ansible_collections.livefleet.handover.plugins.module_utils._drivers.examiners import EXAMINERS
from ansible_collections.livefleet.handover.plugins.module_utils._podman.processes import Obstacle

GIB = 2**30
OFFLINE = "migrate_mode=offline"


def host():
    return {
        "arch": "x86_64", "kernel": "6.12.1", "cpu_features": ["sse2"], "memory_available": GIB, "huge_pages": 0, "seccomp_filter": False,
        "criu": {
            "version": [4, 2], "check": True, "said": "", "action_script": "/hook", "action_script_works": True, "ghost_limit": 2**20,
            "manage_cgroups": "ignore", "network_lock": {"method": "nftables", "works": True},
        },
        "pcopy": {"silence": {"ok": True, "text": ""}},
        "docker": {"experimental": True, "userns": False, "networks": [{"name": "lan", "driver": "macvlan", "parent": "host0", "mtu": 0}]},
        "mtus": {"host0": 1500}, "gateway_interface": "host0", "processors": [0, 1],
    }  # fmt: skip


@pytest.fixture
def world():
    workload = {
        "exists": True, "held": False, "running": True, "state": "running", "pids": [7], "memory": 4096, "obstacles": [], "seccomp_filter": False,
        "own_mounts": [], "tmpfs": [], "layer_watches": [], "huge_pages": 0, "multicast": [], "cgroup": "/sys/fs/cgroup/docker-1.scope", "divided": False,
        "throttle": {"cgroup": "/sys/fs/cgroup/docker-1.scope", "why": ""}, "criu_configuration": "/etc/criu/runc.conf", "own_network": [],
        "mtus": {"192.0.2.20": ("eth0", 1500)}, "pinned": [],
        "connections": {"192.0.2.20": 1}, "init": False, "namespaces": {"IPC": "private"},
        "networks": [{"name": "lan", "driver": "macvlan", "shared": True, "ip": "192.0.2.20", "ip6": ""}], "ports": [], "drawn_ports": [],
    }  # fmt: skip
    return {"here": {"workload": workload, "host": host(), "problems": []}, "there": {"workload": {}, "host": host(), "problems": []}, "asked": {}}


def found(world):
    move = Move("ledger", "node1", "node2", "live", world["here"], world["there"], **world["asked"])
    return [(name, sentence) for name, check in docker_live.CHECKS.items() for sentence in check(move)]


def put(path, value):
    def break_it(world):
        *keys, last = [int(key) if key.isdigit() else key for key in path.split("/")]
        for key in keys:
            world = world[key]
        world[last] = value

    return break_it


def test_nothing_is_in_the_way(world):
    assert found(world) == []


def on_a_bridge(world):
    world["here"]["workload"]["networks"][0].update(driver="bridge", shared=False)


def with_one_beside(names, count=1, loose=True):
    """It has a connection with the database of its project, and moves at the same moment as these."""

    def change(world):
        on_a_bridge(world)
        world["here"]["workload"].update(connections={"192.0.2.20": count}, peers=[{"address": "192.0.2.20", "port": 5, "peer": "192.0.2.21", "count": 1}])
        world["here"]["host"]["docker"]["networks"][0]["taken"] = [{"address": "192.0.2.21", "container": "shop-db-1"}]
        world["there"]["host"]["takes_over"] = loose
        world["asked"]["beside"] = names

    return change


def test_connections_with_those_that_come_along_live_on(world):
    with_one_beside(["shop-db-1", "shop-web-1"])(world)
    assert found(world) == []


def both_bridged(world):
    """A bridge that the container's address is published on by others: no connections."""
    on_a_bridge(world)
    world["here"]["workload"]["connections"] = {}
    world["there"]["host"]["docker"]["networks"][0].update(driver="bridge", parent="", mtu=1400)


FAULTS = [
    ("experimental", put("there/host/docker/experimental", False), ('"experimental": true', "node2", OFFLINE)),
    ("user_namespace", put("here/host/docker/userns", True), ("userns-remap", "node1", OFFLINE)),
    ("init", put("here/workload/init", True), ("--init", OFFLINE)),
    ("shared_memory", put("here/workload/namespaces/IPC", "shareable"), ("--ipc private", OFFLINE)),
    ("drawn_ports", put("here/workload/drawn_ports", ["80/tcp"]), ("publishes 80/tcp on a port of node1 that Docker draws", OFFLINE)),
    ("connections", on_a_bridge, ("1 TCP connection open", "macvlan")),
    ("connections", with_one_beside(["shop-db-1", "shop-web-1"], 2), ("1 TCP connection open", "macvlan")),
    ("connections", with_one_beside(["shop-web-1"]), ("1 TCP connection open", "macvlan")),
    ("begun_elsewhere", with_one_beside(["shop-db-1"], loose=False), ("1 TCP connection open", "node2 calls all packets", "tcp_loose=1 on node2")),
    ("own_network", put("here/workload/own_network", ["the interface tun0"]), ("the interface tun0", OFFLINE)),
    ("cgroups", put("here/workload/divided", True), ("cgroups below its own", OFFLINE)),
    ("cgroups", put("here/workload/cgroup", ""), ("second version", OFFLINE)),
    ("cgroups", put("there/host/criu/manage_cgroups", ""), ("CRIU on node2", "pcopy_docker_gate=true")),
    ("memory_options", put("asked/lazy_pages", True), ("migrate_lazy_pages", "without")),
    ("silence", put("there/host/pcopy/silence/ok", False), ("cannot be kept silent on node2",)),
    ("criu", put("there/host/criu/version", []), ("CRIU is missing on node2", OFFLINE)),
    ("criu_versions", put("there/host/criu/version", [4, 1]), ("CRIU is 4.2 on node1",)),
    ("kernel", put("there/host/kernel", "6.1.0"), ("the kernel is", OFFLINE)),
    ("action_script", put("there/host/criu/action_script", ""), ("no action script", "node2")),
    ("action_script", put("here/workload/criu_configuration", "/own.conf"), ("org.criu.config",)),
    ("cpu", put("there/host/cpu_features", []), ("lacks sse2", OFFLINE)),
    ("memory", put("there/host/memory_available", 0), ("on node2", OFFLINE)),
    ("huge_pages", put("here/workload/huge_pages", 4096), ("huge pages", OFFLINE)),
    ("multicast", put("here/workload/multicast", ["239.0.0.1"]), ("239.0.0.1", OFFLINE)),
    ("mtu", put("here/workload/mtus", {"192.0.2.20": ("eth7", 9000)}), ("eth7 of ledger has an MTU of 9000, and host0 on node2", "carries 1500", OFFLINE)),
    ("mtu", put("there/host/mtus", {"host0": 1400}), ("the interface eth0 of ledger", "its network lan is, carries 1400")),
    ("mtu", both_bridged, ("the option mtu of the network on node2", "carries 1400")),
    ("own_mounts", put("here/workload/own_mounts", ["/x (fuse)"]), ("/x (fuse)", OFFLINE)),
    ("io_uring", put("here/workload/obstacles", [{"check": "io_uring", "process": "pg", "pid": 7, "detail": "", "size": 0}]), ("io_uring", OFFLINE)),
]


@pytest.mark.parametrize(("name", "break_it", "said"), FAULTS, ids=[each[0] for each in FAULTS])
def test_each_obstacle_is_named_with_the_way_out(world, name, break_it, said):
    break_it(world)
    [(check, sentence), *others] = found(world)
    assert (check, [each for each, _sentence in others if each != name]) == (name, [])
    assert all(word in sentence for word in said), sentence
    assert EXAMINERS["docker"].unknown_names([name]) == []


def test_a_process_on_its_way_into_the_container_is_no_obstacle(tmp_path):
    """A health check, or a docker exec, that the look finds between two namespaces."""
    for pid in (7, 8):
        (tmp_path / str(pid)).mkdir()
    seen = [Obstacle("nested_namespaces", name, pid, "time") for name, pid in (("own", 7), ("runc:[2:INIT]", 8), ("ended", 9))]
    assert docker_live.dumped(seen, [{"process": "runc:[2:INIT]", "pid": 8}], str(tmp_path)) == seen[:1]


LISTED = """\
table ip nat {
\tchain DOCKER_OUTPUT {
\t\tip daddr 127.0.0.11 tcp dport 53 counter packets 0 bytes 0 dnat to 127.0.0.11:37367
\t}

\tchain OUTPUT {
\t\ttype nat hook output priority dstnat; policy accept;
\t\tip daddr 127.0.0.11 counter packets 0 bytes 0 jump DOCKER_OUTPUT
\t}

\tchain DOCKER_POSTROUTING {
\t\tip saddr 127.0.0.11 tcp sport 37367 counter packets 0 bytes 0 snat to :53
\t}
}
"""


def test_a_rule_of_the_containers_own_beside_dockers_is_seen():
    assert docker_live.resolver_alone(LISTED)
    assert not docker_live.resolver_alone(LISTED.replace("\t\tip saddr", "\t\tmasquerade\n\t\tip saddr"))


def test_processors_that_the_destination_lacks_are_told(world):
    put("here/workload/pinned", [{"process": "db", "pid": 7, "processors": [1, 9]}])(world)
    move = Move("ledger", "node1", "node2", "live", world["here"], world["there"])
    assert docker_live.told(move) == [
        "db (pid 7) in ledger is bound to processors of node1, of which node2 does not have 9: it runs there on the others, or on all"
    ]
    assert docker_live.told(dataclasses.replace(move, mode="offline")) == []
