# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Two hosts with libvzctl, between which a directory container can move with its memory; each test breaks one fact and reads the sentence."""

from __future__ import annotations

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._openvz.driver import checks, facts, look, told
from ansible_collections.livefleet.handover.tests.unit.plugins.module_utils._openvz.driver.test_checks import (
    STOCK,
    live,
    move,
    newer,
    parameter,
    put,
    seen,
    sentences,
    world,
)

__all__ = ["world"]


@pytest.fixture(name="libvzctl")
def hosts_of_libvzctl(world):
    newer(put("mode", "live"), put("here/workload/layout", facts.DIRECTORY))(world)
    for side in ("here", "there"):
        world[side]["host"]["openvz"].update(STOCK, way=facts.LIBVZCTL, version=[9, 0, 1], restore_options="")
    return world


def with_a_disk(world):
    put("here/workload/layout", facts.PLOOP)(world)
    put("there/host/openvz/ploop", True)(world)


def encrypted(world):
    with_a_disk(world)
    put("here/workload/encrypted", True)(world)


def test_nothing_is_in_the_way_of_one_with_a_disk(libvzctl):
    with_a_disk(libvzctl)
    assert sentences(libvzctl) == []
    assert any("the top layer of the ploop disk of 101" in sentence for sentence in told.told(move(libvzctl)))


@pytest.mark.parametrize(("descriptor", "is_encrypted"), [("<KeyId> 7e</KeyId>", True), ("<KeyId>\n</KeyId>", False), ("<KeyId></KeyId>", False), ("", False)])
def test_a_descriptor_that_names_a_key_is_that_of_an_encrypted_disk(descriptor, is_encrypted):
    found = facts.facts_of(seen(layout=facts.PLOOP, files={"conf": "", "descriptor": descriptor}))
    assert found["encrypted"] is is_encrypted


def test_nothing_is_in_the_way(libvzctl):
    assert sentences(libvzctl) == []
    assert any("restores it on node2, as libvzctl has it. If that is undone" in sentence for sentence in told.told(move(libvzctl)))
    assert checks.twin(move(libvzctl))["dump"] is True


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (put("here/host/openvz/criu", []), "libvzctl dumps and restores by CRIU, and node1 has none: install criu there"),
        (put("there/host/openvz/criu", []), "libvzctl dumps and restores by CRIU, and node2 has none"),
        (put("there/host/openvz/criu_gate", "X is missing"), "nothing would hold CRIU on node2 before the release (X is missing)"),
        (put("here/host/openvz/freezer", False), "node1 has no freezer of cgroup v1, and the tasks of 101 would run on if CRIU were killed"),
        (put("there/host/openvz/freezer", False), "node2 has no freezer of cgroup v1, and the dump of 101 has groups of that: mount it there"),
        (put("there/host/openvz/criu", [4, 1, 9]), "CRIU is 4.2.1 on node1 and 4.1.9 on node2, which is older"),
        (put("here/host/openvz/criu", [3, 10]), "CRIU is 3.10 on node1, which does not read /etc/criu/default.conf"),
        (put("here/workload/layout", "simfs"), "101 is neither a directory container of libvzctl's nor one with a ploop disk: move it with"),
        (encrypted, "the ploop disk of 101 is encrypted, and it is not known whether node2 has its key before the release: move it with"),
        (parameter("FEATURES", "bridge:on nfsd:on"), "101 has the feature nfsd: libvzctl stops its servers for a dump"),
        (put("here/workload/own_scripts", ["scripts.start", "scripts.mount"]), "101 has the action script start, which libvzctl runs in it on node2 before"),
        (put("here/workload/own_scripts", ["scripts.start", "scripts.stop"]), "the action script start and stop, which"),
        (put("there/host/openvz/restore_options", "--no-default-config"), "node2 gives CRIU words of its own for a restore (RESTORE_EXTRA_OPT=--no-def"),
        (put("here/host/openvz/restore_options", "--x"), "node1 gives CRIU words of its own"),
        (put("here/workload/running", False), "has no memory to hand over"),
    ],
)
def test_each_obstacle_is_firm_and_says_its_cure(libvzctl, spoil, says):
    spoil(libvzctl)
    found = sentences(libvzctl)
    assert any(check == "live" and says in sentence for check, sentence in found), found


def test_a_feature_that_is_off_and_a_place_that_vzctl_is_told_are_nothing(libvzctl):
    parameter("FEATURES", "nfsd:off,bridge:on")(libvzctl)
    parameter("DUMPDIR", "/big")(libvzctl)
    # These libvzctl runs on the host.
    put("here/workload/own_scripts", ["scripts.mount", "scripts.premount"])(libvzctl)
    assert sentences(libvzctl) == []


def test_hosts_of_two_eras_are_said_once(libvzctl):
    libvzctl["there"]["host"]["openvz"].update(way=facts.CRIU, version=[4, 11, 1])
    assert {check for check, _sentence in sentences(libvzctl)} == {"era", "vzctl_version"}


def test_its_files_are_in_a_folder_of_the_area(world):
    assert facts.facts_of(seen('VE_LAYOUT="simfs"\nQUOTAUGIDLIMIT="200"\n', layout=facts.DIRECTORY))["quota"]
    # To vzctl 4 this is no layout.
    put("here/workload/layout", facts.DIRECTORY)(world)
    assert [check for check, _sentence in sentences(world)] == ["layout"]
    newer()(world)
    assert sentences(world) == []
    live()(world)
    assert "layout" not in {check for check, _sentence in sentences(world)}


def test_its_memory_is_that_of_its_own_group(monkeypatch):
    texts = {"/sys/fs/cgroup/memory/machine.slice/101/memory.usage_in_bytes": "4096\n", "/sys/fs/cgroup/memory/vz-102/memory.usage_in_bytes": "8192\n"}
    monkeypatch.setattr(look.host, "read_text", lambda path: texts.get(path, ""))
    assert [look.memory_of(ctid) for ctid in ("101", "102", "103")] == [4096, 8192, 0]
