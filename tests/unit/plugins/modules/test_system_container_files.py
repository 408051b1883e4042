# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._core.runtime import HandoverError
from ansible_collections.livefleet.handover.plugins.modules import system_container_files


def test_it_says_why_something_changes(monkeypatch, run_module):
    monkeypatch.setattr(system_container_files.Files, "run", lambda self: {"changed": True, "reasons": [self.name]})
    found = run_module(system_container_files.main, {"name": "box", "init": "systemd"})
    assert (found["changed"], found["reasons"]) == (True, ["box"])


@pytest.mark.parametrize(("fault", "sentence"), [(HandoverError("there is none"), "there is none"), (OSError(28, "No space left", "/x"), "/x: No space left")])
def test_a_fault_is_one_sentence(monkeypatch, run_module, fault, sentence):
    def fail(self):
        raise fault

    monkeypatch.setattr(system_container_files.Files, "run", fail)
    with pytest.raises(Exception, match=sentence):
        run_module(system_container_files.main, {"name": "box", "init": "systemd"})
