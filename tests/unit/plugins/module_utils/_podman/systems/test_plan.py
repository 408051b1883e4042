# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import copy
import json

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._podman.preflight.examine import BASICS, CHECKS
from ansible_collections.livefleet.handover.plugins.module_utils._podman.systems import made, movable, plan
from unit.plugins.module_utils._podman.systems.test_request import LAN, asked
from unit.plugins.module_utils._podman.test_preflight import OCI, host

IMAGE = {"there": True, "archive": False, "init": "systemd", "entrypoint": [], "manifest": OCI}
NEW = {
    "exists": False, "held": False, "running": False, "labels": {}, "mounts": [], "units": [], "unit": False, "left": False, "volumes": {"data": []},
    "image": IMAGE, "in_use": [],
}  # fmt: skip


def facts(**own):
    """A host on which all is right."""
    found = host("192.0.2.1", cgroup=2, controllers=["cpu", "memory", "pids"])
    found["podman"]["networks"] = [
        {"name": "lan", "driver": "macvlan", "subnets": ["192.0.2.0/24"], "shared": True, "parent": "eth0", "taken": []},
        {"name": "inner", "driver": "bridge", "subnets": ["192.0.2.0/24"], "shared": False, "parent": "", "taken": []},
    ]
    return {"host": found, "problems": [], "containers": {"box": {**NEW, **own}}}


def there(record=None, **own):
    """The same with a container that the role has made."""
    labels = made.options(asked(**(record or {})), "systemd")["label"]
    return facts(exists=True, running=True, labels=labels, unit=True, image={}, mounts=[{"type": "volume", "name": "data"}], **own)


def planned(request, known, **more):
    return plan.make([request], known, "node1", **more)


def refused(request, known, **more):
    found = planned(request, known, **more)
    assert found["containers"] == [] or not found["refused"]
    return found["refused"]


def test_a_new_one_is_made_as_its_init_needs_it():
    found = planned(asked(memory="1G", cpus=1.5, environment={"ON": True}), facts())
    assert found["refused"] == [] and found["told"] == []
    made_by = found["containers"][0]
    assert (made_by["make"], made_by["start"], made_by["init"], made_by["unit"]) == (True, True, "systemd", "container-box.service")
    assert made_by["volumes"] == [{"name": "data", "fstype": "ext4", "size": "1G"}] and made_by["mountpoints"] == ["/var/lib/handover/mnt/data"]
    options = made_by["options"]
    assert (options["systemd"], options["stop_signal"], options["tmpfs"], options["cap_add"]) == ("always", 37, {}, ["SYS_BOOT"])
    assert (options["memory"], options["cpus"], options["env"], options["volume"]) == ("1073741824b", "1.5", {"ON": "true"}, ["data:/srv"])
    assert options["network"] == ["lan:ip=192.0.2.20,mac=02:00:00:00:00:20"]
    old = planned(asked(networks=[]), facts(image={**IMAGE, "init": "sysvinit"}))["containers"][0]["options"]
    assert (old["systemd"], old["stop_signal"], sorted(old["tmpfs"]), old["network"]) == ("false", 30, ["/run", "/run/lock"], ["none"])


def test_a_hardware_address_stays_the_same():
    request = asked(networks=[{"name": "lan", "ip": "192.0.2.20"}])
    first, second = (made.networks_of(request)[0]["mac"] for _time in range(2))
    assert first == second and first.startswith("02:") and len(first) == 17


def test_a_second_run_has_nothing_to_do():
    found = planned(asked(), there())
    assert found["refused"] == []
    again = found["containers"][0]
    assert (again["make"], again["options"], again["load"], again["init"], again["remove"]) == (False, {}, "", "systemd", False)


def test_what_may_change_later_is_no_other_container():
    for given in ({"boot": False}, {"authorized_keys": []}, {"state": "present"}, {"volumes": [{"name": "data", "path": "/srv", "size": "9G"}]}):
        assert planned(asked(**given), there())["refused"] == []


@pytest.mark.parametrize(
    ("given", "key"),
    [
        ({"image": "localhost/debian:14"}, "image"), ({"memory": "1G"}, "memory"), ({"init": "sysvinit"}, "init"),
        ({"networks": [{**LAN, "ip": "192.0.2.21"}]}, "networks"),
        ({"volumes": []}, "volumes"), ({"environment": {"A": "b"}}, "environment"), ({"hostname": "other"}, "hostname"), ({"stop_timeout": 9}, "stop_timeout"),
    ],
)  # fmt: skip
def test_one_that_is_asked_for_otherwise_is_not_made_anew(given, key):
    found = refused(asked(**given), there())
    assert len(found) == 1 and f"box on node1 was made with other values of {key}, and would lose the system in it" in found[0]


