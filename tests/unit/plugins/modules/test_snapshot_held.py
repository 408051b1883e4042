# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Going back to a backup with memory: its disks are in a store, and the container's own layer has to fit them."""

from __future__ import annotations

import json

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._core import disk_store, runtime
from ansible_collections.livefleet.handover.plugins.module_utils._podman import rollback
from ansible_collections.livefleet.handover.plugins.module_utils._podman.copies import one_snapshot
from unit.plugins.modules import test_snapshot

host, act = test_snapshot.host, test_snapshot.act


@pytest.fixture
def backup(host, act):
    """A backup as a snapshot of the host, of the container as it was; it has changed since."""
    folder = host.folder / "root" / "shop" / "before"
    for name, text in (("layer/file", "layer then"), ("checkpoint/pages.img", "memory then"), ("devshm-checkpoint.tar", "shm then")):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    store = host.folder / "repository" / "shop"
    (store / "0abc").mkdir(parents=True)
    (store / "0abc/pgdata").write_text("data then")
    (store / "store.json").write_text("{}")
    record = {
        "name": "before", "taken": "2026-11-21T20:30:00Z", "container": "111", "memory": True, "running": True, "size": 3, "volumes": host.volumes,
        "folders": [], "disks": True, "store": str(store), "point": "0abc",
    }  # fmt: skip
    (folder / "snapshot.json").write_text(json.dumps(record))
    (host.folder / "pgdata.img").write_text("data now")
    return record


def now(host):
    return {name: (host.folder / name).read_text() for name in ("pgdata.img", "layer/file", "static/checkpoint/pages.img", "static/devshm-checkpoint.tar")}


def now_without_memory(host):
    return [(host.folder / name).read_text() for name in ("pgdata.img", "layer/file")]


THEN = {"pgdata.img": "data then", "layer/file": "layer then", "static/checkpoint/pages.img": "memory then", "static/devshm-checkpoint.tar": "shm then"}


def test_disks_of_a_store_and_the_memory_come_back_together(host, act, backup):
    act("staged", memory=True)
    assert host.state == "exited" and (host.folder / "pgdata.img").read_text() == "data now"
    act("placed", memory=True)
    assert now(host) == THEN
    act("restored", memory=True)
    assert host.commands[-1][0].startswith("podman container restore") and host.state == "running"
    assert not [path.name for path in host.folder.rglob("*") if path.name.endswith((rollback.HELD, rollback.STAGED, rollback.ASIDE))]


class Killed(Exception):
    pass


def killed_after(patch, where, name):
    real = getattr(where, name)

    def killed(*given):
        if name != "let_go":
            real(*given)
        raise Killed

    patch.setattr(where, name, killed)


@pytest.mark.parametrize("step", ["hold", "roll_back", "halfway", "swap", "let_go"])
def test_a_kill_at_any_step_leaves_a_container_that_does_not_start(host, act, backup, monkeypatch, step):
    """Without its image a volume is not mounted. The next run ends it."""
    act("staged", memory=True)
    with monkeypatch.context() as patch:
        if step == "halfway":
            host.fails, host.restoring = ("restore 0abc",), "0abc"
        else:
            killed_after(patch, disk_store.DiskStore if step == "roll_back" else rollback, step)
        with pytest.raises((Killed, runtime.HandoverError), match="^$|as the test wants it"):
            act("placed", memory=True)
    host.fails = ()
    # The layer that is there goes when the disks have come.
    assert (host.folder / "layer/file").read_text() == ("layer then" if step in ("swap", "let_go") else "layer")
    assert not (host.folder / "pgdata.img").exists()
    act("staged", memory=True, keep=True)  # half of it is not kept
    act("placed", memory=True)
    assert now(host) == THEN


def test_the_disks_alone_after_a_kill(host, act, backup, monkeypatch):
    act("staged", memory=True)
    host.fails, host.restoring = ("restore 0abc",), "0abc"
    with pytest.raises(runtime.HandoverError):
        act("placed", memory=True)
    host.fails = ()
    act("staged")
    act("placed")
    assert (host.folder / "pgdata.img").read_text() == "data then"
    assert (host.folder / "layer/file").read_text() == "layer"
    assert not list(host.folder.glob("*" + rollback.HELD))


def test_disks_that_cannot_come_leave_all_as_it_was(host, act, backup):
    before = now_without_memory(host)
    act("staged", memory=True)
    host.fails = ("restore 0abc",)
    with pytest.raises(runtime.HandoverError, match="shop is as it was, and starts when its volumes are mounted: pcopy snapshot restore failed"):
        act("placed", memory=True)
    assert now_without_memory(host) == before and not list(host.folder.glob("*" + rollback.HELD))
    host.fails = ()
    act("placed", memory=True)
    assert now(host) == THEN


