# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The restore itself is tested with its parts, in module_utils/_kvm/test_guest_restore.py."""

from __future__ import annotations

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._core.runtime import HandoverError
from ansible_collections.livefleet.handover.plugins.modules import kvm_restore

ASKED = {"repository": "/srv/backups", "workload": "web"}


def test_the_options_arrive(monkeypatch, run_module):
    monkeypatch.setattr(kvm_restore, "restore", lambda module: {"changed": True, "seen": dict(module.params), "check": module.check_mode})
    seen = run_module(kvm_restore.main, ASKED)["seen"]
    assert {name: seen[name] for name in ("workload", "backup", "name", "notes")} == {
        "workload": "web", "backup": "", "name": None, "notes": "/var/lib/handover/guest-restores"
    }  # fmt: skip


def test_a_refusal_is_the_modules_message(monkeypatch, run_module):
    def refuse(module):
        raise HandoverError("web runs here")

    monkeypatch.setattr(kvm_restore, "restore", refuse)
    with pytest.raises(Exception, match="web runs here"):
        run_module(kvm_restore.main, ASKED)
