# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.livefleet.handover.plugins.filter.members import in_turn, member_trees
from ansible_collections.livefleet.handover.plugins.module_utils._podman import groups, pod_command
from ansible_collections.livefleet.handover.plugins.module_utils._podman.create_command import CommandError, Grammar, Identity, parse, twin, unsupported
from ansible_collections.livefleet.handover.plugins.module_utils._podman.group_facts import essence_of_member, group_facts

INFRA, DB, WEB, OTHER = ("{0}".format(digit) * 64 for digit in "1234")
POD = "9" * 64


def listed(name, identifier, **more):
    return {"Names": [name], "Id": identifier, "PodName": "", "IsInfra": False, "Labels": None, **more}


def inspected(name, identifier, depends=(), volumes=(), pod="", infra=False, project=""):
    return {
        "Name": name, "Id": identifier, "Dependencies": list(depends), "Pod": pod, "IsInfra": infra,
        "Mounts": [{"Type": "volume", "Name": volume} for volume in volumes],
        "Config": {"Labels": {"io.podman.compose.project": project} if project else None},
    }  # fmt: skip


LISTED = [
    listed("9999-infra", INFRA, PodName="front", IsInfra=True),
    listed("web", WEB, PodName="front"),
    listed("shop_db_1", DB, Labels={"com.docker.compose.project": "shop"}),
    listed("other", OTHER),
]


@pytest.mark.parametrize(
    ("word", "kind", "names"),
    [
        ("front", groups.POD, ["web"]),
        ("shop", groups.PROJECT, ["shop_db_1"]),
        ("web+other", groups.TOGETHER, ["other", "web"]),
        ("web+gone", "", []),
        ("nothing", "", []),
    ],
)
def test_a_word_names_a_group(word, kind, names):
    found, members = groups.resolve(LISTED, word)
    assert (found, groups.names(members)) == (kind, names)


@pytest.mark.parametrize(
    ("inspects", "projects", "together", "name"),
    [
        ([inspected("a", DB), inspected("b", WEB)], True, [["a"], ["b"]], "a"),
        ([inspected("b", WEB, depends=[DB]), inspected("a", DB)], True, [["a", "b"]], "a+b"),
        ([inspected("b", WEB, volumes=["data"]), inspected("a", DB, volumes=["data", "more"])], True, [["a", "b"]], "a+b"),
        ([inspected("x-infra", INFRA, pod=POD, infra=True), inspected("b", WEB, pod=POD, depends=[INFRA])], True, [["x-infra", "b"]], "front"),
        ([inspected("a", DB, project="shop"), inspected("b", WEB, project="shop")], True, [["a", "b"]], "shop"),
        ([inspected("a", DB, project="shop"), inspected("b", WEB, project="shop")], False, [["a"], ["b"]], "a"),
    ],
)
def test_what_cannot_be_parted_is_one_unit(inspects, projects, together, name):
    units = groups.units(inspects, projects=projects)
    assert sorted([each["Name"] for each in unit] for unit in units) == sorted(together)
    assert name in [groups.name_of_unit(unit, {POD: "front"}) for unit in units]


def of_project(name, identifier, depends=(), volumes=(), pod="", project="trade", running=True, **host):
    return {**inspected(name, identifier, depends, volumes, pod, project=project), "HostConfig": host, "State": {"Running": running}}


@pytest.mark.parametrize(
    ("web", "expected"),
    [
        ({}, "trade"),
        ({"pod": ""}, "trade"),
        ({"project": "other"}, ""),
        ({"project": ""}, ""),
        ({"volumes": ["data"]}, ""),
        ({"running": False}, ""),
        ({"depends": [DB, OTHER]}, ""),
        ({"pod": "8" * 64}, ""),
        ({"NetworkMode": "container:" + DB}, ""),
        ({"IpcMode": "container:" + DB}, ""),
        ({"VolumesFrom": ["db"]}, ""),
    ],
)
def test_those_of_a_project_move_side_by_side_if_each_has_its_own(web, expected):
    unit = [of_project("db", DB, volumes=["data", "data"], pod=POD), of_project("web", WEB, **{"depends": [DB], "pod": POD, **web})]
    assert groups.can_part(unit, {"8" * 64}) == expected


_VALUES = ("name", "pod", "pod-id-file", "requires", "volumes-from", "network", "publish", "hostname", "pull")
RUN = Grammar({**dict.fromkeys(_VALUES, True), "detach": False}, {"d": "detach"})
PODMAN = Grammar({"log-level": True}, {})


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--pod", POD[:12]], "--pod=front"),
        (["--pod-id-file", "/run/front-pod.pod-id"], "--pod=front"),
        (["--requires", "{0},third".format(DB[:12])], "--requires=db,third"),
        (["--volumes-from", DB + ":ro"], "--volumes-from=db:ro"),
        (["--network", "container:" + DB[:12]], "--network=container:db"),
        (["--network", "container:db"], "--network=container:db"),
    ],
)
def test_a_member_names_others_by_their_names(words, expected):
    parsed = parse(["podman", "run", "-d", "--name", "web", *words, "image"], PODMAN, RUN)
    identity = Identity("web", "image", pod="front", joined=True, others={DB: "db", POD: "pod:front"})
    assert expected in twin(parsed, identity, RUN)


def test_only_a_member_of_a_group_may_need_others():
    parsed = parse(["podman", "run", "--pod", "front", "--requires", "db", "image"], PODMAN, RUN)
    assert unsupported(parsed) == "it belongs to a pod"
    assert unsupported(parsed, in_group=True) is None