def test_another_s_container_is_not_touched():
    for request in (asked(), asked(state="absent", force=True)):
        for labels in ({}, {made.LABEL: "{"}, {made.LABEL: "[]"}):
            found = refused(request, facts(exists=True, labels=labels))
            assert found == ["node1 has a container box that this role has not made: give this one another name, or remove that with `podman rm` first"]


def test_one_that_is_moved_or_held_is_not_touched():
    known = there()
    session = {"id": "box-1", "role": "source", "workload": "box", "state": "presync", "ended": False, "running": True, "members": [], "by": None}
    known["host"]["pcopy"]["sessions"] = [{**session, "destination": "node2"}]
    for request in (asked(), asked(state="absent", force=True)):
        assert "box is being moved already to node2, by session box-1" in refused(request, known)[0]
        assert "podman on node1 does not answer about box" in refused(request, {**there(held=True)})[0]


@pytest.mark.parametrize(
    ("own", "given", "sentence"),
    [
        ({"left": True}, {}, "box has left node1 by a move, which kept its unit as /etc/systemd/system/container-box.service.migrated"),
        ({"units": ["mine.service"]}, {}, "node1 has the unit mine.service, which starts a container box beside container-box.service"),
        ({"in_use": ["192.0.2.20"]}, {}, "another machine answers for 192.0.2.20 on the segment of node1: see whether box runs on another host already"),
        ({"volumes": {"data": ["shop"]}}, {}, "box: shop on node1 has the volume data as well: give it a volume of its own"),
        ({"image": {"there": False, "archive": False}}, {}, "node1 has no image localhost/debian:13"),
        ({"image": {"there": False, "archive": False}}, {"archive": "/a.tar"}, "node1 has neither the image localhost/debian:13 nor the file /a.tar"),
        ({"image": {**IMAGE, "entrypoint": ["/run.sh"]}}, {}, "has the entrypoint /run.sh, which would be the first process instead of the init"),
        ({"image": {**IMAGE, "init": ""}}, {}, "the image localhost/debian:13 has no init"),
        ({"image": {**IMAGE, "init": "upstart"}}, {}, "has upstart as its init, and a whole system here has systemd or System V's init"),
        ({}, {"init": "sysvinit"}, "has systemd as its init, and not sysvinit: leave `init` out"),
        ({}, {"networks": [{"name": "wan", "ip": "192.0.2.20"}]}, "podman on node1 has no network wan"),
        ({}, {"networks": [{"name": "lan", "ip": "198.51.100.1"}]}, "198.51.100.1 is in no subnet of the network lan on node1, which has 192.0.2.0/24"),
    ],
)  # fmt: skip
def test_all_is_refused_before_the_first_thing_is_made(own, given, sentence):
    found = refused(asked(**given), facts(**own))
    assert len(found) == 1 and sentence in found[0], found


def test_a_limit_needs_its_controller():
    known = facts()
    known["host"]["controllers"] = ["cpu"]
    found = refused(asked(memory="1G", cpus=1, pids_limit=100), known)
    assert [sentence.partition(" for cgroups")[0] for sentence in found] == ["box: node1 has no controller memory", "box: node1 has no controller pids"]
    assert refused(asked(pids_limit=-1), known) == []


def test_remains_of_its_name_are_named():
    known = facts()
    known["host"]["podman"]["remains"] = ["box"]
    assert refused(asked(), known) == ["box: podman's storage on node1 still has one of that name, whose making was cut off: `podman rm --force box`"]


def test_without_podman_nothing_else_is_asked():
    known = facts()
    known["host"]["podman"]["installed"] = False
    assert refused(asked(), known) == ["podman is missing on node1: install the package podman there"]


# Of a live move, by the preflight's own checks


def broken(known, what):
    """What each check looks at, so that it finds something."""
    of = known["host"]
    {
        "own_cgroups": lambda: of.update(cgroup=1),
        "storage_driver": lambda: of["podman"]["store"].update(driver="vfs"),
        "networks": lambda: of.update(interfaces=["lo"]),
        "addresses": lambda: of["addresses"].append({"address": "192.0.2.20", "prefix": 24, "interface": "eth0"}),
        "runtime": lambda: of["podman"].update(runtime="crun"),
        "silence": lambda: of["pcopy"].update(silence={"ok": False, "text": "no BTF"}),
        "seccomp": lambda: of.update(seccomp_filter=True),
        "action_script": lambda: of["criu"].update(action_script=""),
        "pcopy": lambda: of["pcopy"].update(installed=False),
        "systemd": lambda: of.update(systemd=[]),
        "criu": lambda: of["criu"].update(version=[]),
        "criu_sockets": lambda: of["criu"].update(version=[4, 1]),
        "network_lock": lambda: of["criu"]["network_lock"].update(works=False),
        "tracker": lambda: of["pcopy"].update(findings=[{"name": "btf", "ok": False, "text": "no BTF"}]),
        "image_format": lambda: known["containers"]["box"].update(image={**IMAGE, "manifest": "odd"}),
        "unanswered": lambda: known.update(problems=["podman said nothing"]),
    }[what]()
    return known


