# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import types

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._core import backups as core_backups
from ansible_collections.livefleet.handover.plugins.module_utils._core.disk_store import DiskStore
from ansible_collections.livefleet.handover.plugins.module_utils._core.runtime import HandoverError
from ansible_collections.livefleet.handover.plugins.module_utils._core.snapshot_mounts import SnapshotMounts
from ansible_collections.livefleet.handover.plugins.module_utils._drivers.copies import backup_mounter
from ansible_collections.livefleet.handover.plugins.module_utils._kvm import partitions
from ansible_collections.livefleet.handover.plugins.module_utils._kvm.copies import guest_mounts
from ansible_collections.livefleet.handover.plugins.modules import backup_mount
from unit.plugins.modules import test_backup

backups, helper, take = test_backup.backups, test_backup.helper, test_backup.take


class Mounts:
    """The kernel's, of one host: what is mounted, and the place of which something is left."""

    def __init__(self):
        self.there = {}
        self.written = []

    def names(self, mounts):
        return sorted(self.there)

    def places(self, mounts, name):
        return dict(self.there.get(name, {}))

    def mount(self, mounts, runtime, name, volumes, write):
        for volume in volumes:
            place = os.path.join(mounts.folder(name), volume["name"])
            write(volume, place + ".img")
            self.there.setdefault(name, {})[volume["name"]] = place

    def unmount(self, mounts, runtime, name):
        del self.there[name]


@pytest.fixture
def mounted(monkeypatch):
    kernel = Mounts()
    for act in (kernel.names, kernel.places, kernel.mount, kernel.unmount):
        monkeypatch.setattr(backup_mounter.SnapshotMounts, act.__name__, lambda self, *words, act=act: act(self, *words))
    monkeypatch.setattr(DiskStore, "data", lambda self, name: {"pgdata": 4})
    monkeypatch.setattr(DiskStore, "write", lambda self, name, volume, path: kernel.written.append((self.folder, name, volume)))
    return kernel


@pytest.fixture
def ask(tmp_path):
    def asked(act=backup_mounter.mount, repository="", backup="", check=False):
        params = {
            "repository": repository or str(tmp_path / "repository"), "workload": "shop", "backup": backup, "root": str(tmp_path / "root"), "timeout": 60,
        }  # fmt: skip
        return act(types.SimpleNamespace(params=params, check_mode=check))

    return asked


def test_the_latest_is_mounted_on_a_host_without_the_container_or_podman(helper, take, mounted, ask, tmp_path):
    take()
    take()
    assert ask(check=True)["changed"] and not mounted.there
    answer = ask()
    place = str(tmp_path / "root/.mounted/shop/backup-1abc/pgdata")
    assert (answer["backup"], answer["taken"], answer["mountpoints"]) == ("1abc", "2026-11-26T01:00:00Z", {"pgdata": place})
    assert answer["reasons"] == ["of the backup 1abc these are not mounted: pgdata"]
    assert mounted.written == [(str(tmp_path / "repository/shop"), "1abc", "pgdata")]
    assert not ask()["changed"]
    assert ask(backup="0a")["backup"] == "0abc"


def test_of_another_host_it_is_brought_here_only_for_that(helper, take, mounted, ask, tmp_path):
    helper.there = tmp_path / "there"
    take(repository="backup1:/srv/backups")
    assert ask(repository="backup1:/srv/backups")["changed"]
    brought = tmp_path / "root/.brought/shop/0abc-mounted"
    assert mounted.written == [(str(brought), "0abc", "pgdata")]
    assert not brought.exists()


def test_one_that_does_not_fit_leaves_nothing(helper, take, mounted, ask, tmp_path, monkeypatch):
    helper.there = tmp_path / "there"
    take(repository="backup1:/srv/backups")
    monkeypatch.setattr(DiskStore, "data", lambda self, name: {"pgdata": 1 << 60})
    with pytest.raises(HandoverError, match="the copy of shop takes .* is free in .*: free .* there"):
        ask(repository="backup1:/srv/backups")
    assert not mounted.there and not (tmp_path / "root/.brought").exists(), "it is looked for before anything is brought"