def test_disks_that_an_earlier_run_may_have_written_stay_held(host, act, backup, monkeypatch):
    """They are of the snapshot, and the layer is not."""
    act("staged", memory=True)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        killed_after(patch, disk_store.DiskStore, "roll_back")
        act("placed", memory=True)
    host.fails = ("restore 0abc",)
    with pytest.raises(runtime.HandoverError, match="as the test wants it"):
        act("placed", memory=True)
    assert not (host.folder / "pgdata.img").exists()


def test_without_an_image_the_layer_is_there_before_the_folders(host, act, backup, monkeypatch):
    seen = []

    def roll_back(self, name, volumes, folders=()):
        seen.append((host.folder / "layer/file").read_text())
        return {"volumes": []}

    (host.folder / "root/shop/before/snapshot.json").write_text(json.dumps({**backup, "volumes": []}))
    monkeypatch.setattr(disk_store.DiskStore, "roll_back", roll_back)
    act("staged", memory=True)
    act("placed", memory=True)
    assert seen == ["layer then"]


def test_the_room_of_a_held_image_counts(host, act, backup, monkeypatch):
    asked = []
    monkeypatch.setattr(one_snapshot, "look_for_room", lambda workload, need, folder: asked.append(need))
    monkeypatch.setattr(disk_store.DiskStore, "data", lambda self, name: {"pgdata": 4096})
    act("staged")
    rollback.hold([str(host.folder / "pgdata.img")], [])
    act("staged")
    assert asked[0] == asked[1] == 4096 - one_snapshot.host.allocated(str(host.folder / ("pgdata.img" + rollback.HELD)))


def test_a_held_image_that_has_grown_is_refused(tmp_path):
    (tmp_path / ("image" + rollback.HELD)).write_text("held")
    with pytest.raises(runtime.HandoverError, match="the volume pgdata has 4 .* now, and had 3 .* at the snapshot"):
        rollback.look_at_sizes([{"name": "pgdata", "image": str(tmp_path / "image"), "size": 3}])


def test_a_snapshot_that_a_rollback_may_need_is_not_removed(host, act, backup):
    rollback.hold([str(host.folder / "pgdata.img")], [])
    with pytest.raises(runtime.HandoverError, match="has not ended, which may need the snapshot before: run it again"):
        act("absent")
    rollback.let_go([str(host.folder / "pgdata.img")])
    act("absent")
    assert not (host.folder / "root/shop/before").exists()


def test_two_images_of_one_volume_are_seen_before_the_container_is_stopped(host, act, backup):
    (host.folder / ("pgdata.img" + rollback.HELD)).write_text("held")
    for state in ("staged", "placed"):
        with pytest.raises(runtime.HandoverError, match="was made while a rollback"):
            act(state, memory=True)
        assert host.state == ("running" if state == "staged" else "exited")
        host.state = "exited"
    assert (host.folder / "pgdata.img").read_text() == "data now"


def test_a_whole_copy_takes_the_place_of_a_held_image(tmp_path):
    image = tmp_path / "image"
    (tmp_path / ("image" + rollback.HELD)).write_text("held")
    (tmp_path / ("image" + rollback.STAGED)).write_text("copy")
    rollback.swap([str(image)], [])
    assert [path.name for path in tmp_path.iterdir()] == ["image"] and image.read_text() == "copy"


def test_an_image_that_was_made_since_is_not_replaced(tmp_path):
    image = tmp_path / "image"
    (tmp_path / ("image" + rollback.HELD)).write_text("held")
    image.write_text("new")
    for step in (rollback.let_go, lambda images: rollback.hold(images, [])):
        with pytest.raises(runtime.HandoverError, match="move the one away that is not needed, and go back once more"):
            step([str(image)])
    assert image.read_text() == "new" and (tmp_path / ("image" + rollback.HELD)).read_text() == "held"
    image.unlink()
    rollback.let_go([str(image)])
    assert image.read_text() == "held"


def test_a_folder_has_the_name_of_one_that_the_helper_was_killed_over(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    rollback.hold([], [str(folder)])
    assert rollback.is_away(str(folder)) and (tmp_path / ("folder" + rollback.AWAY)).is_dir()
    rollback.let_go([], [str(folder)])
    assert not rollback.is_away(str(folder))
    rollback.hold([], [str(folder)])
    folder.mkdir()  # of a program that looked for it
    rollback.hold([], [str(folder)])
    assert folder.is_dir()