@pytest.mark.parametrize("name", movable.OF_ONE_HOST)
def test_what_cannot_move_live_is_said_before(name):
    assert name in CHECKS and set(movable.AT_WORK) <= set(BASICS)
    request = asked(volumes=[{"name": "data", "path": "/srv", "size": "9G"}])
    known = broken(copy.deepcopy(facts()), name)
    found = movable.obstacles(request, known, "node1")
    assert {finding.check for finding in found} == {name}, found
    said = [f"box could not move live: {finding.sentence}" for finding in found]
    assert refused(request, known) == [f"{sentence}; system_container_ignore_checks: [{name}] makes it all the same" for sentence in said]
    ignored = planned(request, known, ignore=[name])
    assert ignored["refused"] == [] and ignored["told"] == said and ignored["containers"][0]["make"]


def test_a_bridge_of_one_host_is_no_way_for_connections():
    request = asked(networks=[{"name": "inner", "ip": "192.0.2.20"}])
    said = refused(request, facts())
    assert len(said) == 1 and "the network inner is a bridge of node1 alone, so connections would break by a move" in said[0]
    assert planned(request, facts(), ignore=["connections"])["refused"] == []


def test_an_unknown_check_is_named():
    assert "system_container_ignore_checks has 'criuu', which is no check: it may have own_cgroups" in refused(asked(), facts(), ignore=["criuu"])[0]


def test_an_image_that_has_not_come_is_looked_at_later():
    found = planned(asked(archive="/a.tar"), facts(image={"there": False, "archive": True}))
    assert found["refused"] == [] and found["loads"] == [found["containers"][0]["load"]] == ["/a.tar"] and found["containers"][0]["options"] == {}


def test_an_address_of_podman_s_choice_is_told():
    known = facts()
    known["host"]["podman"]["networks"][0]["subnets"].append("2001:db8::/64")
    assert planned(asked(), known)["told"] == [
        "box gets an address of podman's choice in 2001:db8::/64, another at each start: the network lan has it, too"
    ]
    again = there()
    again["host"] = known["host"]
    assert planned(asked(), again)["told"] == []


# The way out


def test_its_volumes_stay_unless_that_is_said():
    found = planned(asked(state="absent", force=True, volumes=[]), there(volumes={"data": []}))
    assert found["refused"] == [] and found["told"] == ["the volumes of box stay: data"]
    assert found["containers"][0]["remove"] and found["containers"][0]["volumes_removed"] == []
    found = planned(asked(state="absent", force=True, volumes=[], remove_volumes=True), there(volumes={"data": [], "f00": []}))
    assert found["containers"][0]["volumes_removed"] == [{"name": "data", "state": "absent", "force": True}]
    assert found["told"] == ["the volumes of box stay: f00"]


def test_a_volume_of_another_s_is_not_removed():
    for known in (there(volumes={"data": ["shop"]}), facts(volumes={"data": ["shop"]})):
        said = refused(asked(state="absent", force=True, remove_volumes=True), known)
        assert said == ["box: shop on node1 has the volume data as well: leave remove_volumes out"]
        assert refused(asked(state="absent", force=True), known) == []


def test_one_that_is_gone_stays_gone():
    found = planned(asked(state="absent", force=True), facts())["containers"][0]
    assert not found["remove"] and found["volumes"] == [] and found["volumes_removed"] == []
    # Cut off between the container and its unit.
    again = planned(asked(state="absent", force=True), facts(unit=True))["containers"][0]
    place = "/etc/systemd/system/container-box.service"
    assert again["remove"] and again["unit_files"] == [place, place + ".migrated"]


def test_the_label_says_what_was_asked_for():
    record = json.loads(made.options(asked(), "systemd")["label"][made.LABEL])
    assert record["init"] == "systemd" and record["networks"][0]["ip"] == "192.0.2.20"
    assert made.recorded({made.LABEL: json.dumps(record)}) == record and made.recorded({}) is None