def member(name, running=True, infra=False):
    return {"name": name, "infra": infra, "running": running, "upper_dir": "/layers/" + name, "checkpoint_dir": "/bundles/" + name + "/checkpoint"}


MEMBERS = [member("9999-infra", infra=True), member("db"), member("job", running=False), member("web")]


@pytest.mark.parametrize(
    ("verb", "running", "expected"),
    [
        ("stop", ["db", "web"], "/podman stop -- web db 9999-infra --- /podman container inspect FORMAT -- job"),
        ("start", ["db", "web"], "/podman start -- 9999-infra db web --- /podman container exists -- job"),
        # The infra container of a pod in which nothing runs is left alone.
        ("stop", [], "/podman container inspect FORMAT -- db job web"),
        ("start", [], "/podman container exists -- db job web"),
        # Live, those that are not dumped must not have been started, and the infra container ends behind the others.
        ("still", ["db", "web"], "/podman container inspect FORMAT -- job"),
        ("release", ["db", "web"], "/podman stop --time=0 --ignore -- 9999-infra"),
        ("discard", ["db"], "/podman rm --force --time=0 --ignore -- web job db --- /podman pod rm --force --time=0 --ignore -- front"),
    ],
)
def test_what_ran_is_stopped_and_started_and_nothing_else(verb, running, expected):
    words = in_turn(MEMBERS, verb, "front", "/podman", running, ["front"])
    assert words[:4] == ["/usr/local/libexec/handover/pcopy", "internal", "in-turn", "front"]
    assert " ".join("FORMAT" if word.startswith("--format") else word for word in words[4:]) == expected


def test_where_all_ran_there_is_nothing_to_ask_for():
    assert in_turn(MEMBERS, "still", "front", "/podman", ["db", "job", "web"]) == []


def test_the_layers_of_members_travel_and_not_that_of_the_infra_container():
    assert member_trees(MEMBERS[:2], "presync") == [{"name": "layer-db", "path": "/layers/db", "stage": "presync"}]


def test_members_are_compared_by_names():
    essence = {"Name": "web", "HostConfig.NetworkMode": "container:" + INFRA, "HostConfig.CgroupParent": "/pods/" + POD, "Config.Env": ["A=1", "HOME=/root"]}
    others = groups.names_by_id([{"Id": WEB, "Name": "web"}], [{"Id": POD, "Name": "front", "InfraContainerID": INFRA}])
    assert essence_of_member(essence, others, infra=False) == {
        "Name": "web", "HostConfig.NetworkMode": "container:infra:front", "HostConfig.CgroupParent": "/pods/pod:front", "Config.Env": ["A=1"],
    }  # fmt: skip


def test_a_group_runs_if_one_of_it_does():
    facts = {"held": False, "pod": "", "memory": 3, "layer": 5, "mounts": [], "secrets": ["key"]}
    members = [{**facts, **member("db"), "id": DB}, {**facts, **member("job", running=False), "id": WEB}]
    group = group_facts("db+job", groups.TOGETHER, members, [], [])
    assert (group["running"], group["running_members"], group["memory"], group["layer"], group["secrets"]) == (True, ["db"], 6, 10, ["key"])


CREATE = Grammar({**dict.fromkeys(("name", "label", "publish", "hostname", "network", "userns"), True), "replace": False, "infra": False}, {"p": "publish"})


def pod(*words):
    return {"name": "front", "create_command": ["podman", "pod", "create", *words]}


def test_a_pod_is_made_with_the_addresses_that_it_has():
    infra = {
        "running": True, "name": "9999-infra", "network_mode": "bridge", "uts_mode": "private", "hostname": "h", "environment": [], "labels": {}, "mounts": [],
        "networks": [{"name": "lan", "ip": "192.0.2.7", "ip6": "", "mac": "02::7", "interface": "eth0"}],
        "ports": [{"container_port": 80, "protocol": "tcp", "host_port": "8080", "host_ip": ""}],
    }  # fmt: skip
    made = pod_command.pod_twin(pod("--name=front", "--replace", "--network", "lan", "--label", "a=b", "-p", "8080:80"), infra, PODMAN, CREATE)
    assert made == ["pod", "create", "--name=front", "--network=lan:ip=192.0.2.7,mac=02::7,interface_name=eth0", "--publish=8080:80/tcp", "--label=a=b"]
    assert pod_command.pod_twin(pod("--infra=false", "front"), None, PODMAN, CREATE) == ["pod", "create", "--name=front", "--infra=false"]
    of_unit = {**pod("--infra=false", "front"), "essence": {"Labels": {"PODMAN_SYSTEMD_UNIT": "front-pod.service"}}}
    assert pod_command.pod_twin(of_unit, None, PODMAN, CREATE)[-1] == "--label=PODMAN_SYSTEMD_UNIT=front-pod.service"


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ([], "podman has not kept the command that made it"),
        (["podman", "run", "--pod", "new:front", "image"], "it was made by 'podman run --pod', and not by podman pod create"),
        (["podman", "pod", "create", "--userns", "auto"], "it has a user namespace"),
    ],
)
def test_a_pod_that_cannot_be_made_again(command, sentence):
    with pytest.raises(CommandError, match=sentence):
        pod_command.pod_twin({"name": "front", "create_command": command}, None, PODMAN, CREATE)
