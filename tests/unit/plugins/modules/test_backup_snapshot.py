# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import types

from ansible_collections.livefleet.handover.plugins.module_utils._core import snapshot_records as snapshots
from ansible_collections.livefleet.handover.plugins.module_utils._podman.copies import backup_adopter
from unit.plugins.modules import test_backup

MORE = {"timeout": 60, "memory": False}
backups, helper, take = test_backup.backups, test_backup.helper, test_backup.take


def adopt(tmp_path, state="present", check=False, backup=""):
    params = {"repository": str(tmp_path / "repository"), "workload": "shop", "backup": backup, "state": state, "root": str(tmp_path / "root"), **MORE}
    return backup_adopter.adopt(types.SimpleNamespace(params=params, check_mode=check))


def test_a_backup_is_a_snapshot_whose_disks_are_in_the_repository(helper, take, tmp_path):
    take()
    assert adopt(tmp_path, check=True)["changed"]
    assert not (tmp_path / "root").exists()
    told = {"changed": True, "snapshot": "backup-0abc", "backup": "0abc", "taken": "2026-11-26T00:00:00Z", "kind": "container"}
    assert adopt(tmp_path) == {**told, "exists": True}
    record = snapshots.Snapshots(str(tmp_path / "root"), "shop").read("backup-0abc")
    assert (record["disks"], record["store"], record["point"]) == (True, str(tmp_path / "repository/shop"), "0abc")
    assert record["volumes"][0]["image"] == "/images/pgdata.img"
    assert (tmp_path / "root/shop/backup-0abc/configuration.json").stat().st_mode & 0o777 == 0o600
    assert not adopt(tmp_path)["changed"]
    helper.here = False
    assert adopt(tmp_path, "absent") == {**told, "exists": False}
    assert not adopt(tmp_path, "absent")["changed"]


def test_a_backup_on_another_host_is_brought_here_and_removed_again(helper, take, tmp_path):
    helper.there = tmp_path / "there"
    take(repository="backup1:/srv/backups")
    params = {"repository": "backup1:/srv/backups", "workload": "shop", "backup": "", "state": "present", "root": str(tmp_path / "root"), **MORE}
    module = types.SimpleNamespace(params=params, check_mode=False)
    brought = tmp_path / "root/.brought/shop/0abc"
    brought.mkdir(parents=True)
    (brought / "half").touch()  # of a run that was killed
    assert backup_adopter.adopt(module)["changed"]
    record = snapshots.Snapshots(str(tmp_path / "root"), "shop").read("backup-0abc")
    assert (record["store"], record["point"]) == (str(brought), "0abc")
    assert (brought / "store.json").exists() and not (brought / "half").exists()
    assert not backup_adopter.adopt(module)["changed"]
    assert [verb for verb, *_words in helper.words].count("copy") == 1
    params["state"] = "absent"
    assert backup_adopter.adopt(module)["changed"]
    assert not brought.exists()


def test_a_repository_that_is_mounted_elsewhere_now(helper, take, tmp_path):
    take()
    adopt(tmp_path)
    (tmp_path / "repository").rename(tmp_path / "moved")
    (tmp_path / "repository").symlink_to(tmp_path / "moved")
    assert not adopt(tmp_path)["changed"], "the same path"
    (tmp_path / "repository").unlink()
    params = {"repository": str(tmp_path / "moved"), "workload": "shop", "backup": "", "state": "present", "root": str(tmp_path / "root"), **MORE}
    assert backup_adopter.adopt(types.SimpleNamespace(params=params, check_mode=False))["changed"]
    assert snapshots.Snapshots(str(tmp_path / "root"), "shop").read("backup-0abc")["store"] == str(tmp_path / "moved/shop")


def test_a_backup_of_a_guest_is_no_snapshot_of_a_host(helper, take, tmp_path):
    take()
    record = tmp_path / "repository/shop/point-0/backup.json"
    record.write_text('{"kind": "KVM guest"}')
    for state in ("present", "absent"):
        found = adopt(tmp_path, state)
        assert (found["changed"], found["kind"], found["exists"]) == (False, "KVM guest", False)
    assert not (tmp_path / "root").exists()
