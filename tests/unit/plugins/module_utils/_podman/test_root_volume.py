# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._core.loop import Mount
from ansible_collections.livefleet.handover.plugins.module_utils._podman import root_volume, volume_facts


@pytest.fixture(name="root")
def some_root(tmp_path, monkeypatch):
    """A folder, and a word that says which of the mounts is a volume."""
    folder = tmp_path / "mnt/vz"
    (folder / "etc").mkdir(parents=True)
    (folder / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh\n")
    monkeypatch.setattr(volume_facts.os.path, "realpath", lambda path: path)
    monkeypatch.setattr(volume_facts.host, "backing_file", lambda _sys, name: "/var/lib/handover/volumes/vz.img" if name == "7:3" else "")
    monkeypatch.setattr(volume_facts.host, "block_device_size", lambda *_: 2**30)
    monkeypatch.setattr(volume_facts.host, "mount_options", lambda _place: ["rw"])
    return folder


def mount(place, device="7:3"):
    return Mount(device, str(place), "ext4", "")


def look(rootfs, *mounts):
    return root_volume.mounts_of({"rootfs": str(rootfs)}, list(mounts))


def test_a_volume_as_a_whole_is_a_root_that_moves(root):
    for path in (root, f"{root}/"):
        (found,) = look(path, mount("/", "8:1"), mount(root))
        assert (found["destination"], found["source"], found["image_volume"]["name"]) == ("/", str(root), "vz")
        assert root_volume.path_of({"mounts": [found]}) == str(root)
        assert found["users"] == {"passwd": "root:x:0:0::/root:/bin/sh\n", "group": ""}


@pytest.mark.parametrize(
    "mounts",
    [
        lambda root: [mount("/", "8:1")],
        lambda root: [mount(root, "8:1")],
        # A folder of a volume may have files beside it; another file system in it would stay behind.
        lambda root: [mount(root.parent)],
        lambda root: [mount(root), mount(root / "srv", "8:1")],
        lambda root: [mount(root), mount(root, "8:1")],
    ],
)
def test_any_other_directory_is_none(root, mounts):
    assert look(root, mount("/", "8:1"), *mounts(root)) == []
    assert root_volume.path_of({"mounts": []}) == ""


def test_one_of_an_image_has_none(root):
    assert look("", mount(root)) == []


def test_lists_of_users_are_not_read_through_links(root, tmp_path):
    (tmp_path / "secret").write_text("root:of the host")
    (root / "etc/passwd").unlink()
    (root / "etc/passwd").symlink_to(tmp_path / "secret")
    (found,) = look(root, mount(root))
    assert found["users"]["passwd"] == ""
    os.rename(root / "etc", root / "other")
    (root / "etc").symlink_to(tmp_path)
    (tmp_path / "group").write_text("root:of the host")
    (found,) = look(root, mount(root))
    assert found["users"]["group"] == ""


def test_an_empty_root_is_furnished(root, tmp_path):
    place = tmp_path / "cover"
    place.mkdir()
    (found,) = look(root, mount(root))
    root_volume.furnish({"mounts": [{**found, "source": str(place)}]})
    assert (place / "etc/passwd").read_text().startswith("root:") and not (place / "etc/group").exists()
    root_volume.furnish({"mounts": []})
