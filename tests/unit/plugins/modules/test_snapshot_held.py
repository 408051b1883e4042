# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Going back to a backup with memory: its disks are in a store, and the container's own layer has to fit them."""

from __future__ import annotations

import json

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._core import runtime
from ansible_collections.livefleet.handover.plugins.module_utils._podman import rollback
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


THEN = {"pgdata.img": "data then", "layer/file": "layer then", "static/checkpoint/pages.img": "memory then", "static/devshm-checkpoint.tar": "shm then"}


def test_disks_of_a_store_and_the_memory_come_back_together(host, act, backup):
    act("staged", memory=True)
    assert host.state == "exited" and (host.folder / "pgdata.img").read_text() == "data now"
    act("placed", memory=True)
    assert now(host) == THEN
    act("restored", memory=True)
    assert host.commands[-1][0].startswith("podman container restore") and host.state == "running"
    assert not [path.name for path in host.folder.rglob("*") if path.name.endswith((rollback.HELD, rollback.STAGED, rollback.ASIDE))]


@pytest.mark.parametrize("step", ["hold", "swap", "roll_back", "let_go"])
def test_a_kill_at_any_step_leaves_a_container_that_does_not_start(host, act, backup, monkeypatch, step):
    """Without its image a volume is not mounted. The next run ends it."""
    act("staged", memory=True)
    with monkeypatch.context() as patch:
        if step == "roll_back":
            host.fails = ("restore 0abc",)
        else:
            real = getattr(rollback, step)

            def killed(*given):
                if step != "let_go":
                    real(*given)
                raise runtime.HandoverError("killed")

            patch.setattr(rollback, step, killed)
        with pytest.raises(runtime.HandoverError, match="killed|as the test wants it"):
            act("placed", memory=True)
    host.fails = ()
    assert not (host.folder / "pgdata.img").exists()
    act("staged", memory=True, keep=True)  # half of it is not kept
    act("placed", memory=True)
    assert now(host) == THEN


def test_the_disks_alone_after_a_kill(host, act, backup, monkeypatch):
    act("staged", memory=True)
    host.fails = ("restore 0abc",)
    with pytest.raises(runtime.HandoverError):
        act("placed", memory=True)
    host.fails = ()
    act("staged")
    act("placed")
    assert (host.folder / "pgdata.img").read_text() == "data then"
    assert not list(host.folder.glob("*" + rollback.HELD))


def test_an_image_that_was_made_since_is_not_replaced(tmp_path):
    image = tmp_path / "image"
    (tmp_path / ("image" + rollback.HELD)).write_text("held")
    image.write_text("new")
    rollback.let_go([str(image)])
    assert image.read_text() == "new"
    image.unlink()
    rollback.let_go([str(image)])
    assert image.read_text() == "held"


def test_a_folder_has_the_name_of_one_that_the_helper_was_killed_over(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    rollback.hold([], [str(folder)])
    assert rollback.is_away(str(folder)) and (tmp_path / ("folder" + rollback.AWAY)).is_dir()
    folder.mkdir()  # of a program that looked for it
    rollback.hold([], [str(folder)])
    assert folder.is_dir()
