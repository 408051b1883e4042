# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.livefleet.handover.plugins.filter.live_members import live_members, live_network, live_trees


def member(name, infra=False, **more):
    static = "/containers/" + name
    return {
        "name": name, "id": name * 8, "infra": infra, "pid": 7, "static_dir": static, "checkpoint_dir": static + "/checkpoint", "shm_dir": static + "/shm",
        "upper_dir": static + "/upper", "cgroup": "/cgroups/" + name, "ipc_mode": "container:infra", "uts_mode": "container:infra", "divided": False,
        "network_namespace": "/run/netns/pod", "networks": [{"interface": "eth0"}], **more,
    }  # fmt: skip


INFRA = member("9999-infra", infra=True, ipc_mode="shareable", uts_mode="")
MEMBERS = [INFRA, member("db"), member("job"), member("web", ipc_mode="private", divided=True)]
RAN = ["db", "web"]


def test_those_that_ran_are_dumped_and_no_others():
    dumped = live_members(MEMBERS, "source", "/podman", RAN, "60")
    assert [each["name"] for each in dumped] == RAN
    assert dumped[0]["freeze"]["argv"] == ["/podman", "container", "checkpoint", "--keep", "--tcp-established", "--file-locks", "db"]
    assert dumped[0]["freeze"]["cgroup"] == "/cgroups/db"
    assert [each["freeze"]["gate"] for each in dumped] == ["/containers/db/checkpoint", "/containers/web/checkpoint"]
    assert [each["freeze"]["hold"] for each in dumped] == ["/usr/local/libexec/handover/hold"] * 2


def test_each_joins_the_namespaces_that_it_shared():
    restored = live_members(MEMBERS, "destination", "/podman", RAN, 60, [], "/netavark")
    assert [each["joins"] for each in restored] == [{"ipc": "/proc/7/ns/ipc", "uts": "/proc/7/ns/uts"}, {"uts": "/proc/7/ns/uts"}]
    assert restored[0]["restore"]["container"] == "db" * 8
    assert restored[0]["restore"]["hold"], "its namespaces are joined by what stands in for CRIU"


def test_a_member_that_has_a_unit_is_restored_in_its_cgroup():
    restored = live_members(MEMBERS, "destination", "/podman", RAN, 60, [], "/netavark", {"web": "/sys/fs/cgroup/system.slice/web.service"})
    assert [each["restore"]["argv"][:4] for each in restored] == [
        ["/podman", "container", "restore", "--keep"],
        ["/usr/local/libexec/handover/pcopy", "internal", "within", "/sys/fs/cgroup/system.slice/web.service"],
    ]


def test_the_criu_of_a_member_whose_tmpfs_is_carried_finds_another_tar():
    carried = [{"name": "tmpfs:db:/scratch", "member": "db"}]
    dumped = live_members(MEMBERS, "source", "/podman", RAN, 60, carried)
    restored = live_members(MEMBERS, "destination", "/podman", RAN, 60, carried, "/netavark")
    carry, hold = "/usr/local/libexec/handover/carry", "/usr/local/libexec/handover/hold"
    assert [each["freeze"]["hold"] for each in dumped] == [carry, hold]
    assert [each["restore"]["hold"] for each in restored] == [carry, hold]
    assert restored[0]["restore"]["env"]["HANDOVER_NETAVARK"] == "/netavark"


def test_memory_that_has_a_path_travels_once():
    trees = live_trees(MEMBERS, RAN, staged=True)
    assert [(tree["name"], tree["stage"]) for tree in trees] == [
        ("layer-db", "presync"), ("layer-job", "presync"), ("layer-web", "presync"), ("shm-infra", "freeze"), ("shm-web", "freeze"),
        ("dump-db", "dump"), ("dump-web", "dump"),
    ]  # fmt: skip
    assert trees[3]["path"] == "/containers/9999-infra/shm"
    assert [tree["name"] for tree in live_trees(MEMBERS, RAN)] == [tree["name"] for tree in trees]
    assert not any("stage" in tree for tree in live_trees(MEMBERS, RAN))


@pytest.mark.parametrize(
    ("networks", "side", "only", "expected"),
    [
        ([{"interface": "eth0"}], "source", False, {"namespace": "/run/netns/pod"}),
        ([{"interface": "eth0"}], "source", True, {"namespace": "/run/netns/pod", "only": ["lo", "eth0"]}),
        ([{"interface": ""}], "destination", False, {"namespace": "/run/netns/pod", "silent": True}),
        # In a namespace without a way out there is nothing to keep silent.
        ([], "destination", False, {"namespace": "/run/netns/pod", "silent": False}),
    ],
)
def test_the_network_is_that_of_the_infra_container(networks, side, only, expected):
    assert live_network([{**INFRA, "networks": networks}, *MEMBERS[1:]], side, only) == expected


def test_a_container_alone_has_none_of_it():
    assert (live_members([], "source", "/podman", [], 60), live_trees([], []), live_network([], "source")) == ([], [], {})
