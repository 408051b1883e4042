# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._core.runtime import HandoverError
from ansible_collections.livefleet.handover.plugins.module_utils._podman import plain_volumes, snapshots


def mount(name, **more):
    plain = {"name": name, "path": "/volumes/" + name, "shared_with": more.pop("shared_with", [])}
    return {"type": "volume", "name": name, "destination": "/" + name, "source": plain["path"], "read_only": False, "image_volume": None,
            "directory_volume": plain, **more}  # fmt: skip


def container(*mounts, **more):
    return {"name": "shop", "running": True, "cgroup": "/sys/fs/cgroup/shop", "mounts": list(mounts), **more}


def test_those_that_it_alone_writes_to_are_taken():
    image = mount("image", directory_volume=None, image_volume={"image": "/i"})
    bound = {"type": "bind", "name": "", "destination": "/bound", "source": "/srv/bound", "read_only": False, "image_volume": None}
    shop = container(mount("logs"), mount("data"), mount("data"), mount("common", shared_with=["web"]), mount("read", read_only=True), image, bound)
    assert snapshots.folders(shop) == [{"name": "data", "path": "/volumes/data"}, {"name": "logs", "path": "/volumes/logs"}]
    assert snapshots.left_out_of(shop) == ["/common (podman's volume common)", "/bound (/srv/bound)"]


def test_an_overlay_is_left_out_though_its_volume_is_taken():
    image = mount("image", directory_volume=None, image_volume={"image": "/i"}, options=["O"])
    shop = container(mount("data"), mount("data", destination="/over", options=["rw", "O"]), image)
    assert snapshots.left_out_of(shop) == ["/over (an overlay of podman's)", "/image (an overlay of podman's)"]


def test_a_container_stands_still_for_its_plain_volumes_alone():
    assert snapshots.cgroup_of(container(mount("data"))) == "/sys/fs/cgroup/shop"
    assert snapshots.cgroup_of(container(mount("data"), running=False)) == ""
    assert snapshots.cgroup_of(container()) == ""
    with pytest.raises(HandoverError, match="shop has the plain volume data and no cgroup of version 2 of its own, by which it could stand still"):
        snapshots.look_for_cgroup(container(mount("data"), cgroup=""))
    for each in (container(cgroup=""), container(mount("data"), cgroup="", running=False)):
        snapshots.look_for_cgroup(each)


def test_a_folder_stays_as_it_was_filled(tmp_path):
    """podman gives it another owner, and fills an empty one."""
    filled, empty = tmp_path / "filled", tmp_path / "empty"
    for folder in (filled, empty):
        folder.mkdir()
    (filled / "own").write_text("x")
    filled.chmod(0o2750)
    for folder in (filled, empty):
        os.utime(folder, (1, 2))
    with plain_volumes.kept([str(filled), str(empty)]):
        filled.chmod(0o755)
        (empty / "of the image").mkdir()
        (empty / "of the image" / "file").write_text("y")
    assert (filled.stat().st_mode & 0o7777, os.listdir(filled), os.listdir(empty)) == (0o2750, ["own"], [])
    assert {folder.stat().st_mtime for folder in (filled, empty)} == {2}
