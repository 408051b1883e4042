# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.testing import patch_module_args
from ansible_collections.livefleet.handover.plugins.module_utils._core.step import discreet

OPTIONS = {"configuration": {"type": "dict"}}


@pytest.mark.parametrize(("make", "told"), [(AnsibleModule, True), (discreet, False)])
def test_the_journal_of_the_host_is_not_told_the_options(monkeypatch: pytest.MonkeyPatch, make, told: bool) -> None:
    written = []
    for way in ("_log_to_syslog", "log"):
        monkeypatch.setattr(AnsibleModule, way, lambda self, msg, log_args=None: self.no_log or written.append(f"{msg} {log_args}"))
    with patch_module_args({"configuration": {"Env": ["PASSWORD=swordfish"]}}):
        make(argument_spec=OPTIONS)
    assert any("swordfish" in line for line in written) == told
