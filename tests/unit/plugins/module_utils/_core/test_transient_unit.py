# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._core import runtime as _runtime, transient_unit


class Runtime:
    def __init__(self, rc):
        self.rc, self.argv = rc, ()

    def tool(self, name, _package):
        return "/usr/bin/" + name

    def run(self, argv, accept=(0,)):
        self.argv = argv
        assert self.rc in accept
        return _runtime.Completed(tuple(argv), self.rc, "", "Failed to start transient service unit: Unit shop.service not found.\n" if self.rc else "")


def test_a_unit_has_its_name_and_its_words():
    runtime = Runtime(0)
    transient_unit.begin(runtime, "shop.service", ["--collect", "true"])
    assert runtime.argv[0] == "/usr/bin/systemd-run" and runtime.argv[-3:] == ["--unit=shop.service", "--collect", "true"]


@pytest.mark.parametrize(
    ("free", "sentence"),
    (
        (4096, r"shop.service could not be started: the file system of /run/systemd is full \(4 KiB free\): make room there"),
        (1 << 30, "shop.service could not be started: Failed to start transient service unit: Unit shop.service not found"),
    ),
)
def test_one_that_does_not_start_says_why(monkeypatch, free, sentence):
    monkeypatch.setattr(transient_unit, "free_space", lambda path: free)
    with pytest.raises(_runtime.HandoverError, match=sentence):
        transient_unit.begin(Runtime(1), "shop.service", ["true"])