def test_another_run_mounts_at_the_same_time(helper, take, mounted, ask, tmp_path):
    take()
    with SnapshotMounts(str(tmp_path / "root"), "shop").held(False):
        assert ask(check=True)["changed"]
        with pytest.raises(HandoverError, match="another run mounts or unmounts copies of shop on this host: wait until it has ended"):
            ask()
    assert ask()["changed"] and mounted.written == [(str(tmp_path / "repository/shop"), "0abc", "pgdata")]
    mounted.there = {"backup-" + "0abc" * 4: {"pgdata": "/x"}}
    with SnapshotMounts(str(tmp_path / "root"), "shop").held(False), pytest.raises(HandoverError, match="another run mounts or unmounts"):
        ask(backup_mounter.unmount)
    assert mounted.there


def test_a_guests_disks_are_mounted_by_their_partitions(helper, take, mounted, ask, monkeypatch, tmp_path):
    take()
    documents = {"backup.json": {"kind": "KVM guest", "disks": [{"target": "vda"}]}, "configuration.json": {"definition": "<domain/>"}}
    monkeypatch.setattr(core_backups.Backups, "document", lambda self, point, name: documents[name])
    monkeypatch.setattr(DiskStore, "data", lambda self, name: {"vda": 4})
    areas = [partitions.Area("vda1", "ext4", 512, 512), partitions.Area("vda2", "swap", 1024, 512)]
    monkeypatch.setattr(guest_mounts, "look", lambda runtime, image, target, sector: areas)

    def attach(image, place, within):
        mounted.there.setdefault("backup-0abc", {})[os.path.basename(place)] = place

    monkeypatch.setattr(SnapshotMounts, "attach", lambda self, runtime, image, place, fstype, within: attach(image, place, within))
    monkeypatch.setattr(DiskStore, "write", lambda self, name, volume, path: open(path, "w", encoding="ascii").close())
    assert ask(check=True)["reasons"] == ["of the backup 0abc these are not mounted: vda"]
    answer = ask()
    assert answer["mountpoints"] == {"vda1": str(tmp_path / "root/.mounted/shop/backup-0abc/vda1")} and answer["changed"]
    assert answer["lines"] == ["vda2 is swap space", guest_mounts.WAY_OUT]
    assert not ask()["changed"] and ask()["lines"] == answer["lines"]


def test_of_a_part_that_is_mounted_only_the_rest_is_written(helper, take, mounted, ask, tmp_path, monkeypatch):
    """After a restart of the host the copies are there: nothing is brought, and no room is asked for."""
    helper.there = tmp_path / "there"
    take(repository="backup1:/srv/backups")
    image = tmp_path / "root/.mounted/shop/backup-0abc/pgdata.img"
    image.parent.mkdir(parents=True)
    image.touch()
    monkeypatch.setattr(DiskStore, "data", lambda self, name: {"pgdata": 1 << 60})
    assert ask(repository="backup1:/srv/backups")["changed"] and mounted.there
    assert "copy" not in [verb for verb, *_words in helper.words]


@pytest.mark.parametrize("name", ["..", "../../x", "a/b", ""])
def test_a_volume_that_would_lie_elsewhere_is_refused(name):
    with pytest.raises(HandoverError, match="which would lie elsewhere"):
        SnapshotMounts("/root", "shop").image("backup-0abc", name)


def test_all_are_unmounted_without_their_repository_or_one_by_its_id(mounted, ask, tmp_path):
    one, other = "0abc" * 4, "1abc" * 4
    mine = {"backup-monday", "backup-0abc", "before-upgrade"}  # snapshots of an operator's
    mounted.there = {name: {"pgdata": "/x"} for name in (*mine, "backup-" + one, "backup-" + other)}
    with pytest.raises(HandoverError, match="no backup of shop with an ID that begins with 7 is mounted here: name one of {0}, {1}".format(one, other)):
        ask(backup_mounter.unmount, "/gone", "7")
    assert ask(backup_mounter.unmount, "/gone", "0a", check=True)["changed"] and len(mounted.there) == 5
    assert ask(backup_mounter.unmount, "/gone", "0a")["reasons"] == ["the backup {0} is mounted".format(one)]
    left = tmp_path / "root/.brought/shop" / (other + "-mounted")
    left.mkdir(parents=True)
    assert ask(backup_mounter.unmount, "/gone")["changed"] and not left.exists()
    assert set(mounted.there) == mine
    assert not ask(backup_mounter.unmount, "/gone")["changed"]
    left.mkdir()  # of a run that was killed before it had mounted anything
    assert ask(backup_mounter.unmount, "/gone")["changed"] and not left.exists()


def test_a_mount_needs_a_repository(run_module):
    with pytest.raises(Exception, match="state is mounted but all of the following are missing: repository"):
        run_module(backup_mount.main, {"workload": "shop"})
