# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._core import loop, snapshot_mounts
from ansible_collections.livefleet.handover.plugins.module_utils._core.runtime import Completed, HandoverError
from ansible_collections.livefleet.handover.plugins.module_utils._core.snapshot_mounts import SnapshotMounts
from ansible_collections.livefleet.handover.plugins.module_utils._kvm.copies import guest_mounts
from ansible_collections.livefleet.handover.plugins.module_utils._kvm.copies.guest_mounts import WAY_OUT, GuestMounts
from ansible_collections.livefleet.handover.plugins.module_utils._kvm.partitions import Area

AREAS = {
    "vda": [Area("vda1", "ext4", 512, 1024), Area("vda2", "swap", 2048, 512), Area("vda3", "vfat", 4096, 512)],
    "vdb": [Area("vdb", "xfs")],
}
DEFINITION = "<domain><devices><disk><target dev='vda'/></disk><disk><target dev='vdb'/><blockio logical_block_size='4096'/></disk></devices></domain>"


class Kernel:
    """Loop devices and mounts of a host, by the tools' words."""

    def __init__(self, monkeypatch):
        self.said, self.devices, self.mounts, self.fails = [], {}, {}, {}
        monkeypatch.setattr(loop, "read_mounts", lambda: [loop.Mount("7:0", place, "ext4", "/dev/loop0") for place in self.mounts])
        monkeypatch.setattr(snapshot_mounts.loop, "users_of_mount", lambda place: [])

    def tool(self, name, package):
        return name

    def run(self, argv, accept=(0,)):
        answer = getattr(self, "_" + argv[0])(argv[1:])
        rc, out = answer if isinstance(answer, tuple) else (0, answer or "")
        assert rc in accept, argv
        return Completed(tuple(argv), rc, out, "mount: {0}: {1}.\n       dmesg(1) may have more information.\n".format(argv[-1], out) if rc else "")

    def _losetup(self, words):
        self.said.append(" ".join(os.path.basename(word) for word in words))
        if words[0] == "--detach":
            self.devices.pop(words[1])
        if words[0] == "--associated":
            return "\n".join(name for name, image in self.devices.items() if image == words[1])
        if words[0] == "--find":
            name = "/dev/loop{0}".format(len(self.said))
            self.devices[name] = words[-1]
            return name + "\n"
        return ""

    def _mount(self, words):
        self.said.append("mount {0} {1}".format(words[3], os.path.basename(words[-1])))
        if words[1] in self.fails:
            return 32, self.fails[words[1]]
        self.mounts[words[-1]] = words[-2]
        return ""

    def _umount(self, words):
        del self.mounts[words[-1]]


@pytest.fixture
def kernel(monkeypatch):
    monkeypatch.setattr(guest_mounts, "look", lambda runtime, image, target, sector: AREAS[target])
    return Kernel(monkeypatch)


@pytest.fixture
def parts(kernel, tmp_path):
    return GuestMounts(kernel, SnapshotMounts(str(tmp_path), "web"), "one", ["vda", "vdb"], DEFINITION)


def write(target, path):
    with open(path, "w", encoding="ascii") as new:
        new.write(target)


def test_each_partition_has_a_place_and_all_others_a_sentence(kernel, parts):
    assert parts.missing() == ["vda", "vdb"] and parts.told() == []
    kernel.fails["vfat"] = "unknown filesystem type 'vfat'"
    parts.mount(write)
    assert sorted(parts.mounts.places("one")) == ["vda1", "vdb"]
    assert "--find --show --offset 512 --sizelimit 1024 vda.img" in kernel.said and "mount ro,nodev,nosuid,nouuid vdb" in kernel.said
    assert parts.told() == ["vda2 is swap space", "vda3 has vfat, and this host does not mount it: unknown filesystem type 'vfat'", WAY_OUT]
    assert parts.missing() == [] and not kernel.devices, "each device goes with its mount"


def test_a_second_call_does_nothing(kernel, parts):
    kernel.fails["vfat"] = "unknown filesystem type 'vfat'"
    parts.mount(write)
    said = list(kernel.said)
    parts.mount(lambda target, path: pytest.fail("it is there"))
    assert kernel.said == said


def test_after_a_restart_of_the_host_the_copies_are_mounted_again(kernel, parts):
    parts.mount(write)
    kernel.mounts.clear()
    assert (parts.unwritten(), parts.missing()) == ([], ["vda1", "vda3", "vdb"])
    parts.mount(lambda target, path: pytest.fail("it is there"))
    assert sorted(parts.mounts.places("one")) == ["vda1", "vda3", "vdb"]


def test_nothing_is_left_of_it_not_even_the_device_of_a_killed_run(kernel, parts, tmp_path):
    kernel.fails["vfat"] = "unknown filesystem type 'vfat'"
    parts.mount(write)
    kernel.devices["/dev/loop77"] = str(tmp_path / ".mounted/web/one/vda.img")
    kernel.devices["/dev/loop78"] = "/another/vda.img"
    parts.mounts.unmount(kernel, "one")
    assert list(kernel.devices) == ["/dev/loop78"] and not kernel.mounts and not (tmp_path / ".mounted/web/one").exists()
    kernel.fails.clear()
    parts.mount(write)
    assert "vda3" in parts.mounts.places("one"), "it is tried again"


def test_a_disk_that_is_not_written_leaves_no_mount(kernel, parts):
    def fail(target, path):
        raise HandoverError("no space left on device")

    with pytest.raises(HandoverError, match="no space"):
        parts.mount(fail)
    assert not kernel.said and parts.unwritten() == ["vda", "vdb"]


def test_a_table_is_read_in_the_sectors_of_the_guest(kernel, parts, monkeypatch):
    asked = {}
    monkeypatch.setattr(guest_mounts, "look", lambda runtime, image, target, sector: asked.setdefault(target, sector) and [])
    parts.mount(write)
    assert asked == {"vda": 512, "vdb": 4096}


def test_all_subvolumes_are_there(kernel, parts, monkeypatch):
    monkeypatch.setattr(guest_mounts, "look", lambda runtime, image, target, sector: [Area(target + "1", "btrfs", 512, 512)])
    parts.mount(write)
    assert "mount ro,nodev,nosuid,subvolid=5 vda1" in kernel.said
