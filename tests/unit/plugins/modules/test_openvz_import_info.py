# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._core.runtime import HandoverError
from ansible_collections.livefleet.handover.plugins.module_utils._openvz import importer
from ansible_collections.livefleet.handover.plugins.modules import openvz_import_info

LOOK = f"""\
@id 101
@status CTID 101 exist unmounted down
@private /vz/private/101
@machine {os.uname().machine}
@host old1 7
@file conf
 NAME="shop"
 DISKSPACE="1G"
 DISABLED="yes"
@end
@layout simfs
@kib 10
"""


class Podman:
    """As far as the plan asks it."""

    def __init__(self, _runtime):
        pass

    def containers(self):
        return [{"Names": ["web"]}]

    def networks(self):
        return [{"name": "lan", "subnets": [{"subnet": "10.0.0.0/24"}], "driver": "macvlan"}]


class Module:
    def __init__(self, **params):
        self.params = {"look": LOOK, "name": "", "size": "", "networks": {}, "ignore": [], "timeout": 10, **params}


@pytest.fixture(autouse=True)
def _host(monkeypatch, tmp_path):
    monkeypatch.setattr(openvz_import_info, "Podman", Podman)
    monkeypatch.setattr(importer, "ROOT", str(tmp_path))


def test_the_program_alone():
    assert set(openvz_import_info.run(Module(look=None))) == {"program"}


def test_a_plan_of_this_host():
    found = openvz_import_info.run(Module())
    assert found["plan"]["name"] == "shop" and found["plan"]["image"].endswith("/shop.img") and found["plan"]["mountpoint"].endswith("/shop")
    assert [each.partition(":")[0] for each in found["plan"]["refused"]] == ["DISABLED"] and found["record"] == {}
    assert found["offer"]["networks"] == [{"name": "lan", "subnets": [{"subnet": "10.0.0.0/24"}]}] and found["offer"]["taken"][-1] == "web"


def test_its_own_lock_and_container_are_not_in_the_way(tmp_path):
    (tmp_path / "web").mkdir()
    (tmp_path / "web/record.json").write_text('{"id": "101", "host": "old1 7", "state": "stopped"}', encoding="utf-8")
    found = openvz_import_info.run(Module())
    assert found["plan"]["refused"] == [] and found["plan"]["name"] == "web" and found["record"]["state"] == "stopped"


def test_one_that_was_imported_and_runs_on_the_source_is_refused(tmp_path):
    (tmp_path / "shop").mkdir()
    record = tmp_path / "shop/record.json"
    record.write_text('{"id": "101", "host": "old1 7", "state": "imported"}', encoding="utf-8")
    look = LOOK.replace("unmounted down", "mounted running")
    refused = openvz_import_info.run(Module(look=look))["plan"]["refused"]
    assert len(refused) == 1 and "it was imported as shop, and runs on the source again" in refused[0]
    assert openvz_import_info.run(Module())["plan"]["refused"] == []


def test_a_lock_after_the_way_back_is_somebody_else_s(tmp_path):
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop/record.json").write_text('{"id": "101", "host": "old1 7", "state": "begun"}', encoding="utf-8")
    assert [each.partition(":")[0] for each in openvz_import_info.run(Module())["plan"]["refused"]] == ["DISABLED"]


def test_a_container_of_the_same_id_on_another_host_is_another(tmp_path):
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop/record.json").write_text('{"id": "101", "host": "old2 9", "state": "imported"}', encoding="utf-8")
    found = openvz_import_info.run(Module())
    assert found["record"] == {} and [each.partition(":")[0] for each in found["plan"]["refused"]] == ["DISABLED", "(name)"]


@pytest.mark.parametrize(
    ("params", "says"),
    [
        ({"look": "@none\n"}, "no host of OpenVZ's"),
        ({"look": "@other 101\n@other 102\n"}, r"name one of those that it has \(101, 102\)"),
        ({"size": "20GB"}, "import_openvz_size: '20GB' is ambiguous"),
    ],
)
def test_one_sentence_for_bad_input(params, says):
    with pytest.raises(HandoverError, match=says):
        openvz_import_info.run(Module(**params))
