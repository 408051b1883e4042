# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import types

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._core import loop, runtime
from ansible_collections.livefleet.handover.plugins.module_utils._podman import volume, volume_noted


class Seen:
    """A volume whose loop device goes with the last that has it open, as after the unmount of one that autoclears."""

    def __init__(self, device, says=""):
        self.device, self.says = device, says
        self.did, self.warned = [], []
        self.wanted = volume.Wanted("data", "unmounted", "/images/data.img", "/mnt")
        self.runtime = self

    def held(self):
        paths = [os.path.join("/proc/self/fd", number) for number in os.listdir("/proc/self/fd")]
        return any(os.path.exists(path) and os.path.samefile(path, self.device) for path in paths)

    def loops(self):
        return (loop.LoopDevice(str(self.device), ("8:1", 7)),)

    def mounts(self, _loops):
        return (loop.Mount("7:0", "/mnt", "ext4", str(self.device)),), None

    def tool(self, name, _package):
        return "/bin/" + name

    def run(self, argv, accept=(0,), stdin=None, timeout=None):
        self.did.append((" ".join(os.path.basename(word) for word in argv[:3]), self.held()))
        if self.says and "note" in argv:
            raise runtime.HandoverError(self.says)
        return types.SimpleNamespace(rc=0, stdout='{"volumes": []}', stderr="")


@pytest.fixture
def seen(tmp_path, monkeypatch):
    monkeypatch.setattr(volume_noted.Pcopy, "check_installed", lambda self: None)
    (tmp_path / "loop7").write_text("")
    return Seen(tmp_path / "loop7")


def test_the_device_is_held_until_it_is_noted(seen):
    volume_noted.NotedActions(seen, (), seen.warned.append, "/store").unmount()
    assert seen.did == [("umount mnt", True), ("pcopy snapshot note", True)]
    assert not seen.held()
    assert not seen.warned


def test_nothing_fails_where_it_cannot_be_noted(seen):
    seen.says = "pcopy: unknown command"
    volume_noted.NotedActions(seen, (), seen.warned.append, "/store").unmount()
    assert seen.warned == ["the volume data was not noted, and a rollback compares all of it: pcopy: unknown command"]
    assert not seen.held()


def test_a_device_that_has_gone_does_not_keep_it_mounted(seen):
    seen.loops = lambda: (loop.LoopDevice("/dev/no-such-loop", ("8:1", 7)), loop.LoopDevice(str(seen.device), ("8:1", 7)))
    volume_noted.NotedActions(seen, (), seen.warned.append, "/store").unmount()
    assert seen.did == [("umount mnt", True), ("pcopy snapshot note", True)]


def test_a_volume_in_use_is_not_noted(seen, monkeypatch):
    def refuse(argv, accept=(0,), stdin=None, timeout=None):
        seen.did.append(argv)
        return types.SimpleNamespace(rc=32, last_words="target is busy")

    seen.run = refuse
    monkeypatch.setattr(loop, "users_of_mount", lambda mountpoint: [])
    with pytest.raises(runtime.HandoverError, match="/mnt could not be unmounted: target is busy"):
        volume_noted.NotedActions(seen, (), seen.warned.append, "/store").unmount()
    assert len(seen.did) == 1
    assert not seen.held()
