# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import types

from ansible_collections.livefleet.handover.plugins.module_utils._podman import common_ipc


class Runtime:
    def __init__(self, said):
        self.said = said

    def tool(self, name, _package):
        return name

    def run(self, words):
        assert words[:4] == ["nsenter", "--ipc=/proc/7/ns/ipc", "wc", "-l"]
        return types.SimpleNamespace(stdout=self.said)


def test_each_list_has_a_heading(monkeypatch, tmp_path):
    monkeypatch.setattr(common_ipc, "_QUEUES", str(tmp_path) + "/{0}")
    said = " 1 /proc/sysvipc/shm\n 3 /proc/sysvipc/sem\n 1 /proc/sysvipc/msg\n 5 total\n"
    assert common_ipc.objects(Runtime(said), 7) == ["semaphores of System V"]
    (tmp_path / "7").mkdir()
    assert common_ipc.objects(Runtime(said.replace("3", "1")), 7) == []
    (tmp_path / "7" / "queue").touch()
    assert common_ipc.objects(Runtime(said.replace("3", "1")), 7) == ["POSIX message queues"]
