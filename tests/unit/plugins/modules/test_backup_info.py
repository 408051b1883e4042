# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._core import runtime
from ansible_collections.livefleet.handover.plugins.modules import backup_info
from unit.plugins.modules import test_backup

backups, helper, take = test_backup.backups, test_backup.helper, test_backup.take


def test_damage_is_named(helper, take, tmp_path):
    take()
    assert backups(tmp_path).faults() == []
    helper.faults = [{"file": "layers/x.qcow2", "text": "it is not as it was written", "points": ["0abc"]}]
    assert backups(tmp_path).faults() == [{"workload": "shop", **helper.faults[0], "points": "0abc"}]


def test_a_verification_that_cannot_run_is_no_success(helper, take, tmp_path, monkeypatch):
    take()
    monkeypatch.setattr(helper, "verify", lambda store, names, flags: (1, {}))
    with pytest.raises(runtime.HandoverError, match="files are damaged"):
        backups(tmp_path).faults()


def test_the_module_tells_of_all_containers_or_one(helper, take, tmp_path, run_module):
    take()
    (tmp_path / "repository" / "other").mkdir()
    helper.faults = [{"file": "layers/x.qcow2", "text": "it is not as it was written", "points": ["0abc"]}]
    for given, found, faults in (({}, ["shop"], 0), ({"verify": True}, ["shop"], 1), ({"workload": "gone", "verify": True}, [], 0)):
        answer = run_module(backup_info.main, {"repository": str(tmp_path / "repository"), **given})
        assert ([row["workload"] for row in answer["backups"]], len(answer["faults"]), answer["changed"]) == (found, faults, False)


def test_a_repository_that_is_not_there_is_not_an_empty_one(helper, tmp_path, run_module):
    for given in ({}, {"workload": "shop"}):
        with pytest.raises(Exception, match="there is no folder"):
            run_module(backup_info.main, {"repository": str(tmp_path / "repositroy"), **given})


def test_guests_and_containers_are_told_apart(helper, take, tmp_path, run_module):
    take()
    point = tmp_path / "repository/shop/point-0/row"
    assert run_module(backup_info.main, {"repository": str(tmp_path / "repository")})["backups"][0]["kind"] == "container"
    point.write_text(point.read_text().replace('"id"', '"description": "KVM guest", "id"'))
    assert run_module(backup_info.main, {"repository": str(tmp_path / "repository")})["backups"][0]["kind"] == "KVM guest"
